#include "mtrain/base/log.h"

#include <spdlog/details/os.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>

#include "mtrain/base/text.h"
#include "mtrain/base/text_stream.h"

namespace mtrain {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warn:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

/// Log lines on standard error that never wait for a reader, with a colored level.
class StandardErrorSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit StandardErrorSink(bool color) : color_(color) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::string text(line.data(), line.size());
    if (color_ && message.color_range_end > message.color_range_start) {
      text.insert(message.color_range_end, "\x1b[m");
      text.insert(message.color_range_start, color_of(message.level));
    }
    write_standard_error(text);
  }
  void flush_() override {}
  static const char* color_of(spdlog::level::level_enum level) {
    switch (level) {
      case spdlog::level::info:
        return "\x1b[32m";
      case spdlog::level::warn:
        return "\x1b[33m\x1b[1m";
      case spdlog::level::err:
        return "\x1b[31m\x1b[1m";
      default:
        return "\x1b[36m";
    }
  }

  bool color_;
};

spdlog::logger& logger() {
  static const auto kLogger = [] {
    const char* no_color = std::getenv("NO_COLOR");
    bool color =
        !(no_color && *no_color) && ::isatty(2) == 1 && spdlog::details::os::is_color_terminal();
    auto made =
        std::make_shared<spdlog::logger>("mtrain", std::make_shared<StandardErrorSink>(color));
    // On a terminal, a live progress line may occupy the current row
    // (mtrain/train/observers/console.h): erase it; it will be redrawn.
    const char* terminal = std::getenv("TERM");
    bool erase = ::isatty(2) == 1 && terminal && std::string_view(terminal) != "dumb";
    made->set_pattern(erase ? "\r\x1b[K%^%l%$: %v" : "%^%l%$: %v");
    const char* level = std::getenv("MTRAIN_LOG");
    made->set_level(level ? spdlog::level::from_str(level) : spdlog::level::info);
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *kLogger;
}

}  // namespace

void log_message(LogLevel level, std::string_view text) {
  logger().log(to_spdlog(level), "{}", printable_lines(text));
}
void set_log_level(LogLevel level) { logger().set_level(to_spdlog(level)); }

}  // namespace mtrain
