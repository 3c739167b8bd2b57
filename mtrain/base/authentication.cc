#include "mtrain/base/authentication.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"

namespace mtrain {

namespace {
constexpr size_t kBlock = 64;  // block size of SHA-256
}  // namespace

Mac hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  std::array<std::byte, kBlock> inner{}, outer{};
  Mac digest_of_key{};
  if (key.size() > kBlock) {
    Sha256 hash;
    hash.update(key);
    digest_of_key = hash.digest();
    key = digest_of_key;
  }
  if (!key.empty()) std::memcpy(inner.data(), key.data(), key.size());
  outer = inner;
  for (std::byte& b : inner) b ^= std::byte{0x36};
  for (std::byte& b : outer) b ^= std::byte{0x5C};
  Sha256 first, second;
  first.update(inner);
  first.update(message);
  second.update(outer);
  second.update(first.digest());
  return second.digest();
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  // Volatile: otherwise the compiler may leave the loop at the first difference.
  volatile std::byte difference{0};
  for (size_t i = 0; i < a.size(); ++i) difference = difference | (a[i] ^ b[i]);
  return difference == std::byte{0};
}

void fill_with_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    MT_USER_CHECK(got > 0, ErrorClass::io,
                  cat("the system provides no random numbers: ", std::strerror(errno)), "");
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

std::string random_hex(size_t bytes) {
  std::vector<std::byte> drawn(bytes);
  fill_with_random(drawn);
  std::string text;
  for (std::byte b : drawn)
    for (int shift : {4, 0}) text += "0123456789abcdef"[(std::to_integer<int>(b) >> shift) & 15];
  return text;
}

}  // namespace mtrain
