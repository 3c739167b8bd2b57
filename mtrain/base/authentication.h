// What processes that share a secret prove it with, over a connection that strangers can reach too:
// random bytes of the system, HMAC-SHA256 (RFC 2104), and a comparison whose time says nothing.
// Stateless; thread-safe.
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

using Mac = std::array<std::byte, 32>;

/// Of `message`, under `key` of any length.
MT_API Mac hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);
/// Whether both are the same; takes as long for any contents of one length.
MT_API bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b);
/// Nobody can guess them. Throws Error(io) when the system has none.
MT_API void fill_with_random(std::span<std::byte> bytes);
/// So many random bytes as lower-case hex digits.
MT_API std::string random_hex(size_t bytes);

}  // namespace mtrain
