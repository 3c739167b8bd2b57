#include "mtrain/train/cluster.h"

#include <doctest/doctest.h>

#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/train/session.h"

namespace mtrain {

TEST_CASE("what a device calls itself gives its type") {
  struct Case {
    const char *device, *type;
  };
  for (Case c : {Case{"NVIDIA H200, 139.8 GiB, compute capability 9.0", "h200"},
                 {"NVIDIA GH200 480GB, 94.5 GiB", "gh200"},
                 {"NVIDIA H100 80GB HBM3", "h100"},
                 {"NVIDIA A100-SXM4-80GB", "a100"},
                 {"NVIDIA GeForce RTX 4090", "rtx4090"},
                 {"NVIDIA B200", "b200"},
                 {"NVIDIA L40S", "l40s"},
                 {"Tesla V100-SXM2-32GB", "v100"},
                 {"NVIDIA L4", nullptr},
                 {"Tesla T4, a H200's neighbour", nullptr},
                 {"cpu", nullptr}}) {
    CAPTURE(c.device);
    const GpuType* type = gpu_type_of(c.device);
    CHECK((type ? std::string(type->name) : "none") == (c.type ? c.type : "none"));
  }
}

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
  const double roof = measured.flops;
  CHECK(measured.share(roof / 2) == 0.5);
  CHECK(measured.share(2 * roof) == 1);  // which shows that the measurement was too low
  CHECK(measured.share(roof) == 0.5);
  CHECK(said.share(25e12) == 2);  // the user's number is the user's
}

}  // namespace mtrain
