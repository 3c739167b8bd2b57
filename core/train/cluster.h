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
};

/// The machines that a recipe is checked for, where they are not these.
struct Cluster {
  int64_t world_size = 0;  // ranks; 0: not said
  std::string gpu;         // "h200"; empty: not said
};

MT_API std::span<const GpuType> gpu_types();
/// Throws Error(usage) with the nearest name and the list.
MT_API const GpuType& gpu_type(std::string_view name);

}  // namespace mtrain
