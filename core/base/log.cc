#include "mtrain/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warn: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: return spdlog::level::off;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const auto kLogger = [] {
    const char* no_color = std::getenv("NO_COLOR");
    auto mode = no_color && *no_color ? spdlog::color_mode::never : spdlog::color_mode::automatic;
    auto made = std::make_shared<spdlog::logger>("mtrain", std::make_shared<spdlog::sinks::stderr_color_sink_mt>(mode));
    // On a terminal a live line may stand in the row (mtrain/train/observers/console.h): erase it, it will be redrawn.
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
