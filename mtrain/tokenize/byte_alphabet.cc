#include "mtrain/tokenize/byte_alphabet.h"

#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {
namespace {

constexpr char32_t kFirstStandIn = 0x100, kStandIns = 68;

struct Alphabet {
  std::array<char32_t, 256> chars{};
  std::array<int16_t, kFirstStandIn + kStandIns> bytes{};
  Alphabet() {
    bytes.fill(-1);
    char32_t next = kFirstStandIn;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t c = printable ? static_cast<char32_t>(b) : next++;
      chars[static_cast<size_t>(b)] = c;
      bytes[c] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet;
  return kAlphabet;
}

}  // namespace

const std::array<char32_t, 256>& byte_chars() { return alphabet().chars; }

int byte_of_char(char32_t c) { return c < alphabet().bytes.size() ? alphabet().bytes[c] : -1; }

bool chars_to_bytes(std::string_view chars, std::string& out) {
  const size_t before = out.size();
  for (size_t at = 0; at < chars.size();) {
    auto c = decode_char(chars, at);
    const int byte = byte_of_char(c.value);
    if (byte < 0) return out.resize(before), false;
    out += static_cast<char>(static_cast<unsigned char>(byte));
    at += c.bytes;
  }
  return true;
}

std::string bytes_to_chars(std::string_view bytes) {
  std::string out;
  for (char b : bytes) append_utf8(out, byte_chars()[static_cast<unsigned char>(b)]);
  return out;
}

}  // namespace mtrain::tokenize
