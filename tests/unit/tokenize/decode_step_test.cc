// Steps of decoding: the texts of byte tokens.
#include "mtrain/tokenize/decode_step.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace mtrain;
using namespace mtrain::tokenize;

TEST_CASE("a byte token has exactly two hex digits") {
  constexpr char kLower[] = "0123456789abcdef", kUpper[] = "0123456789ABCDEF";
  for (int value = 0; value < 256; ++value) {
    const std::string lower = {'<', '0', 'x', kLower[value / 16], kLower[value % 16], '>'};
    const std::string upper = {'<', '0', 'x', kUpper[value / 16], kUpper[value % 16], '>'};
    CHECK(byte_token_value(lower) == value);
    CHECK(byte_token_value(upper) == value);
  }
  for (const char* other :
       {"", "<0x>", "<0x4>", "<0x041>", "<0x-0>", "<0x-1>", "<0x+1>", "<0x 1>", "<0x1 >", "<0x4g>",
        "<0xg4>", "<0X41>", "<1x41>", "<0x41", "0x41>", "<0x41> ", "[0x41]", "<0x41}"}) {
    CAPTURE(other);
    CHECK(byte_token_value(other) == -1);
  }
}

TEST_CASE("byte fallback joins byte tokens, and keeps texts that only look like them") {
  std::vector<std::string> texts = {"a", "<0xC3>", "<0xA9>", "<0x-0>", "<0x+5>", "<0x41>", "b"};
  decode_byte_fallback()->apply(texts);
  CHECK(texts == std::vector<std::string>{"a", "\u00e9", "<0x-0>", "<0x+5>", "A", "b"});
}
