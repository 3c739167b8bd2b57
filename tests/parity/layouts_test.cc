// Every layout trains what one rank trains: the first loss, every gradient, the norm and the curve
// of losses.
#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <set>
#include <string_view>

#include "mtrain/base/text.h"
#include "mtrain/verify/report.h"
#include "subjects.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

struct Tally {
  size_t valid = 0, run = 0, refused = 0, not_built = 0;
};

using Choose = std::function<std::vector<RankLayout>(const std::vector<RankLayout>&)>;

/// Which layouts are compared, unless all are: of every `listed`-th combination those that `choose`
/// takes, and of these every `stride`-th.
struct Share {
  size_t stride = 1, listed = 1;
  Choose choose = pairwise;
};

/// Compares the layouts of several numbers of ranks.
void compare(const Subject& subject, const std::vector<int64_t>& worlds, const std::string& more,
             Tally& tally, const Share& share = {}) {
  Recipe recipe = recipe_of(subject, more);
  std::map<int64_t, LayoutVerifier> verifiers;
  std::vector<RankLayout> layouts;
  for (int64_t ranks : worlds) {
    VerifyOptions options{.ranks = ranks, .steps = whole_set() ? 20 : 4};
    if (!whole_set())
      options.filter = [&share, index = size_t{0}](const RankLayout&) mutable {
        return index++ % share.listed == 0;
      };
    LayoutVerifier& v = verifiers.try_emplace(ranks, recipe, plugins(), options).first->second;
    layouts.insert(layouts.end(), v.layouts().valid.begin(), v.layouts().valid.end());
    for (const auto& r : v.layouts().refused) tally.refused += r.layouts.size();
    for (const auto& r : v.layouts().not_built) tally.not_built += r.layouts.size();
  }
  tally.valid += layouts.size();
  if (!whole_set()) layouts = share.choose(layouts);
  for (size_t i = 0; i < layouts.size(); i += whole_set() ? 1 : share.stride, ++tally.run) {
    const RankLayout& layout = layouts[i];
    LayoutVerifier& verifier = verifiers.at(layout.ranks);
    LayoutVerdict verdict = verifier.verify(layout);
    CAPTURE(std::string(subject.name));
    CAPTURE(layout.ranks);
    CAPTURE(text(layout));
    CHECK_MESSAGE(verdict.kind == LayoutVerdict::Kind::same, verdict.problem);
    if (verifier.dtype() != DType::f32 || verdict.kind == LayoutVerdict::Kind::failed) continue;
    CHECK(verdict.loss_first <= 1e-6);
    CHECK(verdict.gradient <= 2e-5);
  }
}

/// Few layouts in which every choice occurs: each size of an axis, schedule, way of communication.
std::vector<RankLayout> each_choice(const std::vector<RankLayout>& layouts) {
  auto words = [](const RankLayout& layout) {
    const std::vector<std::string> all = split(text(layout), ' ');
    return std::set<std::string>(all.begin(), all.end());
  };
  std::vector<std::set<std::string>> open;
  for (const RankLayout& layout : layouts) open.push_back(words(layout));
  std::vector<RankLayout> out;
  for (;;) {
    const auto most = std::max_element(
        open.begin(), open.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    if (most == open.end() || most->empty()) return out;
    const std::set<std::string> covered = *most;
    out.push_back(layouts[static_cast<size_t>(most - open.begin())]);
    for (auto& rest : open)
      for (const std::string& word : covered) rest.erase(word);
  }
}

}  // namespace

TEST_CASE(
    "in fp32 layouts of 2 and 4 ranks, and of 8 where a model is tested in depth, are one rank's "
    "within rounding") {
  Tally all;
  for (const Subject& subject : subjects()) {
    if (!built(subject)) {
      MESSAGE(std::string(subject.name) << ": this build lacks the model");
      continue;
    }
    Tally tally;
    std::vector<int64_t> worlds = {2, 4};
    if (in_depth(subject)) worlds.push_back(8);
    const bool few = subject.name == std::string_view("t5");  // few of its layouts are valid
    compare(subject, worlds, "", tally,
            {.stride = in_depth(subject) || few ? 1U : 2U, .listed = few ? 1U : 3U});
    MESSAGE(std::string(subject.name)
            << ": " << tally.run << " of " << tally.valid << " valid layouts compared; "
            << tally.not_built << " need what this build lacks, " << tally.refused
            << " are refused by rules");
    all.run += tally.run, all.valid += tally.valid;
  }
  MESSAGE("in all " << all.run << " of " << all.valid
                    << " valid layouts (MTRAIN_PARITY=all: all of them)");
  CHECK(all.run >= 10);
}

TEST_CASE("variants of blocks, heads and rotary positions are one rank's in every layout") {
  for (const Subject& subject : variants()) {
    Tally tally;
    compare(subject, {2, 4}, "", tally, {.stride = 5, .listed = 7});
    MESSAGE(std::string(subject.name)
            << ": " << tally.run << " of " << tally.valid << " valid layouts compared");
    CHECK(tally.run >= 3);
  }
}

TEST_CASE("every part of a model is one rank's with every axis, schedule and way to communicate") {
  for (const Subject& subject : parts()) {
    Tally tally;
    compare(subject, {4}, "", tally, {.listed = 7, .choose = each_choice});
    MESSAGE(std::string(subject.name)
            << ": " << tally.run << " of " << tally.valid << " valid layouts compared");
    CHECK(tally.run >= 4);
  }
}

TEST_CASE("in bf16, and where ranks are no power of two, layouts are one rank's within rounding") {
  Tally tally;
  compare(subjects()[0], {2, 4}, "mixed_precision: {dtype: bf16}\n", tally,
          {.stride = 4, .listed = 3});
  compare(subjects()[0], {3, 5, 6}, "", tally, {.stride = 4, .listed = 3});
  MESSAGE(tally.run << " of " << tally.valid << " valid layouts compared");
  CHECK(tally.run >= 3);
}

TEST_CASE("with FP8 and FP4 products layouts are one rank's within rounding") {
  Tally tally;
  for (const char* products :
       {"fp8: hybrid", "fp8: hybrid, fp8_recipe: delayed", "fp8: e4m3, fp8_recipe: blockwise",
        "fp8: e4m3, fp8_recipe: mxfp8", "fp4: nvfp4"}) {
    CAPTURE(std::string(products));
    compare(subjects()[0], {2, 4}, cat("mixed_precision: {dtype: bf16, ", products, "}\n"), tally,
            {.stride = 9, .listed = 3});
  }
  MESSAGE(tally.run << " of " << tally.valid << " valid layouts compared");
  CHECK(tally.run >= 5);
}

TEST_CASE("a pairwise subset holds every two choices that go together") {
  Recipe recipe = recipe_of(subjects()[0]);
  LayoutVerifier verifier(recipe, plugins(), {.ranks = 4});
  std::vector<RankLayout> all = verifier.layouts().valid, few = pairwise(all);
  CHECK(few.size() <= all.size());
  auto together = [](const std::vector<RankLayout>& layouts, int64_t tp,
                     const std::string& recompute) {
    return std::any_of(layouts.begin(), layouts.end(),
                       [&](const auto& l) { return l.tp == tp && l.recompute == recompute; });
  };
  for (int64_t tp : {1, 2, 4})
    for (const char* recompute : {"none", "full"})
      CHECK(together(few, tp, recompute) == together(all, tp, recompute));
}
