// Wires: messages between processes over a connection to each. A message has a channel, a tag and a
// sender, and goes to the first request that asked for it. A short one that nobody asked for yet is
// kept; a long one is only offered, and its sender is not through before somebody took it. Nothing
// blocks, and everything moves when somebody asks whether something is through. No length is
// believed that was not agreed on, and what is no message ends the job. Owns the descriptors; for
// one thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mtrain::tcp {

/// A message that is to be sent, or to be received into memory.
struct Request {
  uint64_t channel = 0;
  int peer = 0;  // world rank; -1, of one to be received: any
  uint32_t tag = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;  // of one to be received: at most
  size_t moved = 0;
  bool receives = false, done = false;
  std::vector<std::byte> kept;  // a sender that left its memory behind
};

class Wires {
 public:
  Wires(int rank, std::vector<int> descriptors);
  /// Sends what is queued, within a moment.
  ~Wires();
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(wires_.size()); }
  void send(std::shared_ptr<Request> request);
  void receive(std::shared_ptr<Request> request);
  /// Nobody wants to know any more: one to be sent is sent from a copy, one to be received is not
  /// asked for.
  void forget(const std::shared_ptr<Request>& request);
  /// Moves what can be moved now. Throws Error(peer) when what comes from a rank is no message, or
  /// none that was agreed on.
  void pump();
  /// The status with which another rank told this process to end; never 0, since no rank tells this
  /// that has finished.
  std::optional<int> ended() const { return ended_; }
  /// Whether the connection to this rank has ended: nothing comes from it any more.
  bool gone(int rank) const { return rank != rank_ && wires_[static_cast<size_t>(rank)].fd < 0; }
  /// Tells all others to end with this status.
  void tell_end(int status) noexcept;

 private:
  enum class Kind : uint32_t;
  struct Head {
    uint64_t channel = 0, bytes = 0;
    uint64_t offer = 0;  // its sender's number, of an offer and of what follows from it
    uint32_t tag = 0;
    Kind kind{};
  };
  struct Arrived {  // or arriving, or offered
    Head head;
    int from = 0;
    std::vector<std::byte> content;
    bool whole = false;
    std::shared_ptr<Request> claimed;
  };
  struct Outgoing {
    Head head;
    std::shared_ptr<Request> body;  // null of a mere head
  };
  struct Wire {
    int fd = -1;
    std::deque<Outgoing> out;
    size_t head_sent = 0, head_got = 0;
    Head head_in;
    size_t got = 0;                 // of the message that is arriving
    std::shared_ptr<Request> into;  // which goes here,
    std::shared_ptr<Arrived> kept;  // or there
  };
  using Offer = std::pair<int, uint64_t>;  // its other rank and its number
  struct Taken {
    std::shared_ptr<Request> request;
    uint64_t bytes = 0;  // as offered; no others may come
  };
  void push(Wire& wire);
  void pull(int from, Wire& wire);
  /// A head that came. False: nothing follows it.
  bool begin_message(int from, Wire& wire);
  void end_message(Wire& wire);
  void take(const Head& offer, int from, std::shared_ptr<Request> request);
  void give(int to, uint64_t offer);
  void close(Wire& wire);
  Wire& wire_of(int rank) { return wires_[static_cast<size_t>(rank)]; }
  void deliver(const Arrived& message, Request& request);
  /// What came from this rank is not what it may send: its connection is closed.
  [[noreturn]] void refuse(int from, const std::string& what);
  static bool fits(const Request& request, const Head& head, int from);

  int rank_;
  std::vector<Wire> wires_;  // by world rank
  std::list<std::shared_ptr<Request>> wanted_;
  std::list<std::shared_ptr<Arrived>> arrived_;
  uint64_t num_offers_ = 0;
  std::map<Offer, std::shared_ptr<Request>> offered_;  // by this rank, not taken yet
  std::map<Offer, Taken> taken_;                       // by this rank, not begun to arrive
  std::optional<int> ended_;
};

}  // namespace mtrain::tcp
