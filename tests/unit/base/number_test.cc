#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "mtrain/base/checked.h"
#include "mtrain/base/float16.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/rng.h"
#include "mtrain/base/shape.h"

using namespace mtrain;

TEST_CASE("every bf16 and f16 survives the way to float and back") {
  for (uint32_t u = 0; u < 65536; ++u) {
    bf16 b;
    b.bits = static_cast<uint16_t>(u);
    f16 h;
    h.bits = static_cast<uint16_t>(u);
    if (!std::isnan(to_float(b)))
      CHECK(bf16(to_float(b)).bits == b.bits);
    else
      CHECK(std::isnan(to_float(bf16(to_float(b)))));
    if (!std::isnan(to_float(h)))
      CHECK(f16(to_float(h)).bits == h.bits);
    else
      CHECK(std::isnan(to_float(f16(to_float(h)))));
  }
}

TEST_CASE("rounding is to nearest, ties to even") {
  CHECK(to_float(bf16(1.00390625f)) == 1.0f);       // 1 + 2^-8: a tie, even below
  CHECK(to_float(bf16(1.01171875f)) == 1.015625f);  // 1 + 3*2^-8: a tie, even above
  CHECK(to_float(f16(1.00048828125f)) == 1.0f);     // 1 + 2^-11: a tie
  CHECK(to_float(f16(65519.0f)) == 65504.0f);
  CHECK(std::isinf(to_float(f16(65520.0f))));
  CHECK(to_float(f16(0x1p-25f)) == 0.0f);  // half of the smallest subnormal: ties to zero
  CHECK(to_float(f16(0x1.8p-25f)) == 0x1p-24f);
}

TEST_CASE("checked arithmetic refuses to wrap") {
  CHECK((Checked<uint64_t>(3) * 4 + 5).equals(17));
  CHECK_FALSE((Checked<uint64_t>(1ull << 63) * 2).valid());
  CHECK_FALSE((Checked<int64_t>(std::numeric_limits<int64_t>::max()) + 1).valid());
  CHECK_FALSE(checked_cast<int32_t>(int64_t{1} << 40).has_value());
}

TEST_CASE("checksums equal the published check values") {
  std::string_view digits = "123456789";
  CHECK(crc32c(std::as_bytes(std::span(digits.data(), digits.size()))) == 0xE3069283u);
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("CRC-32C is the same in one piece and byte by byte") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i * 11);
  auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  for (size_t length = 0; length <= bytes.size(); ++length) {
    uint32_t crc = 0;
    for (size_t i = 0; i < length; ++i) crc = crc32c(bytes.subspan(i, 1), crc);
    CHECK(crc32c(bytes.first(length)) == crc);
  }
}

TEST_CASE("SHA-256 is the same with and without the CPU's instructions, however it is fed") {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7 + i / 256);
  for (size_t length : {0, 1, 55, 56, 63, 64, 65, 119, 120, 127, 128, 129, 1000}) {
    std::string_view part(text.data(), length);
    Sha256 portable(false), pieces;
    portable.update(part);
    for (size_t at = 0; at < length; at += 37) pieces.update(part.substr(at, 37));
    std::string expected = portable.hex();
    CHECK(sha256(part) == expected);
    CHECK(pieces.hex() == expected);
  }
}

TEST_CASE("philox equals the authors' known answers") {
  CHECK(philox(0, 0, 0) == std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  uint64_t ones = ~uint64_t{0};
  CHECK(philox(ones, ones, ones) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull) ==
        std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("normal draws have the moments of a normal") {
  RngStream stream(42, "weights");
  double sum = 0, squares = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    double x = stream.normal(static_cast<uint64_t>(i));
    sum += x, squares += x * x;
  }
  CHECK(std::abs(sum / kDraws) < 0.01);
  CHECK(std::abs(squares / kDraws - 1) < 0.02);
}

TEST_CASE("shape counts from both ends") {
  Shape s{2, 3, 4};
  CHECK(s.numel() == 24);
  CHECK(s[-1] == 4);
  CHECK(cat(s) == "[2, 3, 4]");
  CHECK_THROWS(s[3]);
}
