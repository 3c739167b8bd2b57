// SendCall, RecvCall: one message between two ranks: a header, which contains small data; larger
// data follow in separate pieces. For the rank's own thread.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "mtrain/message_comm/started_call.h"

namespace mtrain::message_comm {

class SendCall final : public StartedCall {
 public:
  SendCall(std::shared_ptr<Group> group, const CommCall& call);

 protected:
  bool step() override { return batch_.done(); }
  std::vector<int> missing() override { return {call_.peer}; }
  void release() noexcept override;

 private:
  std::unique_ptr<std::byte[]> header_;
  Batch batch_;
};

class RecvCall final : public StartedCall {
 public:
  RecvCall(std::shared_ptr<Group> group, const CommCall& call);

 protected:
  bool step() override;
  std::vector<int> missing() override { return {call_.peer}; }
  void release() noexcept override;

 private:
  std::unique_ptr<std::byte[]> header_;
  Batch arriving_, batch_;
  bool arrived_ = false;
};

}  // namespace mtrain::message_comm
