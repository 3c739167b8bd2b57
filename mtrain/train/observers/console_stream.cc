#include "mtrain/train/observers/console_stream.h"

#include <cstring>
#include <utility>

#include "mtrain/base/counted.h"
#include "mtrain/base/log.h"

namespace mtrain {

ConsoleStream::~ConsoleStream() {
  stream_.flush();
  if (size_t lost = stream_.lost())
    log_warn("the reader of standard output was too slow: ",
             counted(lost, "line was", "lines were"), " not written");
}

void ConsoleStream::write(std::string_view text) {
  stream_.write(text);
  if (int error = stream_.error(); error != 0 && !std::exchange(warned_, true))
    log_warn("cannot write to standard output: ", std::strerror(error),
             "; training continues without it");
}

}  // namespace mtrain
