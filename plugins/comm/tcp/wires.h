// Wires: messages between processes over one connection to each. A message has a channel, a tag and
// a sender, and is delivered to the first matching receive request. A short message without a
// request is stored; a long one is only offered, and its send completes after a receiver has
// accepted it. Nothing blocks; all transfers advance whenever a caller tests a request for
// completion. Lengths that were not agreed on are not trusted, and invalid data ends the job. Owns
// the descriptors; for one thread.
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

/// A message to send, or to receive into memory.
struct Request {
  uint64_t channel = 0;
  int peer = 0;  // world rank; -1 for a receive from any rank
  uint32_t tag = 0;
  std::byte* data = nullptr;
  size_t bytes = 0;  // for a receive: the maximum
  size_t moved = 0;
  bool receives = false, done = false;
  std::vector<std::byte> kept;  // a copy for a sender that gave up its memory
};

class Wires {
 public:
  Wires(int rank, std::vector<int> descriptors);
  /// Sends queued data, for a short time at most.
  ~Wires();
  Wires(const Wires&) = delete;
  Wires& operator=(const Wires&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(wires_.size()); }
  void send(std::shared_ptr<Request> request);
  void receive(std::shared_ptr<Request> request);
  /// Gives up a request: a send continues from a copy, a receive is cancelled.
  void forget(const std::shared_ptr<Request>& request);
  /// Transfers what is possible without waiting. Throws Error(peer) if a rank sends invalid data,
  /// or a message that was not agreed on.
  void pump();
  /// The exit status that another rank requested for this process; never 0, since a rank that
  /// succeeds does not request it.
  std::optional<int> ended() const { return ended_; }
  /// Whether the connection to this rank is closed, so that nothing more arrives from it.
  bool gone(int rank) const { return rank != rank_ && wires_[static_cast<size_t>(rank)].fd < 0; }
  /// Requests all other ranks to end with this status.
  void request_end(int status) noexcept;

 private:
  enum class Kind : uint32_t;
  struct Head {
    uint64_t channel = 0, bytes = 0;
    uint64_t offer = 0;  // the sender's number of an offer, also in the messages that belong to it
    uint32_t tag = 0;
    Kind kind{};
  };
  struct Arrived {  // received, arriving or offered
    Head head;
    int from = 0;
    std::vector<std::byte> content;
    bool whole = false;
    std::shared_ptr<Request> claimed;
  };
  struct Outgoing {
    Head head;
    std::shared_ptr<Request> body;  // null for a header without a body
  };
  struct Wire {
    int fd = -1;
    std::deque<Outgoing> out;
    size_t head_sent = 0, head_got = 0;
    Head head_in;
    size_t got = 0;                 // received bytes of the arriving message
    std::shared_ptr<Request> into;  // its destination,
    std::shared_ptr<Arrived> kept;  // or this one
  };
  using Offer = std::pair<int, uint64_t>;  // the other rank and the number
  struct Taken {
    std::shared_ptr<Request> request;
    uint64_t bytes = 0;  // as offered; another size is an error
  };
  void push(Wire& wire);
  void pull(int from, Wire& wire);
  /// Handles a received header. False: no body follows.
  bool begin_message(int from, Wire& wire);
  void end_message(Wire& wire);
  void take(const Head& offer, int from, std::shared_ptr<Request> request);
  void give(int to, uint64_t offer);
  void close(Wire& wire);
  Wire& wire_of(int rank) { return wires_[static_cast<size_t>(rank)]; }
  void deliver(const Arrived& message, Request& request);
  /// Rank `from` has sent invalid data: closes its connection and throws Error(peer).
  [[noreturn]] void refuse(int from, const std::string& what);
  static bool fits(const Request& request, const Head& head, int from);

  int rank_;
  std::vector<Wire> wires_;  // by world rank
  std::list<std::shared_ptr<Request>> wanted_;
  std::list<std::shared_ptr<Arrived>> arrived_;
  uint64_t num_offers_ = 0;
  std::map<Offer, std::shared_ptr<Request>> offered_;  // by this rank, not accepted yet
  std::map<Offer, Taken> taken_;                       // accepted by this rank, not arriving yet
  std::optional<int> ended_;
};

}  // namespace mtrain::tcp
