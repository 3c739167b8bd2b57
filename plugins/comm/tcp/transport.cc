// The transport of plugins/comm/mpi over TCP: batches and channels on wires.h.
#include "transport.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "meeting.h"
#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "wires.h"

namespace mtrain::mpi {

namespace {

constexpr uint32_t kBarrierTag = Channel::kMostTag + 1;

/// One per process, like MPI's session. Made by the first Process.
std::unique_ptr<Wires>& session() {
  static std::unique_ptr<Wires> wires;
  return wires;
}
/// A process that another one tells to end does, wherever it is.
void pump() {
  session()->pump();
  if (auto status = session()->ended()) ::_exit(*status);
}
uint64_t& worlds() {
  static uint64_t count = 0;
  return count;
}

uint64_t mix(uint64_t a, uint64_t b) {
  a = (a ^ (b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2))) * 0xBF58476D1CE4E5B9u;
  return a ^ (a >> 31);
}

}  // namespace

std::string_view transport_kind() { return "tcp"; }

struct Batch::State {
  std::vector<std::shared_ptr<Request>> requests;
  std::vector<int> peers;                         // ranks of the channel
  std::vector<std::unique_ptr<std::byte>> words;  // of barriers
  size_t num_through = 0;
  ~State() {
    if (session())
      for (auto& request : requests) session()->forget(request);
  }
};

Batch::Batch() : state_(std::make_unique<State>()) {}
Batch::~Batch() = default;
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;

bool Batch::done(size_t index) {
  const auto& request = state_->requests[index];
  if (!request->done && session()) pump();
  return request->done;
}

bool Batch::done() {
  auto& all = state_->requests;
  auto through = [](const auto& request) { return request->done; };
  if (std::all_of(all.begin(), all.end(), through)) return true;
  if (session()) pump();
  return std::all_of(all.begin(), all.end(), through);
}

std::vector<int> Batch::peers_missing() const {
  std::vector<int> missing;
  for (size_t i = 0; i < state_->requests.size(); ++i)
    if (!state_->requests[i]->done) missing.push_back(state_->peers[i]);
  return missing;
}

std::vector<int> Batch::peers_gone() const {
  std::vector<int> gone;
  for (size_t i = 0; i < state_->requests.size(); ++i) {
    const Request& request = *state_->requests[i];
    if (!request.done && request.peer >= 0 && session() && session()->gone(request.peer))
      gone.push_back(state_->peers[i]);
  }
  return gone;
}

void Batch::cancel() noexcept {
  for (auto& request : state_->requests)
    if (request->receives && session()) session()->forget(request);
}

struct Channel::Handle {
  uint64_t id = 0;
  std::vector<int> ranks;  // in the world
  int rank = 0;
  mutable std::map<std::vector<int>, uint64_t> subs;  // made of these ranks so far
};

Channel::Channel(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
Channel::~Channel() = default;
Channel::Channel(Channel&&) noexcept = default;

int Channel::rank() const { return handle_->rank; }
int Channel::size() const { return static_cast<int>(handle_->ranks.size()); }

void Channel::send(const void* data, size_t bytes, int to, int tag, Batch& batch) const {
  auto request =
      std::make_shared<Request>(Request{.channel = handle_->id,
                                        .peer = handle_->ranks[static_cast<size_t>(to)],
                                        .tag = static_cast<uint32_t>(tag),
                                        .data = static_cast<std::byte*>(const_cast<void*>(data)),
                                        .bytes = bytes});
  batch.state_->requests.push_back(request);
  batch.state_->peers.push_back(to);
  session()->send(std::move(request));
}

void Channel::recv(void* data, size_t bytes, int from, int tag, Batch& batch) const {
  auto request = std::make_shared<Request>(
      Request{.channel = handle_->id,
              .peer = from == -1 ? -1 : handle_->ranks[static_cast<size_t>(from)],
              .tag = static_cast<uint32_t>(tag),
              .data = static_cast<std::byte*>(data),
              .bytes = bytes,
              .receives = true});
  batch.state_->requests.push_back(request);
  batch.state_->peers.push_back(from);
  session()->receive(std::move(request));
}

// Each tells all others.
void Channel::barrier(Batch& batch) const {
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    for (bool sends : {true, false}) {
      std::byte* word = batch.state_->words.emplace_back(std::make_unique<std::byte>()).get();
      if (sends)
        send(word, 1, r, kBarrierTag, batch);
      else
        recv(word, 1, r, kBarrierTag, batch);
    }
  }
}

// All of `ranks` find the same number for it without a word.
Channel Channel::sub(std::span<const int> ranks, int tag) const {
  auto made = std::make_unique<Handle>();
  for (int r : ranks) made->ranks.push_back(handle_->ranks[static_cast<size_t>(r)]);
  made->rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  uint64_t id = mix(mix(handle_->id, static_cast<uint64_t>(tag)), handle_->subs[made->ranks]++);
  for (int r : made->ranks) id = mix(id, static_cast<uint64_t>(r));
  made->id = id;
  return Channel(std::move(made));
}

Process::Process() {
  if (session()) {
    finalize_ = false;
    return;
  }
  Place place = place_from_environment();
  session() = std::make_unique<Wires>(place.rank, meet(place));
}

Process::~Process() {
  if (finalize_) session().reset();
}

Channel Process::world() const {
  auto made = std::make_unique<Channel::Handle>();
  made->ranks.resize(static_cast<size_t>(session()->size()));
  std::iota(made->ranks.begin(), made->ranks.end(), 0);
  made->rank = session()->rank();
  made->id = ++worlds();
  return Channel(std::move(made));
}

void Process::abort(int status) noexcept {
  session()->tell_end(status);
  ::_exit(status);
}

}  // namespace mtrain::mpi
