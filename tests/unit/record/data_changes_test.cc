#include "mtrain/record/data_changes.h"

#include <doctest/doctest.h>

#include <array>

#include "mtrain/base/text.h"

using namespace mtrain;
using Lines = std::vector<std::string>;

TEST_CASE("only what differs of the data is shown, wherever in the text it is") {
  const std::string start =
      R"({"dataset":"gpt","files":[{"path":"/a/very/long/path/that/is/the/same/on/both/sides","sha256":")";
  CHECK(data_changes(start + R"(aaaa"}],"split":"90,10,0"})",
                     start + R"(bbbb"}],"split":"90,10,0"})") ==
        Lines{"files[0].sha256: aaaa -> bbbb"});
  CHECK(data_changes(R"({"a":1,"b":[1,2]})", R"({"a":1,"b":[1,2]})").empty());
  CHECK(data_changes(R"({"a":1,"b":[1,2]})", R"({"a":2,"b":[1],"c":null})") ==
        Lines{"a: 1 -> 2", "b[1]: 2 -> absent", "c: absent -> null"});
}

TEST_CASE("a file that changed is named, and its checksums are not") {
  auto gpt = [](const std::string& file, int bytes, int sum) {
    return cat(R"({"files":[{"file":")", file, R"(","bin_bytes":)", bytes,
               R"(,"idx_bytes":66,"idx_crc32c":)", sum, R"(,"bin_crc32c":)", sum,
               R"(}],"split":"1,0,0"})");
  };
  CHECK(data_changes(gpt("corpus", 96, 1), gpt("corpus", 98, 2)) ==
        Lines{"corpus has different contents: corpus.bin had 96 bytes and has 98"});
  CHECK(data_changes(gpt("corpus", 96, 1), gpt("corpus", 96, 2)) ==
        Lines{"corpus has different contents of the same size"});
  CHECK(data_changes(gpt("corpus", 96, 1), gpt("books", 98, 1)) == Lines{"corpus -> books"});
  CHECK(data_changes(R"({"encoding":"a1"})", R"({"encoding":"b2"})")
            .at(0)
            .starts_with("records become other tokens: the chat template's text has changed"));
  CHECK(data_changes(R"({"files":["a1 openai",null,"b1 openai"]})",
                     R"({"files":["a2 openai",null,"b2 openai"]})") ==
        Lines{"the file of dataset.path has different contents",
              "the file of dataset.test_path has different contents"});
}

TEST_CASE("a prepared file is the same data under another name") {
  auto blend = [](const std::string& first, const std::string& second, int sum) {
    return cat(R"({"files":[{"file":")", first, R"(","bin_bytes":96,"bin_crc32c":1},[{"file":")",
               second, R"(","bin_bytes":98,"bin_crc32c":)", sum, R"(},0.5]],"seed":1})");
  };
  const std::string before = blend("a", "b", 2);
  CHECK(same_data(before, before));
  CHECK(same_data(before, blend("x", "y", 2)));
  CHECK(data_changes(before, blend("x", "y", 2)).empty());
  CHECK(data_file_changes(before, blend("x", "y", 2)).empty());
  CHECK_FALSE(same_data(before, blend("x", "y", 3)));
  CHECK(data_changes(before, blend("x", "y", 3)) == Lines{"b -> y"});
  CHECK(data_changes(before, blend("x", "b", 3)) ==
        Lines{"b has different contents of the same size"});
  // A name counts where nothing else describes the file, and in texts that are not JSON.
  CHECK_FALSE(same_data(R"({"file":"a"})", R"({"file":"b"})"));
  CHECK_FALSE(same_data("a", "b"));
  CHECK(same_data("a", "a"));
}

TEST_CASE("shares in the same proportion are the same data") {
  auto data = [](const std::string& weights, const std::string& split, const std::string& valid) {
    return cat(R"({"files":[{"file":"a","bin_bytes":1},[{"file":"b","bin_bytes":2},)",
               R"({"file":"c","bin_bytes":3},)", valid, R"(]],"weights":[)", weights,
               R"(],"split":")", split, R"(","seed":1})");
  };
  const std::string before = data("0.5,0.3,0.2", "80,20,0", "0.25,0.75");
  for (const auto& [weights, split, valid] :
       std::vector<std::array<const char*, 3>>{{"5.0,3.0,2.0", "80,20,0", "0.25,0.75"},
                                               {"0.5,0.3,0.2", "80,20", "0.25,0.75"},
                                               {"0.5,0.3,0.2", "8,2,0.0", "1.0,3.0"},
                                               {"50,30,20", "0.8,0.2", "25,75"}}) {
    CAPTURE(split);
    CHECK(same_data(before, data(weights, split, valid)));
    CHECK(data_changes(before, data(weights, split, valid)).empty());
    CHECK(data_file_changes(before, data(weights, split, valid)).empty());
  }
  CHECK(data_changes(before, data("5,2,3", "80,20", "1,3")) ==
        Lines{"weights[0]: 0.5 -> 5", "weights[1]: 0.3 -> 2", "weights[2]: 0.2 -> 3"});
  CHECK(data_changes(before, data("5,3,2", "80,10,10", "1,3")) ==
        Lines{"split: 80,20,0 -> 80,10,10"});
  CHECK_FALSE(same_data(before, data("5,3,2", "80,20", "3,1")));
  CHECK_FALSE(same_data(before, data("5,3", "80,20", "1,3")));
  CHECK_FALSE(same_data(before, data("5,3,2", "80;20", "1,3")));
  CHECK_FALSE(same_data(R"({"weights":[0,0]})", R"({"weights":[0,0,0]})"));
}

TEST_CASE("of long values the part is shown where they begin to differ") {
  const std::string same(300, 'x');
  const Lines lines = data_changes("{\"a\":\"" + same + "1\"}", "{\"a\":\"" + same + "2\"}");
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "a: …" + std::string(20, 'x') + "1 -> …" + std::string(20, 'x') + "2");
  CHECK(data_changes(same + "1", same + "2") ==
        Lines{"…" + std::string(20, 'x') + "1 -> …" + std::string(20, 'x') + "2"});
  CHECK(data_changes("one", "one and more") == Lines{"one -> one and more"});
}

TEST_CASE("many changes are counted") {
  CHECK(data_changes("[1,2,3,4]", "[5,6,7,8]", 2) ==
        Lines{"[0]: 1 -> 5", "[1]: 2 -> 6", "and 2 more"});
}
