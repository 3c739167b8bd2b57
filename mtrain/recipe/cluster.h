// The machines that a recipe is checked for. Values; stateless functions are safe from any thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

/// A type of GPU, with the vendor's published specifications.
struct GpuType {
  const char* name;            // "h100"
  int64_t compute_capability;  // 90 is 9.0
  int64_t memory_gb;           // as sold
  int64_t per_domain;          // GPUs that share one fast interconnect (NVLink)
  double tflops,
      fp8_tflops;  // of dense products in bf16 (before it: fp16) and in FP8, as sold; 0: has none
  double link_gb;  // gigabytes per second from the other GPUs of its domain: NVLink, else PCIe
};

/// The assumed machines, where they differ from this machine.
struct Cluster {
  int64_t world_size = 0;  // ranks; 0: not given
  bool trains = false;     // a run starts here, with dist.nproc ranks if world_size is 0
  std::string gpu;         // "h200"; empty: not given
};

MT_API std::span<const GpuType> gpu_types();
/// Throws Error(usage) with the nearest name and the list.
MT_API const GpuType& gpu_type(std::string_view name);
/// The type of a device with this description, "NVIDIA H200, 139.8 GiB, …"; null: unknown.
MT_API const GpuType* gpu_type_of(std::string_view device);

}  // namespace mtrain
