// What device memory is held for. A run's allocator counts each block under the use that was set
// when it was taken. Stateless.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

enum class MemoryUse : uint8_t {
  parameters,   // masters and compute copies
  gradients,    // main gradients
  optimizer,    // moments
  activations,  // what forward leaves for backward, and its temporaries
  backward,     // gradients of activations, what is computed again, temporaries
  other,        // batches, tables
};
inline constexpr size_t kMemoryUses = 6;

MT_API std::string_view name(MemoryUse use);

/// Bytes by use.
struct MT_API MemoryBreakdown {
  std::array<size_t, kMemoryUses> bytes{};
  size_t& operator[](MemoryUse use) { return bytes[static_cast<size_t>(use)]; }
  size_t operator[](MemoryUse use) const { return bytes[static_cast<size_t>(use)]; }
  size_t total() const;
  /// "parameters 712.0 MiB, gradients 475.0 MiB, …", largest first, without what holds nothing.
  std::string text() const;
};

/// Which settings make what is held smaller, the most promising first.
MT_API std::string memory_advice(const MemoryBreakdown& held);

}  // namespace mtrain
