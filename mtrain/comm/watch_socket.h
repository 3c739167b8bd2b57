// WatchSocket: one end of a connection between watching processes, for messages of at most a MiB,
// and of some words until the other end is trusted. Nothing blocks: what the other end does not
// take is dropped when it has become too much, and no more of what it sends is read than a message
// has. Owns its descriptor; for one thread.
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
  /// Takes a connected socket over.
  explicit WatchSocket(int descriptor);
  ~WatchSocket() { close(); }
  WatchSocket(WatchSocket&& other) noexcept { *this = std::move(other); }
  WatchSocket& operator=(WatchSocket&& other) noexcept;

  int descriptor() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }
  bool has_unsent() const { return !out_.empty(); }
  void close();

  /// The other end is of this job: messages may be long from now on.
  void trust();
  /// Queues a message. False when it was dropped, because the other end does not read.
  bool send(uint32_t type, std::string_view content);
  /// Sends and receives what can be without waiting. False once the other end is gone or does not
  /// speak this language.
  bool pump();
  /// The next message that has come.
  std::optional<Message> next();

 private:
  int descriptor_ = -1;
  size_t most_ = 0;  // bytes of a message's content that may come
  std::string in_, out_;
};

/// Where a job's first process can be reached: a port, the addresses of its machine, and a word
/// that only members know.
struct WatchDoor {
  uint16_t port = 0;
  std::vector<std::string> addresses;  // IPv4, the likeliest first
  std::string word;
  std::string text() const;
  /// Absent when `text` is none.
  static std::optional<WatchDoor> parse(const std::string& text);
};

/// A listening socket, reachable from this machine only or from all. Throws Error(io).
class WatchListener {
 public:
  explicit WatchListener(bool this_machine);
  ~WatchListener();
  WatchListener(const WatchListener&) = delete;
  WatchListener& operator=(const WatchListener&) = delete;
  const WatchDoor& door() const { return door_; }
  int descriptor() const { return descriptor_; }
  /// The next connection that waits; closed when there is none.
  WatchSocket accept();

 private:
  int descriptor_ = -1;
  WatchDoor door_;
};

/// Connects within some seconds; closed, and `reason` says why, when that fails.
WatchSocket connect_to(const WatchDoor& door, std::string& reason);

}  // namespace mtrain
