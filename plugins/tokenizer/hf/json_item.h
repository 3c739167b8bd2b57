// JsonItem: a value in a JSON file that knows its path, so that every error can name it. Does not
// own the parser that made it, which must outlive it. For one thread at a time.
#pragma once
#include <simdjson.h>

#include <optional>
#include <string>
#include <vector>

#include "mtrain/base/error.h"

namespace mtrain::hf {

class JsonItem {
 public:
  JsonItem(simdjson::dom::element value, std::string path)
      : value_(value), path_(std::move(path)) {}

  /// "tokenizer.json: model.merges".
  const std::string& path() const { return path_; }
  [[noreturn]] void fail(const std::string& what) const;
  bool is_null() const { return value_.is_null(); }
  bool is_string() const { return value_.is_string(); }
  bool is_object() const { return value_.is_object(); }
  bool is_array() const { return value_.is_array(); }

  /// The value; an Error(data) if the item has another type.
  std::string_view text() const;
  int64_t integer() const;
  double number() const;
  bool flag() const;
  simdjson::dom::array array() const;
  simdjson::dom::object object() const;
  std::vector<JsonItem> items() const;

  /// A member; nothing if it is absent or null.
  std::optional<JsonItem> find(std::string_view key) const;
  /// A required member.
  JsonItem at(std::string_view key) const;
  JsonItem operator[](size_t index) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;
  bool flag_or(std::string_view key, bool otherwise) const;
  int64_t integer_or(std::string_view key, int64_t otherwise) const;
  std::string type() const { return text_or("type", ""); }

 private:
  simdjson::dom::element value_;
  std::string path_;
};

/// Parses a whole file. Throws Error(data) with line and column if it is not JSON, nested too
/// deeply or too large.
JsonItem parse_json(simdjson::dom::parser& parser, const simdjson::padded_string& text,
                    const std::string& name);

}  // namespace mtrain::hf
