// The comm plugin "mpi": ranks are the processes that mpirun started.
#include "communicator.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct MpiConfig {
  void bind(Fields&) {}
};

class MpiWorld final : public mpi::MpiCommunicator {
 public:
  MpiWorld(const MpiConfig&, CommContext& context) : MpiCommunicator(mpi::make_world(context)) {}
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("mpi", "ranks as the processes of an MPI job") {
  using namespace mtrain;
  registry.add<Communicator, MpiWorld, MpiConfig>("mpi", "ranks as the processes of an MPI job");
}
