#include "mtrain/finetune/record_fields.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "mtrain/base/text.h"
#include "mtrain/finetune/mapped_names.h"

namespace mtrain::finetune {
namespace {

/// Usual names of a field in other files, the most usual first.
const std::vector<std::string>& usual_names(const std::string& name) {
  static const std::vector<std::string> answers = {"response", "answer",     "output",    "reply",
                                                   "solution", "generation", "completion"},
                                        talks = {"conversation", "conversations", "messages",
                                                 "dialogue",     "dialog",        "chat"},
                                        none;
  static const std::map<std::string, std::vector<std::string>> all = {
      {"prompt", {"question", "instruction", "query", "input", "problem", "user", "human"}},
      {"instruction", {"question", "prompt", "query", "problem"}},
      {"completion", answers},
      {"output", answers},
      {"chosen", {"preferred", "better", "accepted", "good", "winner"}},
      {"rejected", {"dispreferred", "worse", "refused", "bad", "loser"}},
      {"label", {"is_good", "good", "desirable", "preference", "class", "category"}},
      {"messages", talks},
      {"conversations", talks},
      {"text", {"sentence", "review", "content", "body", "document", "question"}},
      {"content", {"text", "value", "message"}},
      {"value", {"text", "content", "message"}},
      {"role", {"speaker", "author", "from"}}};
  const auto found = all.find(name);
  return found == all.end() ? none : found->second;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// Whether a field may be the missing one: its value is of a fitting type, and nothing reads it.
bool may_be(const std::string& field, const Json& value, const std::string& name,
            const Columns& columns) {
  static const std::vector<std::string> read = {"prompt", "completion", "chosen", "rejected",
                                                "label",  "system",     "tools",  "margin",
                                                "role",   "from"};
  const bool fits = name == "label" ? value.is_primitive() && !value.is_null()
                                    : value.is_string() || value.is_array() || value.is_object();
  const bool mapped =
      std::ranges::any_of(columns, [&](const auto& entry) { return entry.second == field; });
  const bool own = std::ranges::find(read, field) != read.end() && !columns.contains(field);
  const std::string small = lower(field);
  return fits && !mapped && !own && small != "id" && !small.ends_with("_id");
}

/// As YAML writes it in {…}.
std::string flow_text(const std::string& text) {
  const bool plain = !text.empty() && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' ||
           c == '/' || static_cast<unsigned char>(c) >= 0x80;
  });
  return plain ? printable(text, 60) : cat('"', printable(text, 60), '"');
}

}  // namespace

const Json* find_field(const Json& record, const char* name, const Columns& columns) {
  auto mapped = columns.find(name);
  auto found = record.find(mapped == columns.end() ? std::string(name) : mapped->second);
  return found == record.end() || found->is_null() ? nullptr : &*found;
}

const Json* own_field(const Json& record, const char* name, const Columns& columns) {
  const std::string theirs = name_in_file(name, columns);
  const bool other = std::ranges::any_of(
      columns, [&](const auto& entry) { return entry.first != name && entry.second == theirs; });
  return other ? nullptr : find_field(record, name, columns);
}

std::string name_in_file(const std::string& name, const Columns& columns) {
  const auto mapped = columns.find(name);
  return mapped == columns.end() ? name : mapped->second;
}

bool is_left_out(const std::string& name, const Columns& columns) {
  return name_in_file(name, columns) == kNoField;
}

std::string field_names(const Json& record) {
  constexpr size_t kMost = 12;
  std::vector<std::string> names;
  for (const auto& [key, value] : record.items())
    if (names.size() < kMost) names.push_back(key);
  return names.empty() ? "none" : printable(join(names, ", "), 300);
}

std::string missing_field(const Json& record, const char* name, const Columns& columns) {
  const std::string theirs = name_in_file(name, columns);
  return record.contains(theirs) ? cat("the field '", printable(theirs, 60), "' is null")
                                 : cat("has no field '", printable(theirs, 60),
                                       "'; its fields are ", field_names(record));
}

std::string likely_field(const Json& record, const std::string& name, const Columns& columns) {
  std::vector<std::string> fields;
  for (const auto& [field, value] : record.items())
    if (may_be(field, value, name, columns)) fields.push_back(field);
  if (const auto near = nearest(name, fields, 1); !near.empty()) return near[0];
  for (const std::string& usual : usual_names(name))
    for (const std::string& field : fields)
      if (lower(field) == usual) return field;
  return {};
}

std::string columns_setting(const Columns& columns, const Columns& changes) {
  Columns merged = changes;
  merged.insert(columns.begin(), columns.end());
  std::vector<std::string> entries;
  for (const auto& [ours, theirs] : merged)
    if (ours != theirs) entries.push_back(cat(flow_text(ours), ": ", flow_text(theirs)));
  return cat("dataset.columns='{", join(entries, ", "), "}'");
}

std::string missing_help(const Json& record, const std::string& name, const Columns& columns,
                         const std::string& otherwise) {
  const std::string likely = likely_field(record, name, columns);
  if (likely.empty()) return otherwise;
  const bool answer = name == "chosen" || name == "rejected";
  return cat("if '", printable(likely, 60), "' is the ", name, answer ? " answer: " : ": ",
             columns_setting(columns, {{name, likely}}));
}

void refuse_with_texts(const Json& record, const Columns& columns) {
  for (const char* name : {"system", "tools"}) {
    const Json* found = find_field(record, name, columns);
    if (!found || found->empty() || *found == "") continue;
    throw RecordFault{cat("has ", name, ", and its prompt and answer are texts"),
                      cat("a chat template makes one text of them if prompt and answer are lists "
                          "of messages; otherwise put it in front of the prompt, or ignore it: ",
                          columns_setting(columns, {{name, kNoField}}))};
  }
}

void refuse_alpaca_fields(const Json& record, const Columns& columns) {
  for (const char* name : {"input", "history"}) {
    const Json* found = own_field(record, name, columns);
    if (!found || found->empty() || *found == "") continue;
    throw RecordFault{
        cat("has the field '", name, "' of an alpaca record besides its prompt"),
        cat("add it to the prompt; or ignore it: ", columns_setting(columns, {{name, kNoField}}))};
  }
}

}  // namespace mtrain::finetune
