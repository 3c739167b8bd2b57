// The machines a recipe is meant for. Values.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

/// What a type of GPU can do, from its maker's published specifications.
struct GpuType {
  const char* name;            // "h100"
  int64_t compute_capability;  // 90 is 9.0
  int64_t memory_gb;           // as sold
  int64_t per_domain;          // GPUs that share one fast interconnect (NVLink)
  double tflops,
      fp8_tflops;  // of dense products in bf16 (before it: fp16) and in FP8, as sold; 0: has none
};

/// The machines that a recipe is checked for, where they are not these.
struct Cluster {
  int64_t world_size = 0;  // ranks; 0: not said
  bool trains = false;     // a run begins here, with dist.nproc ranks where world_size does not say
  std::string gpu;         // "h200"; empty: not said
};

MT_API std::span<const GpuType> gpu_types();
/// Throws Error(usage) with the nearest name and the list.
MT_API const GpuType& gpu_type(std::string_view name);
/// The type of a device that calls itself so, "NVIDIA H200, 139.8 GiB, …"; null: none of them.
MT_API const GpuType* gpu_type_of(std::string_view device);

}  // namespace mtrain
