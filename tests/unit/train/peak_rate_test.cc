#include "mtrain/train/peak_rate.h"

#include <doctest/doctest.h>

#include "mtrain/cpu/cpu_backend.h"

namespace mtrain {

TEST_CASE("the rate that a run's use is a share of: the recipe's, the type's, or measured") {
  auto backend = make_cpu_backend(1);
  Settings s;
  s.mixed_precision.dtype = "bf16";
  CHECK(peak_rate(s, "NVIDIA H200, 139.8 GiB", *backend).flops == 989e12);
  s.mixed_precision.fp8 = "hybrid";
  CHECK(peak_rate(s, "NVIDIA H200, 139.8 GiB", *backend).flops == 1979e12);
  CHECK(peak_rate(s, "NVIDIA A100-SXM4-80GB", *backend).flops ==
        312e12);  // which has no unit for it
  s.profiling.peak_tflops = 12.5;
  PeakRate said = peak_rate(s, "NVIDIA H200, 139.8 GiB", *backend);
  CHECK(said.flops == 12.5e12);
  CHECK(said.source.find("profiling.peak_tflops") != std::string::npos);
  s = {};
  PeakRate measured = peak_rate(s, "cpu", *backend);
  CHECK(measured.flops > 1e8);
  CHECK(measured.source.find("measured") != std::string::npos);
  const double peak = measured.flops;
  CHECK(measured.share(peak / 2) == 0.5);
  // A faster step than the measured product: its share is as computed, and the shares of later
  // steps have the same base.
  CHECK(measured.share(2 * peak) == 2);
  CHECK(measured.share(peak) == 1);
  CHECK(measured.flops == peak);
  CHECK(said.share(25e12) == 2);  // the user's number is the user's
}

}  // namespace mtrain
