#include "contract/comm/process_fixture.h"
#include "plugins/comm/mpi/mpi_transport.h"

namespace mtrain::contract {

std::unique_ptr<message_comm::Transport> make_transport() {
  return std::make_unique<mpi::MpiTransport>();
}

}  // namespace mtrain::contract
