// ConsoleStream: text for whoever watches, on a descriptor that may be a terminal, a file, a pipe, or gone.
// Writing never throws, never raises SIGPIPE and never waits long; trouble is told once, on the log. Owns a
// duplicate of the descriptor, so a file that later gets the same number is safe from it. For one thread at a
// time.
#pragma once
#include <string_view>

namespace mtrain {

class ConsoleStream {
 public:
  explicit ConsoleStream(int fd);
  ~ConsoleStream();
  ConsoleStream(const ConsoleStream&) = delete;
  ConsoleStream& operator=(const ConsoleStream&) = delete;

  void write(std::string_view text);
  bool is_terminal() const;
  /// Columns of the terminal now; `otherwise` where it has none to tell.
  int columns(int otherwise = 80) const;

 private:
  void write_all(std::string_view text);
  void fail(int error);

  int fd_ = -1;
  bool warned_ = false;
};

}  // namespace mtrain
