#include "mtrain/config/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/config/tree.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr size_t kLineCharacters = 100;  // a longer source line is shortened around the caret

/// The characters of a line in visible form, so columns can be counted.
std::vector<std::string> cells(std::string_view line) {
  std::vector<std::string> out;
  if (!valid_utf8(line)) {
    for (char c : line)
      out.push_back(static_cast<unsigned char>(c) < 0x80 ? visible({&c, 1}) : "?");
    return out;
  }
  for (size_t i = 0; i < line.size();) {
    size_t begin = i;
    next_character(line, i);
    out.push_back(visible(line.substr(begin, i - begin)));
  }
  return out;
}

/// How many characters of the token at `begin` to underline.
size_t token_length(const std::vector<std::string>& line, size_t begin) {
  if (begin >= line.size()) return 1;
  size_t end = begin;
  if (line[begin] == "\"" || line[begin] == "'") {
    for (end = begin + 1; end < line.size() && line[end] != line[begin];) ++end;
    return std::min(end, line.size() - 1) - begin + 1;
  }
  while (end < line.size() && line[end] != " " && line[end] != "," && line[end] != "]" &&
         line[end] != "}" && line[end] != "=") {
    if (line[end] == ":" && (end + 1 == line.size() || line[end + 1] == " ")) break;
    ++end;
  }
  return std::max<size_t>(end - begin, 1);
}

std::string source_lines(const Location& where) {
  auto line = cells(where.source->line(where.line));
  auto column = static_cast<size_t>(where.column - 1);
  if (line.empty()) return {};
  size_t length = token_length(line, column);
  size_t first = column > kLineCharacters * 2 / 3 ? column - kLineCharacters / 2 : 0;
  size_t last = std::min(line.size(), first + kLineCharacters);
  std::string text = first > 0 ? "…" : "", carets(text.empty() ? 0 : 1, ' ');
  for (size_t i = first; i < std::max(last, column + 1); ++i) {
    std::string cell = i < last ? line[i] : " ";
    size_t width = cell.size() > 4                              ? cell.size()
                   : static_cast<unsigned char>(cell[0]) < 0x80 ? cell.size()
                                                                : 1;
    if (i < last) text += cell;
    if (i < column + length) carets.append(width, i < column ? ' ' : '^');
  }
  std::string number = where.source->kind() == SourceKind::file ? std::to_string(where.line) : "";
  return fmt::format("\n {:>4} | {}{}\n      | {}", number, text, last < line.size() ? "…" : "",
                     carets);
}

}  // namespace

Diagnostic& Report::error(std::string code, std::string path, Location where, std::string message) {
  ++errors_;
  return diagnostics_.emplace_back(Diagnostic{Severity::error,
                                              std::move(code),
                                              std::move(path),
                                              std::move(where),
                                              std::move(message),
                                              {},
                                              {}});
}

Diagnostic& Report::warning(std::string code, std::string path, Location where,
                            std::string message) {
  return diagnostics_.emplace_back(Diagnostic{Severity::warning,
                                              std::move(code),
                                              std::move(path),
                                              std::move(where),
                                              std::move(message),
                                              {},
                                              {}});
}

void Report::add(Report other) {
  errors_ += other.errors_;
  for (auto& diagnostic : other.diagnostics_) diagnostics_.push_back(std::move(diagnostic));
}

void Report::add_shadows(const Node& tree, const std::vector<std::string>& secrets) {
  for (auto& d : diagnostics_) {
    const Node* node = d.path.empty() || !d.where ? nullptr : tree.find(d.path);
    bool secret = std::find(secrets.begin(), secrets.end(), d.path) != secrets.end();
    if (!node || secret || node->history().empty()) continue;
    if (!node->loc() || node->loc().source->name() != d.where.source->name())
      continue;  // the fault is not at the location of the value
    d.shadows = node->history().back().where;
    d.shadowed_value = node->history().back().value;
  }
}

void Report::sort() {
  std::stable_sort(diagnostics_.begin(), diagnostics_.end(),
                   [](const Diagnostic& a, const Diagnostic& b) { return a.where < b.where; });
}

std::string render(const Diagnostic& d) {
  std::string out = d.severity == Severity::error ? "error" : "warning";
  out += fmt::format("[{}] ", d.code);
  if (!d.path.empty()) out += visible(d.path) + ": ";
  out += visible(d.message, 1000);
  if (d.where) {
    std::string shadows;
    out += "\n  --> " + visible(d.where.text());
    if (d.shadows)
      shadows = fmt::format("   shadows {} ({})", visible(d.shadows.text()),
                            visible(d.shadowed_value, 40));
    bool argument = d.where.source->kind() == SourceKind::command_line;
    if (argument && d.where.column <= 1)
      out += ": " + visible(d.where.source->text(), 120) + shadows;
    else
      out += shadows + (d.where.line > 0 ? source_lines(d.where) : "");
  }
  if (!d.notes.empty()) out += "\n  note: " + visible(join(d.notes, "; "), 400);
  if (!d.help.empty()) out += "\n  help: " + visible(d.help, 400);
  return out;
}

std::string Report::text(size_t limit) const {
  if (diagnostics_.empty()) return {};
  Report sorted = *this;
  sorted.sort();
  std::string out;
  size_t shown = 0;
  // When not all fit, errors go first.
  bool errors_only = diagnostics_.size() > limit && errors_ > 0;
  for (const auto& diagnostic : sorted.diagnostics_) {
    if (errors_only && diagnostic.severity != Severity::error) continue;
    if (shown == limit) break;
    out += render(diagnostic) + "\n";
    ++shown;
  }
  if (size_t hidden = diagnostics_.size() - shown; hidden > 0)
    out += fmt::format("… and {} more; `mtrain check --json` lists all\n", hidden);
  if (errors_ > 0) out += counted(errors_, "error");
  if (errors_ > 0 && warnings() > 0) out += ", ";
  if (warnings() > 0) out += counted(warnings(), "warning");
  return out;
}

std::string Report::json() const {
  Report sorted = *this;
  sorted.sort();
  auto list = nlohmann::ordered_json::array();
  for (const auto& d : sorted.diagnostics_) {
    nlohmann::ordered_json item = {
        {"severity", d.severity == Severity::error ? "error" : "warning"}, {"code", d.code}};
    if (!d.path.empty()) item["path"] = d.path;
    if (d.where) item["file"] = d.where.source->name();
    if (d.where.line > 0) {
      item["line"] = d.where.line;
      item["column"] = d.where.column;
    }
    if (d.shadows) item["shadows"] = {{"at", d.shadows.text()}, {"value", d.shadowed_value}};
    item["message"] = d.message;
    if (!d.notes.empty()) item["notes"] = d.notes;
    if (!d.help.empty()) item["help"] = d.help;
    list.push_back(std::move(item));
  }
  nlohmann::ordered_json out = {
      {"errors", errors_}, {"warnings", warnings()}, {"diagnostics", std::move(list)}};
  // Broken UTF-8 of a hostile file must not make the report fail.
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

int Report::exit_status() const {
  if (errors_ == 0) return 0;
  bool plugins = std::all_of(diagnostics_.begin(), diagnostics_.end(), [](const Diagnostic& d) {
    return d.severity != Severity::error || d.code == "plugin";
  });
  return static_cast<int>(plugins ? ErrorClass::plugin : ErrorClass::config);
}

void Report::throw_if_errors() const {
  if (errors_ > 0) throw Error(static_cast<ErrorClass>(exit_status()), text());
}

}  // namespace mtrain
