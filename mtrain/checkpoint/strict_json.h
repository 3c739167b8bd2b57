// A strict parser for untrusted JSON. Refuses duplicate keys, byte-order marks, NUL bytes, deep
// nesting and text after the value; errors name the byte. Internal to mtrain/checkpoint. Stateless
// functions; safe from any thread.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "mtrain/base/file.h"
#include "mtrain/base/text.h"

namespace mtrain {

constexpr int kMaxJsonDepth = 64;

/// The origin of a text, for messages.
struct JsonPlace {
  fs::path path;
  uint64_t offset = 0;  // the offset of the text in the file
  std::string hint;     // the help for an invalid text
};

/// Receives a text's events in order. Throw through fail() to refuse it.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void start_object() = 0;
  virtual void end_object() = 0;
  virtual void start_array() = 0;
  virtual void end_array() = 0;
  virtual void key(std::string& text) = 0;
  virtual void string(std::string& text) = 0;
  /// A whole number without sign, point or exponent, below 2^64.
  virtual void integer(uint64_t value) = 0;
  virtual void negative(int64_t value) { other(cat("the number ", value)); }
  virtual void real(double, const std::string& text) {
    other(cat("the number ", printable(text, 40)));
  }
  virtual void boolean(bool value) { other(value ? "true" : "false"); }
  virtual void null() { other("null"); }
  /// Called for a value whose event is not overridden, with a description of it.
  virtual void other(std::string_view what) = 0;

 protected:
  /// Refuses the text; parse_json() adds file and byte.
  [[noreturn]] static void fail(std::string message);
};

/// Parses `text`. Error(checkpoint) that names file, byte and fault.
void parse_json(std::string_view text, const JsonPlace& place, JsonEvents& events);

/// Parses `text` into a tree. Duplicate keys are refused.
nlohmann::json parse_json_tree(std::string_view text, const JsonPlace& place);

}  // namespace mtrain
