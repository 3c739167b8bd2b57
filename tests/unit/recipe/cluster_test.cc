#include "mtrain/recipe/cluster.h"

#include <doctest/doctest.h>

#include "mtrain/base/error.h"

namespace mtrain {

TEST_CASE("the name of a GPU may be written in capitals") {
  CHECK(gpu_type("H100").name == gpu_type("h100").name);
  CHECK_THROWS_AS(gpu_type("H10"), Error);
}

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

}  // namespace mtrain
