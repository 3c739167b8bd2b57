#include "mtrain/finetune/mapped_names.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain::finetune {
namespace {

constexpr size_t kMostFields = 200;  // kept for suggestions

/// The fields of a format: of its records, and of the messages or segments in them. "*": any.
struct Reads {
  const char* format;
  std::vector<std::string> record, message;
};

const Reads& reads_of(const std::string& format) {
  static const std::vector<Reads> all = {
      {"alpaca", {"instruction", "input", "output", "system", "history"}, {}},
      {"sharegpt", {"conversations", "system", "tools"}, {"*"}},
      {"openai", {"messages", "system", "tools"}, {"*"}},
      {"prompt_completion", {"prompt", "completion", "system", "tools", "input", "history"}, {"*"}},
      {"text", {"text"}, {}},
      {"segments", {"segments"}, {"text", "label"}},
      {"tokens", {"input_ids", "labels", "attention_mask"}, {}},
      {"pairs",
       {"chosen", "rejected", "prompt", "conversations", "messages", "system", "tools", "margin",
        "input", "history"},
       {"*"}},
      {"labels",
       {"label", "completion", "prompt", "conversations", "messages", "system", "tools", "input",
        "history"},
       {"*"}}};
  return *std::find_if(all.begin(), all.end(), [&](const Reads& r) { return r.format == format; });
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Fields without which a record does not have its format.
bool makes_format(const std::string& name) {
  static const std::vector<std::string> all = {
      "instruction", "output",   "conversations", "messages", "prompt",  "completion",
      "text",        "segments", "input_ids",     "chosen",   "rejected"};
  return contains(all, name);
}

/// Refuses one field of the file in two roles, whose records would teach a model its own input.
void refuse_shared_fields(const Columns& columns, const std::string& format) {
  static const std::map<std::string, std::vector<std::string>> roles = {
      {"alpaca", {"instruction", "input", "output"}},
      {"prompt_completion", {"prompt", "completion"}},
      {"pairs", {"prompt", "chosen", "rejected"}},
      {"labels", {"prompt", "completion", "label"}}};
  const auto found = roles.find(format);
  if (found == roles.end()) return;
  std::map<std::string, std::string> role_of;  // by the field's name in the file
  for (const std::string& ours : found->second) {
    const auto mapped = columns.find(ours);
    const std::string& theirs = mapped == columns.end() ? ours : mapped->second;
    if (theirs == kNoField) continue;
    const auto [first, added] = role_of.emplace(theirs, ours);
    MT_USER_CHECK(added, ErrorClass::config,
                  cat("dataset.columns: the field '", printable(theirs, 60), "' is both ",
                      first->second, " and ", ours),
                  cat("map ", first->second, " and ", ours, " to different fields"));
  }
}

std::string entry_of(const std::string& key, const std::string& value) {
  return cat("{", printable(key, 60), ": ", printable(value, 60), "}");
}

bool any_has(std::span<const Json> records, const std::string& field) {
  return std::ranges::any_of(records, [&](const Json& record) {
    const auto found = record.find(field);
    return found != record.end() && !found->is_null();
  });
}

}  // namespace

void refuse_hiding_columns(std::span<const Json> records, const Columns& columns,
                           const std::string& file) {
  for (const auto& [ours, theirs] : columns)
    MT_USER_CHECK(theirs == kNoField || !makes_format(ours) || any_has(records, theirs) ||
                      !any_has(records, ours),
                  ErrorClass::config,
                  cat("dataset.columns=", entry_of(ours, theirs), ": none of the first records of ",
                      file, " has the field '", printable(theirs, 60),
                      "', and the entry hides their field '", printable(ours, 60), "'"),
                  "leave this entry out; ~dataset.columns removes all entries of the recipe");
}

MappedNames::MappedNames(const FormatOptions& options, const std::string& format)
    : format_(format) {
  refuse_shared_fields(options.columns, format);
  const Reads& reads = reads_of(format);
  has_messages_ = contains(reads.message, "*");
  for (const auto& [ours, theirs] : options.columns) {
    if (theirs == kNoField) continue;
    columns_.push_back({.ours = ours,
                        .theirs = theirs,
                        .of_record = contains(reads.record, ours),
                        .of_message = contains(reads.message, ours) ||
                                      (has_messages_ && !contains(reads.record, ours))});
  }
  for (const char* name : {"from", "role"}) {
    const auto mapped = options.columns.find(name);
    role_fields_.push_back(mapped == options.columns.end() ? name : mapped->second);
  }
  for (const auto& [theirs, ours] : options.roles) pending_roles_.insert(theirs);
  count_pending();
}

void MappedNames::count_pending() {
  pending_ = static_cast<size_t>(std::count_if(columns_.begin(), columns_.end(), [](const auto& c) {
    return !(c.of_record || c.of_message ? c.used : c.present);
  }));
}

void MappedNames::note(const Json& record) {
  noted_ = true;
  const bool seeks_roles = has_messages_ && !pending_roles_.empty();
  if (pending_ == 0 && !seeks_roles) return;
  note(record, false);
  for (const auto& [key, value] : record.items()) {
    if (value.is_object()) note(value, true);  // a single message
    if (!value.is_array()) continue;
    for (const Json& item : value)
      if (item.is_object()) note(item, true);
  }
  count_pending();
}

void MappedNames::note(const Json& object, bool is_message) {
  if (is_message && !pending_roles_.empty()) note_role(object);
  if (pending_ == 0) return;
  for (Column& column : columns_) {
    const auto found = object.find(column.theirs);
    if (found != object.end() && !found->is_null()) {
      column.present = true;
      column.used = column.used || (is_message ? column.of_message : column.of_record);
    }
    column.shadows = column.shadows || object.contains(column.ours);
  }
  for (const auto& [key, value] : object.items())
    if (fields_.size() < kMostFields) fields_.insert(key);
}

void MappedNames::note_role(const Json& message) {
  for (const std::string& field : role_fields_)
    if (const auto role = message.find(field); role != message.end() && role->is_string())
      pending_roles_.erase(role->get_ref<const std::string&>());
}

std::string MappedNames::warning_of(const Column& column, const std::string& file) const {
  return column.present
             ? cat("dataset.columns=", entry_of(column.ours, column.theirs), " has no effect on ",
                   file, ": its format does not read '", printable(column.ours, 60), "' there")
             : cat("dataset.columns=", entry_of(column.ours, column.theirs), " has no effect on ",
                   file, ": no record has the field '", printable(column.theirs, 60), "'");
}

std::vector<std::string> MappedNames::finish(const std::string& file) const {
  std::vector<std::string> out;
  if (!noted_) return out;
  const std::vector<std::string> fields(fields_.begin(), fields_.end());
  for (const Column& column : columns_) {
    if (column.used) continue;
    const auto near =
        column.present ? std::vector<std::string>() : nearest(column.theirs, fields, 1);
    const bool read = column.of_record || column.of_message;
    const bool wrong =
        !column.present && (column.shadows || !near.empty() ||
                            (makes_format(column.ours) && (read || format_ == "text")));
    MT_USER_CHECK(!wrong, ErrorClass::config,
                  cat("dataset.columns=", entry_of(column.ours, column.theirs), ": no record of ",
                      file, " has the field '", printable(column.theirs, 60), "'"),
                  cat(near.empty() ? cat("their fields are ", printable(join(fields, ", "), 300))
                                   : cat("did you mean '", printable(near[0], 60), "'?"),
                      "; {", printable(column.ours, 60), ": ", kNoField, "} ignores the field"));
    out.push_back(warning_of(column, file));
  }
  for (const std::string& role : pending_roles_)
    out.push_back(
        cat("dataset.roles has no effect on ", file, " for '", printable(role, 60),
            has_messages_ ? "': no message has this role" : "': its records have no messages"));
  return out;
}

}  // namespace mtrain::finetune
