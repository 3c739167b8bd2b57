#include "mtrain/tokenize/token_table.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain::tokenize {
namespace {

constexpr uint64_t kOdd = 0x9E3779B97F4A7C15ULL;
constexpr int64_t kAllowedGap = 65536;
constexpr size_t kTogether =
    32;  // texts that are looked up together: about the number of outstanding loads of a core

uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t load(const char* from, size_t size) {
  uint64_t out = 0;
  std::memcpy(&out, from, size);
  return out;
}

}  // namespace

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t h = bytes.size() * kOdd;
  const char* p = bytes.data();
  size_t left = bytes.size();
  for (; left > 8; left -= 8, p += 8) h = mix(h ^ load(p, 8), kOdd ^ 0x632BE59BD9B4E019ULL);
  return mix(h ^ load(p, left), kOdd);
}

TokenTable::TokenTable(size_t expected) {
  size_t slots = 64;
  while (slots < std::min<size_t>(expected, kMaxTokens) * 2) slots *= 2;
  slots_.resize(slots);
  places_.reserve(std::min<size_t>(expected, kMaxTokens));
}

void TokenTable::add(std::string_view text, int64_t id, const std::string& where, bool findable) {
  auto fail = [&](const std::string& what) {
    throw Error(ErrorClass::data, cat(where, ": the token '", printable(text, 60), "' ", what),
                "the tokenizer's file is damaged: fetch it again");
  };
  if (id < 0 || id >= kMaxTokens)
    fail(cat("has the id ", id, "; ids are from 0 to ", kMaxTokens - 1));
  if (text.size() > kMaxTokenBytes)
    fail(cat("is ", text.size(), " bytes long; the limit is ", kMaxTokenBytes));
  if (arena_.size() + text.size() > std::numeric_limits<uint32_t>::max())
    fail("exceeds the limit of 4 GiB for all tokens");
  if (has(id))
    fail(cat("has the id ", id, " of '", printable(this->text(static_cast<int32_t>(id)), 60), "'"));
  const uint64_t hash = findable ? hash_bytes(text) : 0;
  const size_t slot = findable ? slot_of(text, hash) : 0;
  if (findable && slots_[slot].id >= 0)
    fail(cat("appears twice, with the ids ", slots_[slot].id, " and ", id));
  if (id >= size()) places_.resize(static_cast<size_t>(id) + 1);
  places_[static_cast<size_t>(id)] = {static_cast<uint32_t>(arena_.size()),
                                      static_cast<uint32_t>(text.size()), true, findable};
  arena_.append(text);
  ++count_;
  if (!findable) return;
  longest_ = std::max(longest_, text.size());
  if (count_ * 2 > slots_.size())
    grow();  // which also inserts it
  else
    fill(slot, hash, static_cast<int32_t>(id));
}

void TokenTable::check_gaps(const std::string& where) const {
  MT_USER_CHECK(
      size() <= static_cast<int64_t>(count_) * 2 + kAllowedGap, ErrorClass::data,
      cat(where, ": the largest id is ", size() - 1, ", but there are only ", count_, " tokens"),
      "the ids have too many gaps: the file is damaged");
}

size_t TokenTable::slot_of(std::string_view text, uint64_t hash) const {
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  for (; slots_[i].id >= 0; i = (i + 1) & mask)
    if (slots_[i].tag == tag &&
        std::string_view(arena_.data() + slots_[i].begin, slots_[i].size) == text)
      break;
  return i;
}

void TokenTable::fill(size_t slot, uint64_t hash, int32_t id) {
  const Place& place = places_[static_cast<size_t>(id)];
  slots_[slot] = {static_cast<uint32_t>(hash >> 32), id, place.begin, place.size};
}

int32_t TokenTable::find(std::string_view text) const {
  return slots_[slot_of(text, hash_bytes(text))].id;
}

void TokenTable::find_all(std::span<const std::string_view> texts, std::span<int32_t> ids) const {
  MT_CHECK_EQ(texts.size(), ids.size());
  std::array<uint64_t, kTogether> hashes;
  for (size_t begin = 0; begin < texts.size(); begin += kTogether) {
    const size_t count = std::min(kTogether, texts.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = hash_bytes(texts[begin + i]);
      __builtin_prefetch(&slots_[hashes[i] & (slots_.size() - 1)]);
    }
    for (size_t i = 0; i < count; ++i)
      __builtin_prefetch(arena_.data() + slots_[hashes[i] & (slots_.size() - 1)].begin);
    for (size_t i = 0; i < count; ++i)
      ids[begin + i] = slots_[slot_of(texts[begin + i], hashes[i])].id;
  }
}

uint64_t TokenTable::digest() const {
  uint64_t out = kOdd;
  for (size_t id = 0; id < places_.size(); ++id)
    if (places_[id].used) out = mix(out ^ id, kOdd) ^ hash_bytes(text(static_cast<int32_t>(id)));
  return out;
}

void TokenTable::grow() {
  slots_.assign(slots_.size() * 2, {});
  for (size_t id = 0; id < places_.size(); ++id) {
    if (!places_[id].findable) continue;
    const std::string_view text = this->text(static_cast<int32_t>(id));
    const uint64_t hash = hash_bytes(text);
    fill(slot_of(text, hash), hash, static_cast<int32_t>(id));
  }
}

}  // namespace mtrain::tokenize
