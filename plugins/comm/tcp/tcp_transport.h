// TcpTransport: messages over TCP; the contract is in mtrain/message_comm/transport.h. Owns the
// connections to all other ranks (wires.h). For one thread at a time.
#pragma once
#include <cstdint>
#include <memory>

#include "mtrain/message_comm/transport.h"
#include "rank_environment.h"
#include "wires.h"

namespace mtrain::tcp {

class TcpTransport final : public message_comm::Transport {
 public:
  /// Connects the ranks that the launcher started; see rank_environment() and connect_ranks()
  /// for its errors.
  TcpTransport() : TcpTransport(rank_environment()) {}
  explicit TcpTransport(const RankEnvironment& environment);

  std::string_view kind() const override { return "tcp"; }
  std::unique_ptr<message_comm::Channel> world() override;
  [[noreturn]] void abort(int status) noexcept override;

 private:
  Wires wires_;
  uint64_t num_worlds_ = 0;
};

}  // namespace mtrain::tcp
