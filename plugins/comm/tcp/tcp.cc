// The comm plugin "tcp": ranks are processes that meet at MASTER_ADDR.
#include "communicator.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct TcpConfig {
  void bind(Fields&) {}
};

class TcpWorld final : public mpi::MpiCommunicator {
 public:
  TcpWorld(const TcpConfig&, CommContext& context) : MpiCommunicator(mpi::make_world(context)) {}
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("tcp", "ranks that meet at MASTER_ADDR, as torchrun starts them") {
  using namespace mtrain;
  registry.add<Communicator, TcpWorld, TcpConfig>(
      "tcp", "ranks that meet at MASTER_ADDR, as torchrun starts them");
}
