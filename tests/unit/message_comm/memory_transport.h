// A transport between threads of one process. It checks that callers keep the contract of
// mtrain/message_comm/transport.h, and uses all freedom of the contract: messages are delayed,
// overtake each other, and are sometimes buffered and sometimes kept by the sender.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "mtrain/base/text.h"
#include "mtrain/message_comm/transport.h"

namespace mtrain::message_comm {

/// What the ranks share. Thread-safe.
struct Exchange {
  struct Item {
    uint64_t channel = 0;
    int from = 0, to = 0, tag = 0;  // ranks of the channel
    std::byte* data = nullptr;
    size_t bytes = 0;
    std::vector<std::byte> copy;  // of a buffered message
    bool done = false;
  };
  using Items = std::list<std::shared_ptr<Item>>;

  Exchange(int size_in, unsigned seed) : size(size_in), random(seed) {}

  /// Delivers about half of what can be delivered.
  void step() {
    for (auto receive = receives.begin(); receive != receives.end();) {
      auto send = oldest_for(**receive);
      bool is_first = std::find_if(receives.begin(), receive, [&](const auto& other) {
                        return same(*other, **receive);
                      }) == receive;
      if (send == sends.end() || !is_first || random() % 2 == 0) {
        ++receive;
        continue;
      }
      if ((*send)->bytes > (*receive)->bytes) fault("a message is larger than its receive");
      const std::byte* from = (*send)->copy.empty() ? (*send)->data : (*send)->copy.data();
      if ((*send)->bytes > 0) std::memcpy((*receive)->data, from, (*send)->bytes);
      (*send)->done = (*receive)->done = true;
      sends.erase(send);
      receive = receives.erase(receive);
    }
  }
  Items::iterator oldest_for(const Item& receive) {
    return std::find_if(sends.begin(), sends.end(),
                        [&](const auto& send) { return same(receive, *send); });
  }
  static bool same(const Item& receive, const Item& other) {
    return receive.channel == other.channel && receive.to == other.to && receive.tag == other.tag &&
           (receive.from == Channel::kAnyRank || receive.from == other.from);
  }
  void fault(const std::string& text) { faults.push_back(text); }

  const int size;
  std::mutex mutex;
  std::mt19937 random;
  Items sends, receives;
  std::map<std::tuple<uint64_t, int, std::vector<int>, int>, uint64_t> channels;
  std::vector<std::string> faults;  // breaches of the contract
};

class MemoryTransfer final : public Transfer {
 public:
  MemoryTransfer(Exchange& exchange, std::shared_ptr<Exchange::Item> item, bool receives)
      : exchange_(exchange), item_(std::move(item)), receives_(receives) {}
  ~MemoryTransfer() override { cancel(); }

  bool done() override {
    std::lock_guard lock(exchange_.mutex);
    if (cancelled_) exchange_.fault("done() of a cancelled receive");
    exchange_.step();
    return item_->done;
  }
  void cancel() noexcept override {
    std::lock_guard lock(exchange_.mutex);
    if (!receives_) return;
    exchange_.receives.remove(item_);
    cancelled_ = true;
  }

 private:
  Exchange& exchange_;
  std::shared_ptr<Exchange::Item> item_;
  bool receives_, cancelled_ = false;
};

class MemoryChannel final : public Channel {
 public:
  MemoryChannel(Exchange& exchange, uint64_t id, int rank, int size)
      : exchange_(exchange), id_(id), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Transfer> send(const void* data, size_t bytes, int to, int tag) override {
    std::lock_guard lock(exchange_.mutex);
    check(bytes, to, tag);
    auto item = make(const_cast<void*>(data), bytes, rank_, to, tag);
    if (exchange_.random() % 2 == 0) {
      item->copy.assign(item->data, item->data + bytes);
      item->done = true;
    }
    exchange_.sends.push_back(item);
    return std::make_unique<MemoryTransfer>(exchange_, item, false);
  }

  std::unique_ptr<Transfer> recv(void* data, size_t bytes, int from, int tag) override {
    std::lock_guard lock(exchange_.mutex);
    if (from != kAnyRank) check(bytes, from, tag);
    auto item = make(data, bytes, from, rank_, tag);
    exchange_.receives.push_back(item);
    return std::make_unique<MemoryTransfer>(exchange_, item, true);
  }

  std::unique_ptr<Channel> sub(std::span<const int> ranks, int tag) override {
    std::lock_guard lock(exchange_.mutex);
    std::vector<int> members(ranks.begin(), ranks.end());
    auto me = std::find(members.begin(), members.end(), rank_);
    if (me == members.end()) exchange_.fault("sub() of a rank outside of the group");
    int index = static_cast<int>(me - members.begin());
    int nth = num_subs_[{members, tag}]++;
    uint64_t id =
        exchange_.channels.try_emplace({id_, tag, members, nth}, 1000 + exchange_.channels.size())
            .first->second;
    return std::make_unique<MemoryChannel>(exchange_, id, index, static_cast<int>(ranks.size()));
  }

 private:
  void check(size_t bytes, int peer, int tag) {
    if (bytes > kMaxBytes) exchange_.fault(cat("a message of ", bytes, " bytes"));
    if (tag < 0 || tag > kMaxTag) exchange_.fault(cat("the tag ", tag));
    if (peer < 0 || peer >= size_ || peer == rank_)
      exchange_.fault(cat("rank ", rank_, " of ", size_, " names rank ", peer));
  }
  std::shared_ptr<Exchange::Item> make(void* data, size_t bytes, int from, int to, int tag) {
    return std::make_shared<Exchange::Item>(Exchange::Item{.channel = id_,
                                                           .from = from,
                                                           .to = to,
                                                           .tag = tag,
                                                           .data = static_cast<std::byte*>(data),
                                                           .bytes = bytes,
                                                           .copy = {}});
  }

  Exchange& exchange_;
  uint64_t id_;
  int rank_, size_;
  std::map<std::pair<std::vector<int>, int>, int> num_subs_;
};

class MemoryTransport final : public Transport {
 public:
  MemoryTransport(Exchange& exchange, int rank) : exchange_(exchange), rank_(rank) {}

  std::string_view kind() const override { return "memory"; }
  std::unique_ptr<Channel> world() override {
    return std::make_unique<MemoryChannel>(exchange_, num_worlds_++, rank_, exchange_.size);
  }
  [[noreturn]] void abort(int status) noexcept override {
    std::fprintf(stderr, "rank %d ends the job with status %d\n", rank_, status);
    ::_exit(status);
  }

 private:
  Exchange& exchange_;
  int rank_;
  uint64_t num_worlds_ = 0;
};

}  // namespace mtrain::message_comm
