// TokenTable: maps ids to bytes and bytes to ids. Built while a file is read; afterwards const
// members are safe from any thread. Owns all texts.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain::tokenize {

/// Hashes bytes to 64 bits. Not collision-resistant: the tables limit their probes by their size.
MT_API uint64_t hash_bytes(std::string_view bytes);

class MT_API TokenTable {
 public:
  static constexpr size_t kMaxTokenBytes = 64 * 1024;
  static constexpr int64_t kMaxTokens = int64_t{1} << 24;

  /// `expected`: the number of tokens to reserve memory for.
  explicit TokenTable(size_t expected = 0);
  /// Adds a token. Error(data) that names `where` for a duplicate id or text, a negative or huge
  /// id, or a text that is too long. find() never returns a token that is not `findable`.
  void add(std::string_view text, int64_t id, const std::string& where, bool findable = true);
  /// Throws when the ids have large gaps, for which a model's embedding would have rows.
  void check_gaps(const std::string& where) const;

  /// The id of these bytes; -1 when there is none.
  int32_t find(std::string_view text) const;
  /// The same for many texts; prefetches memory, so it is several times as fast.
  void find_all(std::span<const std::string_view> texts, std::span<int32_t> ids) const;
  /// The bytes of an id; empty where the id is not used.
  std::string_view text(int32_t id) const {
    const Place& place = places_[static_cast<size_t>(id)];
    return {arena_.data() + place.begin, place.size};
  }
  bool has(int64_t id) const {
    return id >= 0 && id < size() && places_[static_cast<size_t>(id)].used;
  }
  /// One more than the largest id.
  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  size_t count() const { return count_; }
  size_t longest() const { return longest_; }
  bool findable(int64_t id) const { return has(id) && places_[static_cast<size_t>(id)].findable; }
  /// A hash of all ids and texts.
  uint64_t digest() const;

 private:
  struct Place {
    uint32_t begin = 0, size = 0;
    bool used = false, findable = false;
  };
  /// Repeats the position of the text, so that a lookup does not need `places_`.
  struct Slot {
    uint32_t tag = 0;  // upper bits of the hash
    int32_t id = -1;
    uint32_t begin = 0, size = 0;
  };
  void grow();
  /// The slot of this text, or the free slot for it.
  size_t slot_of(std::string_view text, uint64_t hash) const;
  void fill(size_t slot, uint64_t hash, int32_t id);

  std::string arena_;
  std::vector<Place> places_;
  std::vector<Slot> slots_;  // open addressing; the size is a power of two
  size_t count_ = 0, longest_ = 0;
};

}  // namespace mtrain::tokenize
