// What the exception that ends a command means to its user. One mapping for the message on standard
// error and for the record of a run. A stateless function; safe from any thread.
#pragma once
#include <string>

namespace mtrain {

struct CaughtError {
  std::string kind;     // "config", "io", …; "internal" for a defect of mtrain
  std::string message;  // may have several lines
  std::string help;     // may be empty
  int status;           // of the process
};

/// Describes the current exception. REQUIRES: it is called in a catch block.
CaughtError caught_error();

}  // namespace mtrain
