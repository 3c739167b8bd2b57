#include "mtrain/train/profiling.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "mtrain/cpu/cpu_backend.h"

using namespace mtrain;

namespace {

void multiply(ExecutionContext& ctx, int64_t m, int64_t n, int64_t k) {
  Tensor a = ctx.zeros({m, k}, DType::f32), b = ctx.zeros({k, n}, DType::f32),
         c = ctx.empty({m, n}, DType::f32);
  ctx.kernels().gemm(ctx.stream(), {.a = a.raw(),
                                    .b = b.raw(),
                                    .c = c.raw(),
                                    .m = m,
                                    .n = n,
                                    .k = k,
                                    .lda = k,
                                    .ldb = n,
                                    .ldc = n});
}

void sum(ExecutionContext& ctx, int64_t count) {
  Tensor a = ctx.zeros({count}, DType::f32);
  ctx.kernels().add(
      ctx.stream(),
      {.a = a.raw(), .b = a.raw(), .y = a.raw(), .count = count, .dtype = DType::f32});
}

}  // namespace

TEST_CASE("a profile sees the calls made while it is set, with their work, inside their phase") {
  auto backend = make_cpu_backend(1);
  ExecutionContext ctx(*backend);
  Profile profile(backend->kernels());
  sum(ctx, 8);
  ctx.set_profile(&profile);
  {
    PhaseTimer timer(ctx.profile(), "forward");
    multiply(ctx, 3, 5, 7);
    sum(ctx, 11);
  }
  ctx.set_profile(nullptr);
  sum(ctx, 8);
  REQUIRE(profile.events().size() == 3);
  const ProfileEvent &product = profile.events()[0], &added = profile.events()[1],
                     &phase = profile.events()[2];
  CHECK(product.name == "gemm");
  CHECK(product.shape == "3x5x7 NN fp32");
  CHECK(product.work.flops == 2 * 3 * 5 * 7);
  CHECK(product.work.bytes == 4 * (3 * 7 + 7 * 5 + 3 * 5));
  CHECK(added.name == "add");
  CHECK(added.work.bytes == 3 * 4 * 11);
  CHECK(phase.phase);
  CHECK(phase.name == "forward");
  CHECK(product.start >= phase.start);
  CHECK(added.start >= product.start + product.seconds);
  CHECK(phase.start + phase.seconds >= added.start + added.seconds);
}

TEST_CASE("a summary adds up the calls of a kernel and names the kernel that loses most") {
  auto backend = make_cpu_backend(1);
  Profile profile(backend->kernels());
  Roofline roofline{1e9, 1e9};
  for (int step = 0; step < 2; ++step) {
    profile.add({"forward", "", {}, 0, 1, true});
    for (int i = 0; i < 3; ++i)
      profile.add({"gemm", "large", {1e8, 1e6}, 0, 0.11, false});  // 10 % off
    profile.add({"add", "small", {1e3, 1e7}, 0, 0.1, false});      // ten times too slow
  }
  ProfileSummary s = summarise(profile, {0.6, 0.5, 0.4}, roofline);
  CHECK(s.step_seconds == 0.5);
  s = summarise(profile, {0.6, 0.5}, roofline);
  REQUIRE(s.uses.size() == 2);
  CHECK(s.uses[0].kernel == "gemm");
  CHECK(s.uses[0].calls == doctest::Approx(3));
  CHECK(s.uses[0].seconds == doctest::Approx(0.33));
  CHECK(s.uses[0].least(roofline) == doctest::Approx(0.3));
  CHECK(s.uses[1].least(roofline) == doctest::Approx(0.01));
  CHECK(s.kernel_seconds == doctest::Approx(0.43));
  REQUIRE(s.furthest() != nullptr);
  CHECK(s.furthest()->kernel == "add");
  CHECK(to_text(s).find("largest time above the roofline: add small, 90.00 of its 100.00 ms") !=
        std::string::npos);
  CHECK(to_text(s, 1).find("other kernels") != std::string::npos);
}

TEST_CASE("a trace is JSON that a browser's viewer reads") {
  auto backend = make_cpu_backend(1);
  ExecutionContext ctx(*backend);
  Profile profile(backend->kernels());
  ctx.set_profile(&profile);
  {
    PhaseTimer timer(ctx.profile(), "backward");
    multiply(ctx, 2, 2, 2);
  }
  auto trace = nlohmann::json::parse(to_trace(profile, "a \"name\""));
  int kernels = 0, phases = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    CHECK(event["dur"].get<double>() >= 0);
    CHECK(event["ts"].get<double>() >= 0);
    kernels += event["tid"] == 1;
    phases += event["tid"] == 0;
  }
  CHECK(kernels == 1);
  CHECK(phases == 1);
}

TEST_CASE("the roofline of this machine is measured") {
  auto backend = make_cpu_backend(0);
  ExecutionContext ctx(*backend);
  Roofline roofline = measure_roofline(ctx, DType::f32);
  CHECK(roofline.flops > 1e8);
  CHECK(roofline.bandwidth > 1e8);
}
