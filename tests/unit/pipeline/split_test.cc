#include "mtrain/pipeline/split.h"

#include <doctest/doctest.h>

#include <vector>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

std::string text(const SplitRequest& request, const StageMap& map) {
  std::vector<std::string> out;
  for (const StagePart& part : split_layers(request, map)) out.push_back(part.letters);
  return join(out, "|");
}

TEST_CASE("blocks are shared out evenly") {
  CHECK(text({.layers = 3}, StageMap::looping(1)) == "EtttL");
  CHECK(text({.layers = 8}, StageMap::looping(4)) == "Ett|tt|tt|ttL");
  CHECK(text({.layers = 8}, StageMap::looping(2, 2)) == "Ett|tt|tt|ttL");
  CHECK(text({.layers = 8}, StageMap::v_shape(2)) == "Ett|tt|tt|ttL");
  CHECK(text({.layers = 4, .mtp_layers = 1}, StageMap::looping(2)) == "Ett|ttmL");
  CHECK(text({.layers = 0}, StageMap::looping(2)) == "E|L");
}

TEST_CASE("the embedding and the loss count as a block") {
  CHECK(text({.layers = 6, .account_for_embedding = true, .account_for_loss = true},
             StageMap::looping(4)) == "Et|tt|tt|tL");
  CHECK(text({.layers = 7, .account_for_embedding = true}, StageMap::looping(4)) == "Et|tt|tt|ttL");
  CHECK(text({.layers = 7, .account_for_loss = true}, StageMap::looping(2, 2)) == "Ett|tt|tt|tL");
  CHECK(text({.layers = 2, .account_for_embedding = true, .account_for_loss = true},
             StageMap::looping(4)) == "E|t|t|L");
}

TEST_CASE("the ends hold what is said, the middle shares the rest") {
  CHECK(text({.layers = 10, .first_stage_layers = 1, .last_stage_layers = 3},
             StageMap::looping(4)) == "Et|ttt|ttt|tttL");
  CHECK(text({.layers = 7, .first_stage_layers = 1}, StageMap::looping(4)) == "Et|tt|tt|ttL");
  CHECK(text({.layers = 7, .last_stage_layers = 1}, StageMap::looping(4)) == "Ett|tt|tt|tL");
  CHECK(text({.layers = 5, .first_stage_layers = 2, .last_stage_layers = 3},
             StageMap::looping(2)) == "Ett|tttL");
  // Several stages per rank: the number is the rank's, in equal shares of its stages.
  CHECK(text({.layers = 14, .first_stage_layers = 2, .last_stage_layers = 4},
             StageMap::looping(4, 2)) == "Et|tt|tt|tt|t|tt|tt|ttL");
  CHECK(text({.layers = 6, .first_stage_layers = 2}, StageMap::v_shape(2)) == "Et|tt|tt|tL");
}

TEST_CASE("a layout says it all") {
  CHECK(text({.layers = 5, .mtp_layers = 1, .layout = "Et*2|(t|)*2t,m|L"}, StageMap::looping(5)) ==
        "Ett|t|t|tm|L");
  CHECK(text({.layers = 2, .layout = "E||tt|L"}, StageMap::looping(2, 2)) == "E||tt|L");
}

TEST_CASE("multi-token prediction in a stage of its own, before head and loss") {
  CHECK(text({.layers = 4, .mtp_layers = 2, .mtp_standalone = true}, StageMap::looping(4)) ==
        "Ett|tt|mm|L");
  CHECK(text({.layers = 2, .mtp_layers = 1, .mtp_standalone = true}, StageMap::v_shape(2)) ==
        "Et|t|m|L");
  CHECK(text({.layers = 4, .mtp_standalone = true}, StageMap::looping(2)) == "Ett|ttL");
  CHECK(text({.layers = 3, .mtp_layers = 1, .mtp_standalone = true, .layout = "Et|t|tm|L"},
             StageMap::looping(4)) == "Et|t|tm|L");
  auto parts =
      split_layers({.layers = 2, .mtp_layers = 2, .mtp_standalone = true}, StageMap::looping(2, 2));
  CHECK(parts[2].num_mtp_layers == 2);
  CHECK(parts[2].num_layers == 0);
  CHECK_FALSE(parts[2].head);
  CHECK(parts[3].head);
  CHECK(parts[3].num_mtp_layers == 0);
}

TEST_CASE("stages know their range of blocks") {
  auto parts = split_layers({.layers = 61, .mtp_layers = 1, .layout = "Et*3|(tt|)*29,m|L"},
                            StageMap::looping(16, 2));
  REQUIRE(parts.size() == 32);
  CHECK(parts[0].first_layer == 0);
  CHECK(parts[0].num_layers == 3);
  CHECK(parts[0].embedding);
  CHECK(!parts[0].head);
  CHECK(parts[17].first_layer == 3 + 2 * 16);
  CHECK(parts[17].num_layers == 2);
  CHECK(parts[30].num_layers == 0);
  CHECK(parts[30].num_mtp_layers == 1);
  CHECK(parts[31].head);
  CHECK(parts[31].letters == "L");
}

