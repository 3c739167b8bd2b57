// Every layout trains what one rank trains: the first loss, every gradient, the norm and the curve of losses.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string_view>

#include "mtrain/train/verify_report.h"
#include "subjects.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

bool whole_set() {
  const char* wanted = std::getenv("MTRAIN_PARITY");
  return wanted && std::string_view(wanted) == "all";
}

struct Tally {
  size_t legal = 0, run = 0, refused = 0, not_built = 0;
};

void compare(const Subject& subject, int64_t ranks, const std::string& more, Tally& tally) {
  Recipe recipe = recipe_of(subject, more);
  LayoutVerifier verifier(recipe, plugins(), {.ranks = ranks, .steps = whole_set() ? 20 : 5});
  std::vector<RankLayout> layouts = whole_set() ? verifier.layouts().legal : pairwise(verifier.layouts().legal);
  verifier.measure_reference();
  bool exact = verifier.dtype() == DType::f32;
  for (const auto& layout : layouts) {
    LayoutVerdict verdict = verifier.verify(layout);
    CAPTURE(std::string(subject.name));
    CAPTURE(ranks);
    CAPTURE(text(layout));
    CHECK_MESSAGE(verdict.kind == LayoutVerdict::Kind::same, verdict.problem);
    if (!exact || verdict.kind == LayoutVerdict::Kind::failed) continue;
    CHECK(verdict.loss_first <= 1e-6);
    CHECK(verdict.gradient <= 2e-5);
  }
  tally.legal += verifier.layouts().legal.size();
  tally.run += layouts.size();
  for (const auto& r : verifier.layouts().refused) tally.refused += r.layouts.size();
  for (const auto& r : verifier.layouts().not_built) tally.not_built += r.layouts.size();
}

}  // namespace

TEST_CASE("in fp32 every layout of 2, 4 and 8 ranks is one rank's within rounding") {
  Tally all;
  for (const Subject& subject : subjects()) {
    if (!built(subject)) {
      MESSAGE(subject.name << ": this build lacks the model");
      continue;
    }
    Tally tally;
    for (int64_t ranks : {2, 4, 8}) compare(subject, ranks, "", tally);
    MESSAGE(subject.name << ": " << tally.run << " of " << tally.legal << " legal layouts compared; " << tally.not_built
                         << " need what this build lacks, " << tally.refused << " are refused by rules");
    all.run += tally.run, all.legal += tally.legal;
  }
  MESSAGE("in all " << all.run << " of " << all.legal << " legal layouts (MTRAIN_PARITY=all: all of them)");
  CHECK(all.run >= 10);
}

TEST_CASE("in bf16, and where ranks are no power of two, layouts are one rank's within rounding") {
  Tally tally;
  compare(subjects()[0], 4, "mixed_precision: {dtype: bf16}\n", tally);
  compare(subjects()[0], 3, "", tally);
  compare(subjects()[0], 6, "", tally);
  MESSAGE(tally.run << " of " << tally.legal << " legal layouts compared");
  CHECK(tally.run >= 3);
}

TEST_CASE("a pairwise subset holds every two choices that go together") {
  Recipe recipe = recipe_of(subjects()[0]);
  LayoutVerifier verifier(recipe, plugins(), {.ranks = 4});
  std::vector<RankLayout> all = verifier.layouts().legal, few = pairwise(all);
  CHECK(few.size() <= all.size());
  auto together = [](const std::vector<RankLayout>& layouts, int64_t tp, bool sp, const std::string& recompute) {
    return std::any_of(layouts.begin(), layouts.end(),
                       [&](const auto& l) { return l.tp == tp && l.sp == sp && l.recompute == recompute; });
  };
  for (int64_t tp : {1, 2, 4})
    for (const char* recompute : {"none", "full"})
      CHECK(together(few, tp, tp > 1, recompute) == together(all, tp, tp > 1, recompute));
}
