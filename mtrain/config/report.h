// Report: every fault of a configuration, collected before any of them is shown. Each has a code,
// the setting's path, its place, what shadows what, and the fix. A value; for one thread at a time.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mtrain/config/location.h"

namespace mtrain {

class Node;

enum class Severity : uint8_t { error, warning };

struct Diagnostic {
  Severity severity = Severity::error;
  std::string code;  // "unknown-key"; the full list is in README.md
  std::string path;  // "optimizer.lr"; empty when the fault concerns no setting
  Location where;
  std::string message;  // what was wanted and got, without path and place
  std::vector<std::string> notes;
  std::string help;  // the edit that mends it
  Location shadows;  // where the value stood that this one replaced; nowhere when there was none
  std::string shadowed_value;

  Diagnostic& note(std::string text) { return notes.push_back(std::move(text)), *this; }
  Diagnostic& fix(std::string text) { return help = std::move(text), *this; }
};

class MT_API Report {
 public:
  /// The returned reference is valid until the next call.
  Diagnostic& error(std::string code, std::string path, Location where, std::string message);
  Diagnostic& warning(std::string code, std::string path, Location where, std::string message);
  void add(Report other);

  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }
  size_t errors() const { return errors_; }
  size_t warnings() const { return diagnostics_.size() - errors_; }
  bool ok() const { return errors_ == 0; }
  /// Tells of each fault what its value replaced; `tree` is the composed recipe. Settings in
  /// `secrets` are passed over.
  void add_shadows(const Node& tree, const std::vector<std::string>& secrets);

  /// Sorts: files in reading order, then the command line, then what has no place. Warnings stay
  /// among the errors.
  void sort();
  /// At most six lines for each fault, `limit` faults, then the counts. Sorted. "" when there is
  /// nothing to say.
  std::string text(size_t limit = 20) const;
  /// {"errors": n, "warnings": n, "diagnostics": [{severity, code, path, file, line, column,
  /// shadows, message, notes, help}]}
  std::string json() const;
  /// The process's status: 0, 10 for a faulty configuration, 13 when all that is wrong are plugins
  /// that cannot be used.
  int exit_status() const;
  /// Throws Error with text() and that status when there is an error.
  void throw_if_errors() const;

 private:
  std::vector<Diagnostic> diagnostics_;
  size_t errors_ = 0;
};

/// One fault as text() shows it.
MT_API std::string render(const Diagnostic& diagnostic);

}  // namespace mtrain
