// Authentication of processes that share a secret, over a connection that others can also reach:
// random bytes from the system, HMAC-SHA256 (RFC 2104) and a constant-time comparison. Stateless;
// thread-safe.
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

using Mac = std::array<std::byte, 32>;

/// HMAC-SHA256 of `message` under `key`, which may have any length.
MT_API Mac hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);
/// True when both spans are equal. The time depends only on their lengths, not on their contents.
MT_API bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b);
/// Fills `bytes` with cryptographically secure random bytes. Throws Error(io) when the system has
/// none.
MT_API void fill_with_random(std::span<std::byte> bytes);
/// Returns `bytes` random bytes as lower-case hex digits (two digits per byte).
MT_API std::string random_hex(size_t bytes);

}  // namespace mtrain
