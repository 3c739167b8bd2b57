#include "answer_file.h"

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mtrain/base/counted.h"
#include "mtrain/base/elapsed.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/data/line_reader.h"

namespace mtrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kLongestLine = uint64_t{1} << 28;

Error of_record(const std::string& place, const std::string& fault) {
  return {
      ErrorClass::data, cat(place, ": ", fault),
      R"(a record is {"prompt": "a text"} or {"messages": [{"role": "user", "content": "a text"}]})"};
}

std::vector<PromptMessage> messages_of(const Json& list, const std::string& place) {
  std::vector<PromptMessage> out;
  for (const Json& one : list) {
    const bool whole = one.is_object() && one.contains("role") && one["role"].is_string() &&
                       one.contains("content") && one["content"].is_string();
    if (!whole) throw of_record(place, "a message without a text as role and as content");
    out.push_back({one["role"], one["content"]});
    const std::string& role = out.back().role;
    if (role != "user" && role != "assistant" && (role != "system" || out.size() > 1))
      throw of_record(place,
                      cat("a message of the role '", printable(role, 40), "' at place ", out.size(),
                          "; wanted a system message first, then turns of user "
                          "and assistant"));
  }
  return out;
}

/// Up to the last message of the user.
std::vector<PromptMessage> prompt_of(std::string_view line, const std::string& system,
                                     const std::string& place) {
  const Json record = Json::parse(line, nullptr, false);
  if (!record.is_object()) throw of_record(place, "is not a JSON object");
  std::vector<PromptMessage> out;
  const char* field = record.contains("messages") ? "messages" : "prompt";
  if (!record.contains(field)) throw of_record(place, "has neither 'prompt' nor 'messages'");
  if (record[field].is_string())
    out = {{"user", record[field]}};
  else if (record[field].is_array())
    out = messages_of(record[field], place);
  while (!out.empty() && out.back().role != "user") out.pop_back();
  if (out.empty()) throw of_record(place, cat("'", field, "' has no message of the user"));
  if (!system.empty() && out.front().role != "system") out.insert(out.begin(), {"system", system});
  return out;
}

Json messages_json(const std::vector<PromptMessage>& messages) {
  Json out = Json::array();
  for (const PromptMessage& one : messages)
    out.push_back({{"role", one.role}, {"content", one.content}});
  return out;
}

/// The whole lines of an output; a line that was being written is cut off.
std::vector<std::string> answered(const fs::path& output) {
  std::error_code none;
  std::vector<std::string> out;
  if (!fs::exists(output, none)) return out;
  const std::string text = read_file(output, uint64_t{1} << 40);
  const size_t end = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
  if (end < text.size()) fs::resize_file(output, end);
  for (size_t at = 0; at < end;) {
    const size_t next = text.find('\n', at);
    out.push_back(text.substr(at, next - at)), at = next + 1;
  }
  return out;
}

/// Refuses an output whose line answers something else.
void require_answer(const std::string& line, const Json& prompt, const std::string& place,
                    const fs::path& output) {
  Json there = Json::parse(line, nullptr, false);
  const bool turns = there.is_object() && there.contains("messages") &&
                     there["messages"].is_array() && !there["messages"].empty();
  if (turns) there["messages"].erase(there["messages"].size() - 1);
  MT_USER_CHECK(turns && there["messages"] == prompt, ErrorClass::data,
                cat(printable(output.string()), " is there, and does not answer ", place),
                "continue it with the prompts and --system with which it began, or write to "
                "another file");
}

}  // namespace

void answer_records(
    const fs::path& prompts, const fs::path& output, const std::string& system,
    const std::function<std::string(const std::vector<PromptMessage>&, int64_t index)>& answer) {
  const std::vector<std::string> before = answered(output);
  std::ofstream out(output, std::ios::app | std::ios::binary);
  MT_USER_CHECK(out.good(), ErrorClass::io, cat("cannot write ", printable(output.string())),
                "give a file in a folder that is there");
  LineReader lines(prompts, kLongestLine, "split the record");
  const auto start = std::chrono::steady_clock::now();
  auto reported = start;
  int64_t index = 0, empty = 0;
  if (!before.empty())
    log_info(printable(output.string()), " has ", counted(std::ssize(before), "answer"),
             ": the others follow");
  for (std::string_view line; lines.next(line);) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::vector<PromptMessage> prompt = prompt_of(line, system, lines.place());
    Json messages = messages_json(prompt);
    const int64_t mine = index++;
    if (mine < std::ssize(before)) {
      require_answer(before[static_cast<size_t>(mine)], messages, lines.place(), output);
      continue;
    }
    const std::string text = answer(prompt, mine);
    empty += text.empty();
    messages.push_back({{"role", "assistant"}, {"content", text}});
    out << Json{{"messages", std::move(messages)}}.dump(-1, ' ', false,
                                                        Json::error_handler_t::replace)
        << '\n'
        << std::flush;
    MT_USER_CHECK(out.good(), ErrorClass::io, cat("cannot write ", printable(output.string())),
                  "make room, and start the same command again: it continues");
    if (seconds_since(reported) < 10) continue;
    reported = std::chrono::steady_clock::now();
    log_info(counted(index, "record"), " answered, ",
             human_seconds(seconds_since(start) / static_cast<double>(index - std::ssize(before))),
             " each");
  }
  MT_USER_CHECK(index >= std::ssize(before), ErrorClass::data,
                cat(printable(output.string()), " has ", counted(std::ssize(before), "answer"),
                    ", and ", printable(prompts.string()), " ", counted(index, "record")),
                "write to another file");
  if (empty > 0)
    log_warn(counted(empty, "answer"), empty == 1 ? " is" : " are", " empty",
             "\n  help: raise --max-tokens, or remove these records before training");
}

}  // namespace mtrain
