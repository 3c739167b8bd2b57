// Report: collects all faults of a configuration before any is shown. Each fault has a code, the
// path and location of the setting, the value that it replaced, and the fix. A value that owns its
// data. Not synchronised: one thread at a time.
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
  std::string code;  // "unknown-key"; the codes of this folder are in mtrain/config/README.md
  std::string path;  // "optimizer.lr"; empty when the fault concerns no setting
  Location where;
  std::string message;  // the expected and the found value, without path and location
  std::vector<std::string> notes;
  std::string help;  // the edit that fixes it
  Location shadows;  // the location of the value that this one replaced; empty when there was none
  std::string shadowed_value;

  Diagnostic& note(std::string text) { return notes.push_back(std::move(text)), *this; }
  Diagnostic& fix(std::string text) { return help = std::move(text), *this; }
};

class MT_API Report {
 public:
  /// Adds a fault. The returned reference is valid until the next call.
  Diagnostic& error(std::string code, std::string path, Location where, std::string message);
  Diagnostic& warning(std::string code, std::string path, Location where, std::string message);
  void add(Report other);

  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }
  size_t errors() const { return errors_; }
  size_t warnings() const { return diagnostics_.size() - errors_; }
  bool ok() const { return errors_ == 0; }
  /// Adds to each fault the value that the faulty one replaced. `tree`: the composed recipe. Skips
  /// the settings in `secrets`.
  void add_shadows(const Node& tree, const std::vector<std::string>& secrets);

  /// Sorts by location: files in reading order, then the command line, then faults without a
  /// location. Errors and warnings are mixed.
  void sort();
  /// The first `limit` faults, sorted, then the counts. If there are more faults than that and some
  /// are errors, only errors are shown. "" when there are no faults.
  std::string text(size_t limit = 20) const;
  /// {"errors": n, "warnings": n, "diagnostics": [{severity, code, path, file, line, column,
  /// shadows, message, notes, help}]}
  std::string json() const;
  /// The exit status of the process: 0 without errors, 10 for an invalid configuration, 13 when
  /// unusable plugins are the only errors.
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
