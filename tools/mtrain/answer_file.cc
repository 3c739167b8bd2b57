#include "answer_file.h"

#include <chrono>
#include <deque>
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

/// The records of a file that have no answer yet, and the file of the answers.
class Answers {
 public:
  Answers(const fs::path& prompts, const fs::path& output, const std::string& system)
      : prompts_(prompts),
        output_(output),
        system_(system),
        before_(answered(output)),
        out_(output, std::ios::app | std::ios::binary),
        lines_(prompts, kLongestLine, "split the record") {
    require_written("give a file in a folder that is there");
    if (!before_.empty())
      log_info(printable(output.string()), " has ", counted(std::ssize(before_), "answer"),
               ": the others follow");
  }
  std::optional<AskedRecord> next();
  void add(const std::string& text);
  /// After the last record.
  void finish() const;

 private:
  void require_written(const char* help) const {
    MT_USER_CHECK(out_.good(), ErrorClass::io, cat("cannot write ", printable(output_.string())),
                  help);
  }

  const fs::path &prompts_, &output_;
  const std::string& system_;
  std::vector<std::string> before_;
  std::ofstream out_;
  LineReader lines_;
  std::deque<Json> asked_;  // the messages of records whose answers are not written yet
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(),
                                        reported_ = start_;
  int64_t index_ = 0, written_ = 0, empty_ = 0;
};

std::optional<AskedRecord> Answers::next() {
  for (std::string_view line; lines_.next(line);) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    std::vector<PromptMessage> prompt = prompt_of(line, system_, lines_.place());
    Json messages = messages_json(prompt);
    const int64_t mine = index_++;
    if (mine < std::ssize(before_)) {
      require_answer(before_[static_cast<size_t>(mine)], messages, lines_.place(), output_);
      continue;
    }
    asked_.push_back(std::move(messages));
    return AskedRecord{std::move(prompt), mine};
  }
  return std::nullopt;
}

void Answers::add(const std::string& text) {
  Json messages = std::move(asked_.front());
  asked_.pop_front();
  empty_ += text.empty();
  messages.push_back({{"role", "assistant"}, {"content", text}});
  out_ << Json{{"messages", std::move(messages)}}.dump(-1, ' ', false,
                                                       Json::error_handler_t::replace)
       << '\n'
       << std::flush;
  require_written("make room, and start the same command again: it continues");
  ++written_;
  if (seconds_since(reported_) < 10) return;
  reported_ = std::chrono::steady_clock::now();
  log_info(counted(std::ssize(before_) + written_, "record"), " answered, ",
           human_seconds(seconds_since(start_) / static_cast<double>(written_)), " each");
}

void Answers::finish() const {
  MT_USER_CHECK(index_ >= std::ssize(before_), ErrorClass::data,
                cat(printable(output_.string()), " has ", counted(std::ssize(before_), "answer"),
                    ", and ", printable(prompts_.string()), " ", counted(index_, "record")),
                "write to another file");
  if (empty_ > 0)
    log_warn(counted(empty_, "answer"), empty_ == 1 ? " is" : " are",
             " empty (blanks and line ends around an answer are left out)",
             "\n  help: raise --max-tokens, or remove these records before training");
}

}  // namespace

void answer_records(
    const fs::path& prompts, const fs::path& output, const std::string& system,
    const std::function<void(const std::function<std::optional<AskedRecord>()>& next,
                             const std::function<void(std::string)>& done)>& answer_all) {
  Answers answers(prompts, output, system);
  answer_all([&] { return answers.next(); }, [&](const std::string& text) { answers.add(text); });
  answers.finish();
}

}  // namespace mtrain
