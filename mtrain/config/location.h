// Where a setting was written. A Source is an immutable text (a file, one command-line argument, a
// component's defaults) shared by every Location in it; both are values, safe from any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "mtrain/base/export.h"

namespace mtrain {

enum class SourceKind : uint8_t { file, command_line, built_in };

class MT_API Source {
 public:
  /// `name`: as shown in messages: "recipes/x.yaml", "command line, argument 4", "default of
  /// optimizer/adamw".
  Source(SourceKind kind, std::string name, std::string text)
      : kind_(kind), name_(std::move(name)), text_(std::move(text)) {}
  SourceKind kind() const { return kind_; }
  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  /// Line `number` (from 1) without its line end; empty when there is none.
  std::string_view line(int number) const;

 private:
  SourceKind kind_;
  std::string name_, text_;
};

using SourcePtr = std::shared_ptr<const Source>;

struct MT_API Location {
  SourcePtr source;  // null: no location
  int line = 0,
      column = 0;  // both from 1; columns count characters, not bytes; 0: the source as a whole

  /// "recipes/x.yaml:3:5", "command line, argument 4", or "" without a source.
  std::string text() const;
  explicit operator bool() const { return source != nullptr; }
  /// The order of reports: files first, by name, line and column; then the command line; then
  /// defaults.
  friend MT_API bool operator<(const Location& a, const Location& b);
};

/// The location of byte `offset` of a source's text.
MT_API Location locate(const SourcePtr& source, size_t offset);

}  // namespace mtrain
