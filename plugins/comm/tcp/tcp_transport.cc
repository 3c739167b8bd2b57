#include "tcp_transport.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "rendezvous.h"

namespace mtrain::tcp {

namespace {

using message_comm::Channel;
using message_comm::Transfer;

uint64_t mix(uint64_t a, uint64_t b) {
  a = (a ^ (b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2))) * 0xBF58476D1CE4E5B9u;
  return a ^ (a >> 31);
}

class TcpTransfer final : public Transfer {
 public:
  TcpTransfer(Wires& wires, std::shared_ptr<Request> request)
      : wires_(wires), request_(std::move(request)) {}
  ~TcpTransfer() override { wires_.forget(request_); }
  TcpTransfer(const TcpTransfer&) = delete;
  TcpTransfer& operator=(const TcpTransfer&) = delete;

  bool done() override {
    if (request_->done) return true;
    wires_.pump();
    // If another process has requested the end of the job, this process ends here, in any call.
    if (auto status = wires_.ended()) ::_exit(*status);
    return request_->done;
  }
  bool peer_gone() const override {
    return !request_->done && request_->peer >= 0 && wires_.gone(request_->peer);
  }
  void cancel() noexcept override {
    if (request_->receives) wires_.forget(request_);
  }

 private:
  Wires& wires_;
  std::shared_ptr<Request> request_;
};

class TcpChannel final : public Channel {
 public:
  TcpChannel(Wires& wires, uint64_t id, std::vector<int> world_ranks)
      : wires_(wires), id_(id), world_ranks_(std::move(world_ranks)) {
    auto here = std::find(world_ranks_.begin(), world_ranks_.end(), wires.rank());
    rank_ = static_cast<int>(here - world_ranks_.begin());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }

  std::unique_ptr<Transfer> send(const void* data, size_t bytes, int to, int tag) override {
    auto request =
        std::make_shared<Request>(Request{.channel = id_,
                                          .peer = world(to),
                                          .tag = static_cast<uint32_t>(tag),
                                          .data = static_cast<std::byte*>(const_cast<void*>(data)),
                                          .bytes = bytes});
    auto transfer = std::make_unique<TcpTransfer>(wires_, request);
    wires_.send(std::move(request));
    return transfer;
  }

  std::unique_ptr<Transfer> recv(void* data, size_t bytes, int from, int tag) override {
    auto request = std::make_shared<Request>(Request{.channel = id_,
                                                     .peer = from == kAnyRank ? -1 : world(from),
                                                     .tag = static_cast<uint32_t>(tag),
                                                     .data = static_cast<std::byte*>(data),
                                                     .bytes = bytes,
                                                     .receives = true});
    auto transfer = std::make_unique<TcpTransfer>(wires_, request);
    wires_.receive(std::move(request));
    return transfer;
  }

  // All of `ranks` compute the same number for it without a message.
  std::unique_ptr<Channel> sub(std::span<const int> ranks, int tag) override {
    std::vector<int> members;
    for (int r : ranks) members.push_back(world(r));
    uint64_t id = mix(mix(id_, static_cast<uint64_t>(tag)), num_subs_[members]++);
    for (int r : members) id = mix(id, static_cast<uint64_t>(r));
    return std::make_unique<TcpChannel>(wires_, id, std::move(members));
  }

 private:
  int world(int member) const { return world_ranks_[static_cast<size_t>(member)]; }

  Wires& wires_;
  uint64_t id_;
  std::vector<int> world_ranks_;
  int rank_ = 0;
  std::map<std::vector<int>, uint64_t>
      num_subs_;  // number of channels created for these ranks so far
};

}  // namespace

TcpTransport::TcpTransport(const RankEnvironment& environment)
    : wires_(environment.rank, connect_ranks(environment)) {}

std::unique_ptr<Channel> TcpTransport::world() {
  std::vector<int> ranks(static_cast<size_t>(wires_.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<TcpChannel>(wires_, ++num_worlds_, std::move(ranks));
}

void TcpTransport::abort(int status) noexcept {
  wires_.request_end(status);
  ::_exit(status);
}

}  // namespace mtrain::tcp
