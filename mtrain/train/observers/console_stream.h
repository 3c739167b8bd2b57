// ConsoleStream: a TextStream that logs its first write error once. For one thread at a time.
#pragma once
#include <string_view>

#include "mtrain/base/text_stream.h"

namespace mtrain {

class ConsoleStream {
 public:
  explicit ConsoleStream(int fd) : stream_(fd) {}
  /// Waits briefly for a slow reader, then logs how many lines were lost.
  ~ConsoleStream();
  ConsoleStream(const ConsoleStream&) = delete;
  ConsoleStream& operator=(const ConsoleStream&) = delete;

  void write(std::string_view text);
  bool is_terminal() const { return stream_.is_terminal(); }
  int columns() const { return stream_.columns(); }
  bool behind() const { return stream_.behind(); }

 private:
  TextStream stream_;
  bool warned_ = false;
};

}  // namespace mtrain
