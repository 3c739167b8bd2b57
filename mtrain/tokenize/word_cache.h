// WordCache: the tokens of recent words, in tables of fixed size. A lookup takes a few nanoseconds;
// a new entry replaces an old one. Not synchronised: one thread at a time (see WordEncoder).
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace mtrain::tokenize {

class WordCache {
 public:
  static constexpr size_t kShortBytes = 15, kShortIds = 3, kLongBytes = 46, kLongIds = 11;

  WordCache() : short_(kShortSets * 2), long_(kLongSlots) {}

  /// A short word as two numbers, with its size in the highest byte. `text_end`: bytes before it
  /// may be read.
  struct Key {
    uint64_t low, high;
    friend bool operator==(const Key&, const Key&) = default;
  };
  static Key key_of(std::string_view word, const char* text_end) {
    std::array<uint64_t, 2> bytes{};
    if (text_end - word.data() >= 16) {
      std::memcpy(bytes.data(), word.data(), 16);
      const size_t bits = word.size() * 8;
      if (word.size() <= 8) {
        bytes[0] = bits == 0 ? 0 : bytes[0] & (~uint64_t{0} >> (64 - bits));
        bytes[1] = 0;
      } else {
        bytes[1] &= ~uint64_t{0} >> (128 - bits);
      }
    } else {
      std::memcpy(bytes.data(), word.data(), word.size());
    }
    return {bytes[0], bytes[1] | static_cast<uint64_t>(word.size()) << 56};
  }

  struct ShortEntry {
    Key key{0, 0};  // no word has the size 0
    std::array<int32_t, kShortIds> ids{};
    uint32_t count = 0;
  };
  /// Null when absent. REQUIRES: the word has 1 to kShortBytes bytes.
  const ShortEntry* find_short(const Key& key) const {
    const ShortEntry* set = &short_[set_of(key)];
    return set[0].key == key ? set : set[1].key == key ? set + 1 : nullptr;
  }
  void insert_short(const Key& key, std::span<const int32_t> ids) {
    ShortEntry* set = &short_[set_of(key)];
    set[1] = set[0];
    set[0].key = key;
    set[0].count = static_cast<uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), set[0].ids.begin());
  }

  struct LongEntry {
    std::array<int32_t, kLongIds> ids{};
    uint8_t count = 0, size = 0;  // size 0: empty
    std::array<char, kLongBytes> word{};
  };
  /// The slot of a word of up to kLongBytes bytes; `same` returns whether it holds the word.
  LongEntry& find_long(std::string_view word, uint64_t hash, bool& same) {
    LongEntry& entry = long_[hash & (kLongSlots - 1)];
    same =
        entry.size == word.size() && std::memcmp(entry.word.data(), word.data(), word.size()) == 0;
    return entry;
  }
  static void store(LongEntry& entry, std::string_view word, std::span<const int32_t> ids) {
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
    std::copy(word.begin(), word.end(), entry.word.begin());
    entry.count = static_cast<uint8_t>(ids.size());
    entry.size = static_cast<uint8_t>(word.size());
  }

 private:
  static constexpr size_t kShortSets = size_t{1} << 15, kLongSlots = size_t{1} << 12;
  static size_t set_of(const Key& key) {
    const auto product = static_cast<unsigned __int128>(key.low ^ 0x9E3779B97F4A7C15ULL) *
                         (key.high ^ 0xD6E8FEB86659FD93ULL);
    const auto mixed = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
    return (mixed & (kShortSets - 1)) * 2;
  }

  std::vector<ShortEntry> short_;
  std::vector<LongEntry> long_;
};

}  // namespace mtrain::tokenize
