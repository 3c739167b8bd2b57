// MpiTransport: messages over MPI; the contract is in mtrain/message_comm/transport.h. Only this
// class includes mpi.h. Owns the process's MPI session, from MPI_Init_thread to MPI_Finalize,
// unless other code has started MPI. For one thread at a time, as MPI_THREAD_SERIALIZED requires.
#pragma once
#include <memory>

#include "mtrain/message_comm/transport.h"

namespace mtrain::mpi {

class MpiTransport final : public message_comm::Transport {
 public:
  /// At most one during the life of a process. Throws Error(plugin) if MPI cannot be started.
  MpiTransport();
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  std::string_view kind() const override { return "mpi"; }
  std::unique_ptr<message_comm::Channel> world() override;
  [[noreturn]] void abort(int status) noexcept override;

 private:
  bool finalize_ = true;
};

}  // namespace mtrain::mpi
