// Log lines on standard error. Thread-safe. Plugins use these functions too, so the process has one
// logger.
#pragma once
#include <string_view>

#include "mtrain/base/export.h"
#include "mtrain/base/text.h"

namespace mtrain {

enum class LogLevel { debug, info, warn, error, off };

MT_API void log_message(LogLevel level, std::string_view text);
/// Sets the lowest level that is printed. The initial value comes from MTRAIN_LOG (debug, info,
/// warn, error, off).
MT_API void set_log_level(LogLevel level);

template <class... Args>
void log_info(const Args&... args) {
  log_message(LogLevel::info, cat(args...));
}
template <class... Args>
void log_warn(const Args&... args) {
  log_message(LogLevel::warn, cat(args...));
}
template <class... Args>
void log_error(const Args&... args) {
  log_message(LogLevel::error, cat(args...));
}
template <class... Args>
void log_debug(const Args&... args) {
  log_message(LogLevel::debug, cat(args...));
}

}  // namespace mtrain
