// One message of one rank to another: a header, with small data in it, and larger data in pieces of
// their own. For the rank's own thread.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "work.h"

namespace mtrain::mpi {

class SendWork final : public Work {
 public:
  SendWork(std::shared_ptr<Group> group, const CommCall& call);

 protected:
  bool step() override { return batch_.done(); }
  std::vector<int> missing() const override { return {call_.peer}; }
  void release() noexcept override;

 private:
  std::unique_ptr<std::byte[]> header_;
  Batch batch_;
};

class RecvWork final : public Work {
 public:
  RecvWork(std::shared_ptr<Group> group, const CommCall& call);

 protected:
  bool step() override;
  std::vector<int> missing() const override { return {call_.peer}; }
  void release() noexcept override;

 private:
  std::unique_ptr<std::byte[]> header_;
  Batch arriving_, batch_;
  bool arrived_ = false;
};

}  // namespace mtrain::mpi
