// Host memory for tensors and scratch: aligned, and on huge pages where that pays.
#pragma once
#include <cstddef>

namespace mtrain::cpu {

/// Bytes of physical memory that can be had without swapping; the control group's limit counts too.
size_t free_memory();
/// At least `bytes` aligned to 64; from 4 MiB on aligned to 2 MiB and advised for huge pages.
/// Throws Error(config).
void* allocate_host(size_t bytes);
void deallocate_host(void* data);

}  // namespace mtrain::cpu
