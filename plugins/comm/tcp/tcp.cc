// The comm plugin "tcp": ranks are processes that meet at MASTER_ADDR.
#include "mtrain/message_comm/message_communicator.h"
#include "mtrain/plugin/plugin.h"
#include "tcp_transport.h"

namespace mtrain {
namespace {

struct TcpConfig {
  void bind(Fields&) {}
};

class TcpWorld final : public message_comm::MessageCommunicator {
 public:
  TcpWorld(const TcpConfig&, CommContext& context)
      : MessageCommunicator(std::make_unique<tcp::TcpTransport>(), context) {}
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("tcp", "ranks that connect through MASTER_ADDR, as torchrun starts them") {
  using namespace mtrain;
  registry.add<Communicator, TcpWorld, TcpConfig>(
      "tcp", "ranks that connect through MASTER_ADDR, as torchrun starts them");
}
