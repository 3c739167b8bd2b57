// HfTeam: the ranks of a job that write one folder together, or one process alone. It turns the
// failure of one rank into the same error on all. One object per rank, for the rank's thread; the
// methods marked as collective are called by all ranks in the same order. Refers to the
// communicator.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mtrain/comm/communicator.h"

namespace mtrain {

class MT_API HfTeam {
 public:
  /// This process alone.
  HfTeam() = default;
  explicit HfTeam(Communicator& ranks) : ranks_(ranks.size() > 1 ? &ranks : nullptr) {}

  int rank() const { return ranks_ ? ranks_->rank() : 0; }
  int size() const { return ranks_ ? ranks_->size() : 1; }
  /// The rank that creates the folder and writes what is not weights.
  bool first() const { return rank() == 0; }

  /// Collective: every rank runs its `part`, which must not communicate. If it throws on some
  /// ranks, all ranks throw the error of the first of these, which names the rank unless it is the
  /// first of the job.
  void together(const std::function<void()>& part) const;
  /// Collective: the text of the first rank.
  std::string of_first(std::string text) const;
  /// Collective: the value of each rank.
  std::vector<bool> of_each(bool mine) const;

 private:
  std::string broadcast(std::string text, int root) const;

  Communicator* ranks_ = nullptr;  // null: one rank
};

/// Distributes items of these sizes over the ranks that are `able` so that the largest sum is
/// small: the largest item first, each to the rank with the smallest sum so far. Returns the rank
/// of each item. REQUIRES: the first rank is able.
MT_API std::vector<int> balanced(const std::vector<uint64_t>& sizes, const std::vector<bool>& able);

}  // namespace mtrain
