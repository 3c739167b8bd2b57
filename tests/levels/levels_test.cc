// A short training at every level of CPU kernels learns what the plainest level learns: all of them
// compute the same sums, in another order.
#include "training_run.h"

namespace mtrain::testing {
namespace {

constexpr const char* kLevels[] = {"v3", "v4", "v4_bf16", "v4_amx"};  // besides base

/// The losses of a training at a level; none where neither this CPU nor the emulator has the level.
std::vector<double> losses(const Scratch& scratch, const std::string& level,
                           const std::string& dtype) {
  std::string recipe = scratch.write("recipe.yaml", tiny_recipe());
  auto folder = scratch / (level + "-" + dtype);
  Outcome out = run({.arguments = {MT_AT_LEVEL, mtrain_binary(), level, MT_EMULATOR,
                                   mtrain_binary(), recipe, "-q", "run.dir=" + folder.string(),
                                   "train.steps=12", "mixed_precision.dtype=" + dtype}});
  if (out.status == 77) {
    MESSAGE(out.out);
    return {};
  }
  REQUIRE_MESSAGE(out.status == 0, level, ", ", dtype, ": ", out.err);
  std::vector<double> found;
  for (const Json& row : rows(folder, "grad_norm")) found.push_back(row.at("loss").get<double>());
  REQUIRE(found.size() == 12);
  return found;
}

/// The largest relative distance of two curves.
double apart(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::fabs(a[i] / b[i] - 1));
  return worst;
}

void compare_levels(const std::string& dtype, double allowed) {
  Scratch scratch("levels");
  std::vector<double> plain = losses(scratch, "base", dtype);
  CHECK(plain.back() < plain.front());  // it learns
  for (const char* level : kLevels) {
    std::vector<double> found = losses(scratch, level, dtype);
    if (found.empty()) continue;
    CHECK_MESSAGE(apart(found, plain) < allowed, level, " in ", dtype, " is ", apart(found, plain),
                  " from base");
  }
}

}  // namespace

TEST_CASE("every level learns the same in fp32") { compare_levels("fp32", 1e-5); }
TEST_CASE("every level learns the same in bf16") { compare_levels("bf16", 4e-3); }
TEST_CASE("every level learns the same in fp16") { compare_levels("fp16", 1e-3); }

TEST_CASE("a cap that is no level ends a run before it begins") {
  Scratch scratch("levels");
  std::string recipe = scratch.write("recipe.yaml", tiny_recipe());
  Outcome out = cli({recipe, "run.dir=" + (scratch / "run").string()}, {"MTRAIN_ISA=avx9"});
  CHECK(out.status == 2);
  CHECK_MESSAGE(
      out.err.find("MTRAIN_ISA=avx9: this build has no level 'avx9'") != std::string::npos,
      out.err);
  CHECK(out.err.find("base") != std::string::npos);
}

TEST_CASE("doctor names the cap") {
  Outcome out = cli({"doctor"}, {"MTRAIN_ISA=base"});
  CHECK_MESSAGE(out.out.find("kernels of level base, as MTRAIN_ISA=base says") != std::string::npos,
                out.out, out.err);
}

}  // namespace mtrain::testing
