#include "mtrain/tokenize/charsmap.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {
namespace {

// A unit of the trie: the low 8 bits and the top bit are the label; bit 8 is set if a key ends at a
// child; bits 10 to 30 are the offset to the children, in steps of 256 if bit 9 is set. A value has
// the top bit set.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }

constexpr size_t kGraphemeBytes =
    6;  // Hugging Face looks up grapheme clusters below this size as a whole

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}

  void apply(AlignedText& text) const override {
    std::vector<CharChange> changes;
    bool changed = false;
    const std::string_view in = text.text;
    auto rule = [&](std::string_view part) {
      auto match = map_.shortest(part);
      if (!match) return false;
      changed = true;
      substitute(part, match->replacement, changes);
      return true;
    };
    for (size_t at = 0; at < in.size();) {
      const size_t end = cluster_end(in, at);
      if (end - at < kGraphemeBytes && rule(in.substr(at, end - at))) {
        at = end;
        continue;
      }
      while (at < end) {
        const auto c = decode_char(in, at);
        if (!rule(in.substr(at, c.bytes))) changes.push_back({c.value, 0});
        at += c.bytes;
      }
    }
    if (changed) transform(text, changes);
  }

 private:
  static size_t cluster_end(std::string_view in, size_t at) {
    const bool ascii = at + 1 < in.size() && static_cast<signed char>(in[at]) >= 0 &&
                       static_cast<signed char>(in[at + 1]) >= 0 && in[at] != '\r';
    return ascii ? at + 1 : grapheme_end(in, at);
  }

  static void substitute(std::string_view before, std::string_view after,
                         std::vector<CharChange>& changes) {
    const auto surplus =
        static_cast<int>(count_chars(after)) - static_cast<int>(count_chars(before));
    for (size_t at = 0; at < after.size();) {
      const auto c = decode_char(after, at);
      changes.push_back({c.value, 0});
      at += c.bytes;
    }
    for (int i = 0; i < surplus; ++i)
      changes[changes.size() - 1 - static_cast<size_t>(i)].change = 1;
    if (surplus < 0 && !changes.empty()) changes.back().change += surplus;
  }

  Charsmap map_;
};

}  // namespace

Charsmap::Charsmap(std::string_view blob, const std::string& where) {
  static_assert(std::endian::native == std::endian::little, "the blob is little-endian");
  auto check = [&](bool good, const char* what) {
    MT_USER_CHECK(good, ErrorClass::data,
                  cat(where, ": the precompiled normalization rules are damaged: ", what),
                  "fetch the tokenizer's file again");
  };
  uint32_t trie_bytes = 0;
  check(blob.size() >= 4, "they are truncated");
  std::memcpy(&trie_bytes, blob.data(), 4);
  check(trie_bytes % 4 == 0 && trie_bytes <= blob.size() - 4, "the size of the trie is wrong");
  units_.resize(trie_bytes / 4);
  std::copy_n(blob.data() + 4, trie_bytes,
              reinterpret_cast<char*>(units_.data()));  // the size may be 0
  strings_ = blob.substr(4 + trie_bytes);
  check(strings_.empty() || strings_.back() == '\0', "the last replacement is not terminated");
  check(valid_utf8(strings_), "a replacement is not UTF-8");
  check(!units_.empty() || strings_.empty(), "there is no trie");
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view text, bool longest) const {
  std::optional<Match> out;
  if (units_.empty()) return out;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) return out;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit) || node >= units_.size()) continue;
    const uint32_t begin = value_of(units_[node]);
    if (begin >= strings_.size()) continue;  // a damaged value replaces nothing
    // Only whole characters are replaced, even if the trie is wrong.
    if (i + 1 < text.size() && is_tail_byte(text[i + 1])) continue;
    out = {i + 1, strings_.c_str() + begin};
    if (!longest) return out;
  }
  return out;
}

NormalizerPtr precompiled(Charsmap map) { return std::make_unique<Precompiled>(std::move(map)); }

std::string decode_base64(std::string_view text, const std::string& where) {
  static constexpr auto kValues = [] {
    std::array<int8_t, 256> out{};
    for (auto& v : out) v = -1;
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < kDigits.size(); ++i)
      out[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
    return out;
  }();
  std::string out;
  out.reserve(text.size() / 4 * 3);
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  uint32_t bits = 0;
  int count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int value = kValues[static_cast<unsigned char>(text[i])];
    MT_USER_CHECK(value >= 0, ErrorClass::data,
                  cat(where, ": invalid base64 at character ", i, " of a value"),
                  "the tokenizer's file is damaged: fetch it again");
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(static_cast<unsigned char>(bits >> count));
  }
  return out;
}

}  // namespace mtrain::tokenize
