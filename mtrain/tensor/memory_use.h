// Purposes of device memory. The allocator counts each block under the purpose that was set when
// the block was allocated. Value types.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

enum class MemoryUse : uint8_t {
  parameters,   // master weights and compute copies
  gradients,    // main gradients
  optimizer,    // optimizer state, such as moments
  activations,  // activations saved for backward, and temporaries of forward
  backward,     // gradients of activations, recomputed activations, temporaries of backward
  other,        // batches, tables
};
inline constexpr size_t kMemoryUses = 6;

MT_API std::string_view name(MemoryUse use);

/// Bytes by purpose.
struct MT_API MemoryBreakdown {
  std::array<size_t, kMemoryUses> bytes{};
  size_t& operator[](MemoryUse use) { return bytes[static_cast<size_t>(use)]; }
  size_t operator[](MemoryUse use) const { return bytes[static_cast<size_t>(use)]; }
  size_t total() const;
  /// "parameters 712.0 MiB, gradients 475.0 MiB, …", largest first, without empty entries.
  std::string text() const;
};

/// Settings that reduce the memory that is held, the most effective first.
MT_API std::string memory_advice(const MemoryBreakdown& held);

}  // namespace mtrain