TEST_CASE("every block is in one stage, whatever is asked, or it is refused") {
  int shared = 0, refused = 0;
  for (int64_t layers = 0; layers <= 24; ++layers)
    for (int64_t ranks = 1; ranks <= 6; ++ranks)
      for (int64_t first = 0; first <= 6; ++first)
        for (int64_t last = 0; last <= 6; ++last)
          for (const StageMap& map :
               {StageMap::looping(ranks), StageMap::looping(ranks, 2), StageMap::v_shape(ranks)}) {
            SplitRequest request{
                .layers = layers, .first_stage_layers = first, .last_stage_layers = last};
            try {
              int64_t next = 0;
              std::vector<int64_t> of_rank(static_cast<size_t>(ranks));
              auto parts = split_layers(request, map);
              REQUIRE(static_cast<int64_t>(parts.size()) == map.stages());
              for (size_t s = 0; s < parts.size(); ++s) {
                REQUIRE(parts[s].first_layer == next);
                next += parts[s].num_layers;
                of_rank[static_cast<size_t>(map.rank(static_cast<int64_t>(s)))] +=
                    parts[s].num_layers;
              }
              REQUIRE(next == layers);
              if (first > 0) REQUIRE(of_rank.front() == first);
              if (last > 0) REQUIRE(of_rank.back() == last);
              ++shared;
            } catch (const Error& error) {
              REQUIRE(error.error_class() == ErrorClass::config);
              ++refused;
            }
          }
  CHECK(shared > 500);
  CHECK(refused > 500);
}

TEST_CASE("what does not work out is refused with the reason") {
  StageMap four = StageMap::looping(4), virt = StageMap::looping(4, 2);
  auto refused = [](const SplitRequest& request, const StageMap& map, const std::string& message) {
    INFO(message);
    try {
      split_layers(request, map);
      FAIL("was shared out");
    } catch (const Error& error) {
      CHECK(error.message() == message);
      CHECK(error.error_class() == ErrorClass::config);
    }
  };
  refused({.layers = 30}, four, "30 blocks cannot be divided evenly among 4 stages");
  refused(
      {.layers = 30, .account_for_loss = true}, four,
      "31 blocks (including the embedding or the loss) cannot be divided evenly among 4 stages");
  refused({.layers = 12}, virt, "12 blocks cannot be divided evenly among 8 stages");
  refused({.layers = 8, .first_stage_layers = 5, .last_stage_layers = 5}, four,
          "5 + 5 blocks in the first and last of 4 ranks are more than the 8 blocks of the model");
  refused({.layers = 8, .first_stage_layers = 1, .last_stage_layers = 2}, four,
          "5 blocks remain for 2 ranks");
  refused({.layers = 8, .first_stage_layers = 4, .last_stage_layers = 4}, four,
          "0 blocks remain for 2 ranks");
  refused({.layers = 8, .first_stage_layers = 3, .last_stage_layers = 4}, StageMap::looping(2),
          "1 blocks remain for 0 ranks");
  refused({.layers = 8, .first_stage_layers = 4, .last_stage_layers = 4}, StageMap::looping(1),
          "4 + 4 blocks in the first and last of 1 ranks are more than the 8 blocks of the model");
  refused({.layers = 8, .first_stage_layers = -1}, four, "a stage cannot hold fewer than 0 blocks");
  refused({.layers = 7, .first_stage_layers = 1}, virt,
          "the 1 blocks of rank 0 cannot be split into 2 stages");
  refused({.layers = 7, .first_stage_layers = 1, .account_for_loss = true}, four,
          "account_for_embedding and account_for_loss determine the number of blocks per stage, so "
          "they cannot be combined with first_stage_layers or last_stage_layers");
  refused({.layers = 2, .layout = "Et|tL"}, four, "dist.layout 'Et|tL': it has 2 stages, wanted 4");
  refused({.layers = 3, .layout = "Et||t|L"}, four,
          "dist.layout 'Et||t|L': it has 2 blocks, the model 3");
  refused({.layers = 2, .mtp_layers = 1, .layout = "Et||t|L"}, four,
          "dist.layout 'Et||t|L': it has 0 blocks of multi-token prediction, the model 1");
  const SplitRequest further{.layers = 4, .mtp_layers = 1, .mtp_standalone = true};
  refused(further, StageMap::looping(2),
          "model.mtp.standalone leaves no stage for the blocks: of 2 stages, one has multi-token "
          "prediction and one head and loss");
  refused(further, StageMap::looping(5),
          "4 blocks cannot be divided evenly among 3 stages, those before multi-token prediction");
  SplitRequest other = further;
  other.last_stage_layers = 1;
  refused(other, four,
          "model.mtp.standalone cannot be combined with first_stage_layers or last_stage_layers");
  other = further, other.account_for_loss = true;
  refused(other, four,
          "model.mtp.standalone cannot be combined with account_for_embedding or account_for_loss");
  other = further, other.layout = "Ett|t||tmL";
  refused(
      other, four,
      "dist.layout 'Ett|t||tmL': multi-token prediction (m) is in the stage of head and loss, and "
      "model.mtp.standalone is true");
  refused({.layers = 2, .layout = "Et||tx|L"}, four,
          "dist.layout 'Et||tx|L': 'x' is not one of E t m L | ( ) * , (character 6)");
  refused({.layers = 2, .first_stage_layers = 1, .layout = "Et||t|L"}, four,
          "dist.layout determines the content of every stage, so first_stage_layers, "
          "last_stage_layers, account_for_embedding and account_for_loss cannot be set as well");
}

}  // namespace
}  // namespace mtrain
