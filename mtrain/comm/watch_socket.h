// WatchSocket: one end of a connection between watching processes. The content of a message has at
// most 1 MiB, and that of a received one at most 128 bytes until the other end is trusted. Nothing
// blocks: messages are dropped when too much is unsent, and no more than one message is read ahead.
// Owns its descriptor; for one thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mtrain {

class WatchSocket {
 public:
  struct Message {
    uint32_t type = 0;
    std::string content;
  };
  WatchSocket() = default;
  /// Takes ownership of a connected socket.
  explicit WatchSocket(int descriptor);
  ~WatchSocket() { close(); }
  WatchSocket(WatchSocket&& other) noexcept { *this = std::move(other); }
  WatchSocket& operator=(WatchSocket&& other) noexcept;

  int descriptor() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }
  bool has_unsent() const { return !out_.empty(); }
  void close();

  /// The other end belongs to this job: allows long messages from now on.
  void trust();
  /// Queues a message. False if it was dropped because the other end does not read.
  bool send(uint32_t type, std::string_view content);
  /// Sends and receives without waiting. False if the other end has closed the connection or sent
  /// invalid data.
  bool pump();
  /// The next received message.
  std::optional<Message> next();

 private:
  int descriptor_ = -1;
  size_t most_ = 0;  // the largest allowed content of a received message, in bytes
  std::string in_, out_;
};

/// The address of a job's first process: a port, the addresses of its machine, and the secret word
/// of the job.
struct WatchEndpoint {
  uint16_t port = 0;
  std::vector<std::string> addresses;  // IPv4, the most likely one first
  std::string word;
  std::string text() const;
  /// Absent if `text` is invalid.
  static std::optional<WatchEndpoint> parse(const std::string& text);
};

/// A listening socket, reachable only from this machine or from all machines. Throws Error(io).
class WatchListener {
 public:
  explicit WatchListener(bool this_machine);
  ~WatchListener();
  WatchListener(const WatchListener&) = delete;
  WatchListener& operator=(const WatchListener&) = delete;
  const WatchEndpoint& endpoint() const { return endpoint_; }
  int descriptor() const { return descriptor_; }
  /// The next waiting connection; a closed socket if there is none.
  WatchSocket accept();

 private:
  int descriptor_ = -1;
  WatchEndpoint endpoint_;
};

/// Connects within a few seconds. On failure, sets `reason` and returns a closed socket.
WatchSocket connect_to(const WatchEndpoint& endpoint, std::string& reason);

}  // namespace mtrain
