#include "mtrain/base/authentication.h"

#include <doctest/doctest.h>

#include <set>

#include "mtrain/base/hash.h"

namespace mtrain {
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string hex_of_mac(const Mac& mac) {
  std::string text;
  for (std::byte b : mac)
    for (int shift : {4, 0}) text += "0123456789abcdef"[(std::to_integer<int>(b) >> shift) & 15];
  return text;
}

TEST_CASE("HMAC-SHA256 gives the values of RFC 4231") {
  CHECK(hex_of_mac(hmac_sha256(bytes(std::string(20, '\x0b')), bytes("Hi There"))) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex_of_mac(hmac_sha256(bytes("Jefe"), bytes("what do ya want for nothing?"))) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hex_of_mac(hmac_sha256(bytes(std::string(20, '\xaa')), bytes(std::string(50, '\xdd')))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hex_of_mac(hmac_sha256(bytes(std::string(131, '\xaa')),
                               bytes("Test Using Larger Than Block-Size Key - Hash Key First"))) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("a digest is the bytes of its hex digits") {
  Sha256 digest;
  digest.update("abc");
  CHECK(hex_of_mac(digest.digest()) == sha256("abc"));
}

TEST_CASE("bytes are the same when all are, and as many") {
  CHECK(same_bytes(bytes(""), bytes("")));
  CHECK(same_bytes(bytes("secret"), bytes("secret")));
  CHECK_FALSE(same_bytes(bytes("secret"), bytes("secreT")));
  CHECK_FALSE(same_bytes(bytes("Secret"), bytes("secret")));
  CHECK_FALSE(same_bytes(bytes("secret"), bytes("secrets")));
}

TEST_CASE("random bytes differ") {
  std::set<std::string> drawn;
  for (int i = 0; i < 100; ++i) drawn.insert(random_hex(16));
  CHECK(drawn.size() == 100);
  CHECK(drawn.begin()->size() == 32);
}

}  // namespace
}  // namespace mtrain
