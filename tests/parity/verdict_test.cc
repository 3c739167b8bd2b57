// What the comparison must not pass over: figures of one rank, made wrong by little.
#include <doctest/doctest.h>

#include <cmath>

#include "mtrain/verify/report.h"
#include "subjects.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

LayoutVerifier& verdict_verifier() {
  static LayoutVerifier made(recipe_of(subjects()[0]), plugins(), {.ranks = 2, .steps = 4});
  return made;
}

LayoutVerdict changed(const std::function<void(LayoutFigures&)>& change) {
  LayoutFigures figures = verdict_verifier().reference().figures;
  change(figures);
  return verdict_verifier().judge({.ranks = 2, .tp = 2}, figures);
}

bool says(const LayoutVerdict& verdict, const std::string& words) {
  return verdict.problem.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("unchanged figures are the same") {
  LayoutVerdict verdict = changed([](LayoutFigures&) {});
  CHECK(verdict.kind == LayoutVerdict::Kind::same);
  CHECK(verdict.share == 0);
}

TEST_CASE("bounds leave rounding room and no more") {
  const LayoutBound& bound = verdict_verifier().reference().bound;
  CHECK(bound.loss_first <= 1e-6);
  CHECK(bound.norm_first <= 2e-5);
  for (const auto& [name, value] : bound.gradient) {
    CAPTURE(name);
    CHECK(value >= 4 * bound.unit_roundoff);
    CHECK(value <= 1e-4);
  }
}

TEST_CASE("a gradient that is a multiple is reported with its probable cause") {
  for (const char* name : {"layers.0.attn.qkv.weight", "layers.1.norm1.weight", "embed.weight"}) {
    CAPTURE(name);
    auto scaled = [&](float factor) {
      return changed([&](LayoutFigures& f) {
        for (float& v : f.gradients.at(name).values) v *= factor;
      });
    };
    LayoutVerdict twice = scaled(2), half = scaled(0.5F), none = scaled(0), little = scaled(1.001F);
    CHECK(says(twice, "it is 2 times that of one rank"));
    CHECK(says(half, "it is 1/2 of that of one rank"));
    CHECK(says(none, "the gradient is lost"));
    CHECK(little.kind == LayoutVerdict::Kind::differs);
    CHECK(twice.worst_gradient == name);
  }
}

TEST_CASE("a few wrong elements among many are found") {
  LayoutVerdict verdict = changed([](LayoutFigures& f) {
    auto& values = f.gradients.at("layers.0.mlp.down.weight").values;
    for (size_t i = 0; i < 8; ++i) values[i] = -values[i];
  });
  CHECK(says(verdict, "layers.0.mlp.down.weight"));
}

TEST_CASE("a gradient that nobody or two ranks count, is missing or strange, is found") {
  CHECK(says(changed([](LayoutFigures& f) { f.gradients.at("embed.weight").given[3] = 2; }),
             "no rank holds 0 elements, and several ranks hold 1 element"));
  CHECK(says(changed([](LayoutFigures& f) { f.gradients.at("embed.weight").given[3] = 0; }),
             "no rank holds 1 element"));
  CHECK(says(changed([](LayoutFigures& f) { f.gradients.erase("embed.weight"); }),
             "embed.weight is missing"));
  CHECK(says(changed([](LayoutFigures& f) { f.gradients["other"]; }),
             "the model on one rank has no parameter other"));
}

TEST_CASE(
    "losses and norms that are off by a ten-thousandth, or no numbers, are found in their step") {
  CHECK(says(changed([](LayoutFigures& f) { f.losses[0] *= 1 + 1e-4; }), "the loss of step 1"));
  CHECK(says(changed([](LayoutFigures& f) { f.losses[3] *= 1 + 1e-3; }), "the loss of step 4"));
  CHECK(says(changed([](LayoutFigures& f) { f.norms[0] *= 1 + 1e-4; }),
             "the gradient norm of step 1"));
  CHECK(says(changed([](LayoutFigures& f) { f.norms[2] = NAN; }), "the gradient norm of step 3"));
  CHECK(says(changed([](LayoutFigures& f) { f.losses.pop_back(); }), "it finished 3 steps of 4"));
}

TEST_CASE("copies that have drifted apart are found") {
  CHECK(says(changed([](LayoutFigures& f) { f.drifted.emplace_back("the copy of x on rank 1"); }),
             "the copy of x on rank 1"));
}

TEST_CASE("the certificate and the table say what was found") {
  LayoutVerdict same = changed([](LayoutFigures&) {}),
                wrong = changed([](LayoutFigures&f) { f.losses[0] *= 2; });
  Recipe recipe = recipe_of(subjects()[0]);
  std::string certificate =
      verify_certificate(recipe, verdict_verifier(), {.ranks = 2, .steps = 4}, {same, wrong});
  CHECK(certificate.find("\"passed\": false") != std::string::npos);
  CHECK(certificate.find("\"dist.tp=2\"") != std::string::npos);
  CHECK(verify_certificate(recipe, verdict_verifier(), {.ranks = 2, .steps = 4}, {same})
            .find("\"passed\": true") != std::string::npos);
  CHECK(verify_table_line(wrong).find("DIFFERS") == 0);
  CHECK(verify_summary(verdict_verifier().layouts(), {same, wrong})
            .find("1 the same within rounding, 1 differ") != std::string::npos);
}

TEST_CASE("a layout is held against as much of the twin as it has use for") {
  auto size = [](const RankLayout& layout) { return twin_size({8, 16}, layout); };
  CHECK(size({.ranks = 8, .tp = 8}) == TwinSize{4, 4});   // two micro-batches of two samples
  CHECK(size({.ranks = 8, .tp = 2}) == TwinSize{4, 16});  // for each of four replicas
  CHECK(size({.ranks = 8}) == TwinSize{4, 16});           // eight replicas: there are no more
  CHECK(size({.ranks = 8, .tp = 4, .pp = 2}) == TwinSize{4, 8});
  CHECK(size({.ranks = 8, .tp = 4, .pp = 2, .vp = 2}) == TwinSize{4, 8});
  CHECK(size({.ranks = 8, .tp = 2, .pp = 4, .vp = 2}) == TwinSize{8, 16});
  CHECK(size({.ranks = 8, .pp = 8}) == TwinSize{8, 16});
  CHECK(twin_size({6, 12}, {.ranks = 6, .tp = 6}) ==
        TwinSize{6, 6});  // three micro-batches are not halved
  for (const RankLayout& layout : verdict_verifier().layouts().valid)
    CHECK(twin_size(verdict_verifier().whole(), layout) == verdict_verifier().whole());
}
