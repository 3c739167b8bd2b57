#include "transport.h"

#include <mpi.h>

#include <cstdlib>

#include "mtrain/base/error.h"

namespace mtrain::mpi {

namespace {
void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorClass::peer, cat(call, ": ", text), "see what the other ranks reported");
}
}  // namespace

std::string_view transport_kind() { return "mpi"; }

struct Batch::State {
  std::vector<MPI_Request> requests;  // MPI_REQUEST_NULL once through
  std::vector<int> peers;
  std::vector<bool> receives;
  size_t num_through = 0;
};

Batch::Batch() : state_(std::make_unique<State>()) {}
Batch::~Batch() = default;
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;

bool Batch::done(size_t index) {
  MPI_Request& request = state_->requests[index];
  if (request == MPI_REQUEST_NULL) return true;
  int through = 0;
  check(MPI_Test(&request, &through, MPI_STATUS_IGNORE), "MPI_Test");
  if (through != 0) ++state_->num_through;
  return through != 0;
}

bool Batch::done() {
  for (size_t i = 0; i < state_->requests.size() && state_->num_through < state_->requests.size();
       ++i)
    done(i);
  return state_->num_through == state_->requests.size();
}

std::vector<int> Batch::peers_missing() const {
  std::vector<int> missing;
  for (size_t i = 0; i < state_->requests.size(); ++i)
    if (state_->requests[i] != MPI_REQUEST_NULL) missing.push_back(state_->peers[i]);
  return missing;
}

std::vector<int> Batch::peers_gone() const { return {}; }

void Batch::cancel() noexcept {
  for (size_t i = 0; i < state_->requests.size(); ++i) {
    MPI_Request& request = state_->requests[i];
    if (request == MPI_REQUEST_NULL || !state_->receives[i])
      continue;  // sends cannot be cancelled portably
    MPI_Cancel(&request);
    MPI_Request_free(&request);
  }
}

struct Channel::Handle {
  MPI_Comm comm =
      MPI_COMM_NULL;  // freed by MPI_Finalize: freeing it earlier would be a collective call
  int rank = 0, size = 1;
};

Channel::Channel(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {
  check(MPI_Comm_set_errhandler(handle_->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(handle_->comm, &handle_->rank), "MPI_Comm_rank");
  check(MPI_Comm_size(handle_->comm, &handle_->size), "MPI_Comm_size");
}
Channel::~Channel() = default;
Channel::Channel(Channel&&) noexcept = default;

int Channel::rank() const { return handle_->rank; }
int Channel::size() const { return handle_->size; }

void Channel::send(const void* data, size_t bytes, int to, int tag, Batch& batch) const {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, handle_->comm, &request),
        "MPI_Isend");
  batch.state_->requests.push_back(request);
  batch.state_->peers.push_back(to);
  batch.state_->receives.push_back(false);
}

void Channel::recv(void* data, size_t bytes, int from, int tag, Batch& batch) const {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from == -1 ? MPI_ANY_SOURCE : from, tag,
                  handle_->comm, &request),
        "MPI_Irecv");
  batch.state_->requests.push_back(request);
  batch.state_->peers.push_back(from);
  batch.state_->receives.push_back(true);
}

void Channel::barrier(Batch& batch) const {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(handle_->comm, &request), "MPI_Ibarrier");
  batch.state_->requests.push_back(request);
  batch.state_->peers.push_back(-1);
  batch.state_->receives.push_back(false);
}

Channel Channel::sub(std::span<const int> ranks, int tag) const {
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  check(MPI_Comm_group(handle_->comm, &all), "MPI_Comm_group");
  check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some), "MPI_Group_incl");
  auto made = std::make_unique<Handle>();
  check(MPI_Comm_create_group(handle_->comm, some, tag, &made->comm), "MPI_Comm_create_group");
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  return Channel(std::move(made));
}

Process::Process() {
  int is_on = 0, was_on = 0;
  MPI_Initialized(&is_on);
  MPI_Finalized(&was_on);
  MT_USER_CHECK(was_on == 0, ErrorClass::plugin,
                "MPI has been finalized in this process and cannot start again",
                "make the mpi communicator once per process");
  if (is_on != 0) {
    finalize_ = false;  // whoever started it ends it
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
  MT_USER_CHECK(known != 0 && *most_tag >= Channel::kMostTag, ErrorClass::plugin,
                cat("this MPI has tags up to ", known != 0 ? *most_tag : 0, ", and ",
                    Channel::kMostTag, " are needed"),
                "use another MPI or transport");
}

Process::~Process() {
  if (finalize_) MPI_Finalize();
}

Channel Process::world() const {
  auto made = std::make_unique<Channel::Handle>();
  check(MPI_Comm_dup(MPI_COMM_WORLD, &made->comm), "MPI_Comm_dup");
  return Channel(std::move(made));
}

void Process::abort(int status) noexcept {
  MPI_Abort(MPI_COMM_WORLD, status);
  std::abort();
}

}  // namespace mtrain::mpi
