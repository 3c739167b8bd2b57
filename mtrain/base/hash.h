// Checksums: CRC-32C (Castagnoli, RFC 3720) for speed, SHA-256 (FIPS 180-4) for identity. The
// functions are stateless and thread-safe; a Sha256 object is for one thread at a time.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

/// CRC-32C of `data`, continuing from `crc` (0 to start). Uses the CPU's CRC instruction if it has
/// one.
MT_API uint32_t crc32c(std::span<const std::byte> data, uint32_t crc = 0);

class MT_API Sha256 {
 public:
  /// Uses the CPU's SHA instructions if it has them and `use_instructions` is true.
  explicit Sha256(bool use_instructions = true);
  void update(std::span<const std::byte> data);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Finishes, and returns 32 bytes (digest) or 64 lower-case hex digits (hex). REQUIRES: exactly
  /// one call of either.
  std::array<std::byte, 32> digest();
  std::string hex();

 private:
  void block(const uint8_t* data);
  void blocks(const uint8_t* data, size_t count);
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> buffer_{};
  uint64_t length_ = 0;
  bool use_instructions_;
};

/// SHA-256 of `data` as 64 lower-case hex digits.
MT_API std::string sha256(std::span<const std::byte> data);
inline std::string sha256(std::string_view text) {
  return sha256(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace mtrain
