// Host memory for tensors and scratch: aligned, and on huge pages where that helps. The caller owns
// the blocks. Thread-safe.
#pragma once
#include <cstddef>

namespace mtrain::cpu {

/// Bytes of physical memory that are available without swapping, within the limit of the control
/// group.
size_t free_memory();
/// At least `bytes`, aligned to 64; blocks of 4 MiB or more are aligned to 2 MiB and advised to use
/// huge pages. Throws Error(config).
void* allocate_host(size_t bytes);
void deallocate_host(void* data);

}  // namespace mtrain::cpu
