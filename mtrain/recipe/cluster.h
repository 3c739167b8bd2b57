// The machines for which a recipe is checked. Values; stateless functions are safe from any thread.
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
  int64_t memory_gb;           // nominal
  int64_t per_domain;          // GPUs that share one fast interconnect (NVLink)
  double tflops,
      fp8_tflops;  // peak rates of dense matrix products in bf16 (fp16 on older GPUs) and in FP8,
                   // from the data sheet; 0: not supported
  double link_gb;  // GB/s in one direction, from the other GPUs of its domain: NVLink, else PCIe
};

/// The machines for which a recipe is checked; default: this machine.
struct Cluster {
  int64_t world_size = 0;  // ranks; 0: not given
  bool starts_run =
      false;        // true: a run starts on this machine, with dist.nproc ranks if world_size is 0
  std::string gpu;  // "h200"; empty: not given
};

MT_API std::span<const GpuType> gpu_types();
/// Throws Error(usage) with the nearest name and the list.
MT_API const GpuType& gpu_type(std::string_view name);
/// The type of a device with this description, "NVIDIA H200, 139.8 GiB, …"; null: unknown.
MT_API const GpuType* gpu_type_of(std::string_view device);

}  // namespace mtrain
