// The comm plugin "mpi": ranks are the processes that mpirun started.
#include "mpi_transport.h"
#include "mtrain/message_comm/message_communicator.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct MpiConfig {
  void bind(Fields&) {}
};

class MpiWorld final : public message_comm::MessageCommunicator {
 public:
  MpiWorld(const MpiConfig&, CommContext& context)
      : MessageCommunicator(std::make_unique<mpi::MpiTransport>(), context) {}
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("mpi", "ranks as the processes of an MPI job") {
  using namespace mtrain;
  registry.add<Communicator, MpiWorld, MpiConfig>("mpi", "ranks as the processes of an MPI job");
}
