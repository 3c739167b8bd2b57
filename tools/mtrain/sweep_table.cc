#include "sweep_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mtrain/base/text.h"
#include "mtrain/record/run_summary.h"

namespace mtrain {
namespace {

std::string short_number(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : "-";
}
std::string exact(const std::optional<double>& value) { return value ? shortest(*value) : ""; }

std::string settings_text(const TrialResult& row) {
  std::string out;
  for (const auto& [key, value] : row.settings) out += cat(out.empty() ? "" : " ", key, "=", value);
  return out;
}

std::string csv_quoted(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

void keep_lower(std::optional<double>& best, double value) {
  if (!best || value < *best) best = value;
}

size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

SweepTable::SweepTable(const std::vector<SweepTrial>& trials) {
  for (const auto& trial : trials) {
    rows_.emplace_back();
    rows_.back().trial = trial.request.trial;
    rows_.back().settings = trial.settings;
  }
}

void SweepTable::read_metrics(size_t trial, const fs::path& run_folder) {
  TrialResult& row = rows_[trial];
  row.seconds.reset();
  std::ifstream in(run_folder / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) continue;  // the last line of a killed run may be incomplete
    row.steps = std::max(row.steps, json.value("step", int64_t{0}));
    auto number = [&](const char* key) -> std::optional<double> {
      auto found = json.find(key);
      return found != json.end() && found->is_number() ? std::optional(found->get<double>())
                                                       : std::nullopt;
    };
    if (auto ms = number("step_ms")) row.seconds = row.seconds.value_or(0) + *ms / 1e3;
    if (auto loss = number("loss")) row.last_loss = *loss, keep_lower(row.best_loss, *loss);
    if (auto loss = number("val_loss")) keep_lower(row.best_val_loss, *loss);
  }
  // With logger.metrics=false, only the checkpoints tell how far the trial is.
  if (is_run_folder(run_folder)) row.steps = std::max(row.steps, summarize_run(run_folder).step);
}

std::string SweepTable::text() const {
  std::vector<std::vector<std::string>> lines = {{"trial", "settings", "outcome", "steps",
                                                  "last loss", "best loss", "best valid loss",
                                                  "time"}};
  for (const auto& row : rows_)
    lines.push_back({std::to_string(row.trial), printable(settings_text(row), 100), row.outcome,
                     std::to_string(row.steps), short_number(row.last_loss),
                     short_number(row.best_loss), short_number(row.best_val_loss),
                     row.seconds ? human_seconds(*row.seconds) : "-"});
  std::vector<size_t> widths(lines[0].size());
  for (const auto& line : lines)
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], width(line[c]));
  std::string out;
  for (const auto& line : lines) {
    std::string row;
    for (size_t c = 0; c < line.size(); ++c) {
      std::string space(widths[c] - width(line[c]), ' ');
      const bool words = c == 1 || c == 2;  // numbers are right-aligned
      row += cat(c > 0 ? "  " : "", words ? "" : space, line[c], words ? space : "");
    }
    out += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string SweepTable::csv() const {
  std::vector<std::string> keys;
  for (const auto& row : rows_)
    for (const auto& [key, value] : row.settings)
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  std::string out = "trial";
  for (const auto& key : keys) out += "," + csv_quoted(key);
  out += ",outcome,steps,last_loss,best_loss,best_val_loss,seconds\n";
  for (const auto& row : rows_) {
    out += std::to_string(row.trial);
    for (const auto& key : keys) {
      auto found = std::find_if(row.settings.begin(), row.settings.end(),
                                [&](const auto& s) { return s.first == key; });
      out += "," + (found == row.settings.end() ? "" : csv_quoted(found->second));
    }
    out += cat(",", row.outcome, ",", row.steps, ",", exact(row.last_loss), ",",
               exact(row.best_loss), ",", exact(row.best_val_loss), ",", exact(row.seconds), "\n");
  }
  return out;
}

void SweepTable::save(const fs::path& folder) const {
  make_directories(folder);
  write_file_atomic(folder / "sweep.csv", csv());
}

}  // namespace mtrain
