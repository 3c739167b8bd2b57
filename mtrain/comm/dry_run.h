// A communicator for planning: one rank of a job whose other ranks do not exist. Its calls return
// at once and move nothing, so buffers keep their content; groups have the same sizes as in a real
// job. For one thread.
#pragma once
#include <memory>
#include <vector>

#include "mtrain/comm/communicator.h"

namespace mtrain {

class MT_API DryRunCommunicator final : public Communicator {
 public:
  DryRunCommunicator(int rank, int size, std::string name = "world");

  using Communicator::abort;
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view kind() const override { return "planned"; }
  const std::string& name() const override { return name_; }
  std::span<const int> world_ranks() const override { return ranks_; }
  void abort(std::string_view, ErrorClass) noexcept override {}
  /// A subgroup of the given size in which this rank has the given rank. It replaces split(), which
  /// cannot know the colors and keys of the other ranks.
  std::unique_ptr<Communicator> group(int rank, int size, std::string name) const;

 protected:
  void require_alive(const CommCall&) const override {}
  Pending start(const CommCall&) override { return {}; }
  std::unique_ptr<Communicator> make_split(const CommCall& call, std::string name) override;

 private:
  int rank_, size_;
  std::string name_;
  std::vector<int> ranks_;
};

}  // namespace mtrain
