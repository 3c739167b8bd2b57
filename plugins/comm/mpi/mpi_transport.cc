#include "mpi_transport.h"

#include <mpi.h>

#include <cstdlib>

#include "mtrain/base/error.h"

namespace mtrain::mpi {

namespace {

using message_comm::Channel;
using message_comm::Transfer;

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorClass::peer, cat(call, ": ", text), "see what the other ranks reported");
}

class MpiTransfer final : public Transfer {
 public:
  MpiTransfer(MPI_Request request, bool receives) : request_(request), receives_(receives) {}
  ~MpiTransfer() override { cancel(); }
  MpiTransfer(const MpiTransfer&) = delete;
  MpiTransfer& operator=(const MpiTransfer&) = delete;

  bool done() override {
    if (request_ == MPI_REQUEST_NULL) return true;
    int done = 0;
    check(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }
  void cancel() noexcept override {
    // Sends cannot be cancelled portably.
    if (request_ == MPI_REQUEST_NULL || !receives_) return;
    MPI_Cancel(&request_);
    MPI_Request_free(&request_);
  }

 private:
  MPI_Request request_;  // MPI_REQUEST_NULL once done
  bool receives_;
};

class MpiChannel final : public Channel {
 public:
  explicit MpiChannel(MPI_Comm comm) : comm_(comm) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Transfer> send(const void* data, size_t bytes, int to, int tag) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm_, &request),
          "MPI_Isend");
    return std::make_unique<MpiTransfer>(request, false);
  }

  std::unique_ptr<Transfer> recv(void* data, size_t bytes, int from, int tag) override {
    MPI_Request request = MPI_REQUEST_NULL;
    int source = from == kAnyRank ? MPI_ANY_SOURCE : from;
    check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, source, tag, comm_, &request),
          "MPI_Irecv");
    return std::make_unique<MpiTransfer>(request, true);
  }

  std::unique_ptr<Channel> sub(std::span<const int> ranks, int tag) override {
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    check(MPI_Comm_group(comm_, &all), "MPI_Comm_group");
    check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some),
          "MPI_Group_incl");
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_create_group(comm_, some, tag, &comm), "MPI_Comm_create_group");
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    return std::make_unique<MpiChannel>(comm);
  }

 private:
  MPI_Comm comm_;  // freed by MPI_Finalize: freeing it earlier would be a collective call
  int rank_ = 0, size_ = 1;
};

}  // namespace

MpiTransport::MpiTransport() {
  int is_on = 0, was_on = 0;
  MPI_Initialized(&is_on);
  MPI_Finalized(&was_on);
  MT_USER_CHECK(was_on == 0, ErrorClass::plugin,
                "MPI has been finalized in this process and cannot start again",
                "create the mpi communicator only once per process");
  if (is_on != 0) {
    finalize_ = false;  // the code that started MPI must finalize it
  } else {
    int provided = MPI_THREAD_SINGLE;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    MT_USER_CHECK(provided >= MPI_THREAD_SERIALIZED, ErrorClass::plugin,
                  "this MPI does not support MPI_THREAD_SERIALIZED",
                  "use an MPI built with thread support");
  }
  int* most_tag = nullptr;
  int known = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most_tag, &known), "MPI_Comm_get_attr");
  MT_USER_CHECK(known != 0 && *most_tag >= Channel::kMaxTag, ErrorClass::plugin,
                cat("this MPI supports tags up to ", known != 0 ? *most_tag : 0, ", but ",
                    Channel::kMaxTag, " are needed"),
                "use another MPI or transport");
}

MpiTransport::~MpiTransport() {
  if (finalize_) MPI_Finalize();
}

std::unique_ptr<Channel> MpiTransport::world() {
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  return std::make_unique<MpiChannel>(comm);
}

void MpiTransport::abort(int status) noexcept {
  MPI_Abort(MPI_COMM_WORLD, status);
  std::abort();
}

}  // namespace mtrain::mpi
