#include "mtrain/base/error.h"

namespace mtrain {

const char* name(ErrorClass error_class) {
  switch (error_class) {
    case ErrorClass::usage:
      return "usage";
    case ErrorClass::config:
      return "config";
    case ErrorClass::data:
      return "data";
    case ErrorClass::checkpoint:
      return "checkpoint";
    case ErrorClass::plugin:
      return "plugin";
    case ErrorClass::numeric:
      return "numeric";
    case ErrorClass::peer:
      return "peer";
    case ErrorClass::io:
      return "io";
    case ErrorClass::bug:
      return "internal";
  }
  return "unknown";
}

Error::Error(ErrorClass error_class, std::string message, std::string hint)
    : std::runtime_error(hint.empty() ? message : message + "\n  help: " + hint),
      class_(error_class),
      message_(std::move(message)),
      hint_(std::move(hint)) {}

Error::~Error() = default;

void throw_bug(const char* file, int line, const char* expression, const std::string& detail) {
  throw Error(
      ErrorClass::bug,
      cat(file, ":", line, ": check failed: ", expression, detail.empty() ? "" : " — ", detail),
      "this is a defect of mtrain, not of your input: please report it with this line");
}

}  // namespace mtrain
