// The one exception type. Its class is also the exit status of the process, so a failure never
// looks like success. A user error (bad recipe, data, file, plugin) is thrown by MT_USER_CHECK or
// `throw Error(...)` and says where it occurred and how to fix it. A bug is reported by MT_CHECK,
// which prints its further arguments, or by MT_CHECK_EQ, which prints both operands. A value type;
// thread-safe.
#pragma once
#include <stdexcept>
#include <string>

#include "mtrain/base/export.h"
#include "mtrain/base/text.h"

namespace mtrain {

/// The kind of failure; its number is the exit status of the process.
enum class ErrorClass : int {
  usage = 2,        // arguments or environment variables of the command
  config = 10,      // the recipe or its settings; too little memory for them
  data = 11,        // training data, tokenizers or templates
  checkpoint = 12,  // checkpoints and model files
  plugin = 13,      // a plugin cannot be loaded, or threw an exception
  numeric = 14,     // NaN, infinity or diverging results
  peer = 15,        // another rank failed, or ranks disagree
  io = 18,          // the operating system: files, network
  bug = 70,         // a defect of mtrain
};

MT_API const char* name(ErrorClass error_class);

class MT_API Error : public std::runtime_error {
 public:
  /// `message`: what was expected, what was found, and where; `hint`: what the user can do about it
  /// (may be empty).
  Error(ErrorClass error_class, std::string message, std::string hint = {});
  ~Error() override;
  Error(const Error&) = default;

  ErrorClass error_class() const { return class_; }
  int exit_status() const { return static_cast<int>(class_); }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }

 private:
  ErrorClass class_;
  std::string message_, hint_;
};

/// Throws Error(bug) that names file, line, the expression and its operands.
[[noreturn]] MT_API void throw_bug(const char* file, int line, const char* expression,
                                   const std::string& detail);

}  // namespace mtrain

// NOLINTBEGIN(cppcoreguidelines-macro-usage): the macros need the expression's text and source
// line.
#define MT_USER_CHECK(condition, error_class, message, hint)                   \
  do {                                                                         \
    if (!(condition)) throw ::mtrain::Error((error_class), (message), (hint)); \
  } while (false)
#define MT_CHECK(condition, ...)                                                       \
  do {                                                                                 \
    if (!(condition))                                                                  \
      ::mtrain::throw_bug(__FILE__, __LINE__, #condition, ::mtrain::cat(__VA_ARGS__)); \
  } while (false)
#define MT_CHECK_EQ(a, b)                                                                       \
  do {                                                                                          \
    auto&& mt_a = (a);                                                                          \
    auto&& mt_b = (b);                                                                          \
    if (!(mt_a == mt_b))                                                                        \
      ::mtrain::throw_bug(__FILE__, __LINE__, #a " == " #b, ::mtrain::cat(mt_a, " vs ", mt_b)); \
  } while (false)
// NOLINTEND
