#include "contract/comm/process_fixture.h"
#include "plugins/comm/tcp/tcp_transport.h"

namespace mtrain::contract {

std::unique_ptr<message_comm::Transport> make_transport() {
  return std::make_unique<tcp::TcpTransport>();
}

}  // namespace mtrain::contract
