#include "mtrain/finetune/messages.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/counted.h"
#include "mtrain/base/text.h"
#include "mtrain/finetune/example_encoder.h"
#include "mtrain/finetune/mapped_names.h"

namespace mtrain::finetune {
namespace {

/// A role's name in datasets -> its name in chat templates.
const std::map<std::string, std::string> kRoles = {
    {"human", "user"},         {"gpt", "assistant"},
    {"chatgpt", "assistant"},  {"bot", "assistant"},
    {"model", "assistant"},    {"observation", "tool"},
    {"function_call", "call"}, {"tool_call", "call"},
    {"tool_response", "tool"}, {"function_response", "tool"},
    {"ipython", "tool"}};

/// Joins the parts of a content (OpenAI, LLaMA-Factory) when all of them are text.
Json joined_parts(const Json& parts) {
  std::string text;
  for (const auto& part : parts) {
    if (!part.is_object())
      throw RecordFault{"has a part of a content that is not an object",
                        "wanted {\"type\": \"text\", \"text\": …}"};
    auto found = part.contains("text") ? part.find("text") : part.find("value");
    if (part.value("type", "text") != "text" || found == part.end() || !found->is_string())
      throw RecordFault{
          cat("has a part of a content of type '", printable(part.value("type", "?"), 40), "'"),
          "text models can train only on parts of type text"};
    text += found->get<std::string>();
  }
  return text;
}

/// {"name", "arguments"} -> the form of a call in chat templates.
Json call_of(const Json& call) {
  if (!call.is_object() || !call.contains("name"))
    throw RecordFault{"calls a function without a name",
                      "wanted {\"name\": …, \"arguments\": {…}}"};
  Json arguments = call.value("arguments", Json::object());
  if (arguments.is_string()) {
    Json parsed = Json::parse(arguments.get_ref<const std::string&>(), nullptr, false);
    if (parsed.is_object()) arguments = parsed;
  }
  return {{"type", "function"}, {"function", {{"name", call["name"]}, {"arguments", arguments}}}};
}

/// Parses arguments that are JSON as text, which is OpenAI's form: templates write arguments as
/// JSON, and would write the text as a string of JSON.
void parse_arguments(Json& calls) {
  if (!calls.is_array()) return;
  for (Json& call : calls) {
    if (!call.is_object()) continue;
    Json& of = call.contains("function") && call["function"].is_object() ? call["function"] : call;
    if (!of.contains("arguments") || !of["arguments"].is_string()) continue;
    const std::string text = of["arguments"].get<std::string>();
    Json parsed = Json::parse(text.empty() ? "{}" : text, nullptr, false);
    if (!parsed.is_object())
      throw RecordFault{cat("calls a function with the arguments ", printable(text, 60)),
                        "wanted an object, or JSON of one as text"};
    of["arguments"] = std::move(parsed);
  }
}

/// Parses a message of the role "function_call": JSON of one call or of a list of calls.
Json calls_of(const std::string& text) {
  Json parsed = Json::parse(text, nullptr, false);
  Json calls = Json::array();
  if (parsed.is_object()) calls.push_back(call_of(parsed));
  if (parsed.is_array())
    for (const auto& call : parsed) calls.push_back(call_of(call));
  if (calls.empty())
    throw RecordFault{"has a function call that is not a JSON object",
                      "wanted {\"name\": …, \"arguments\": {…}}"};
  return calls;
}

}  // namespace

const std::vector<std::string>& template_roles() {
  static const std::vector<std::string> roles = {
      "system", "developer", "user",    "assistant", "tool",
      "call",   "function",  "context", "documents", "tool_results"};
  return roles;
}

MessageWeight take_weight(Json& message) {
  MessageWeight out;
  std::string zero;
  for (const char* key : {"weight", "train", "training", "loss_weight", "loss"}) {
    auto given = message.find(key);
    if (given == message.end()) continue;
    const std::string text = cat(key, ' ', printable(given->dump(), 40));
    const bool number = given->is_number() && (*given == 0 || *given == 1);
    if (!given->is_null() && !given->is_boolean() && !number)
      throw RecordFault{cat("has a message with ", text),
                        "wanted 0 or false (the message is not trained on), or 1 or true (it is); "
                        "other weights are not possible"};
    if (*given == false || *given == 0)
      out.excluded = true, zero = text;
    else if (!given->is_null())
      out.wanted = text;
    message.erase(given);
  }
  if (out.excluded && !out.wanted.empty())
    throw RecordFault{cat("has a message with ", zero, " and with ", out.wanted),
                      "leave one of them out"};
  return out;
}

namespace {

/// Refuses a role that is unknown: words of an assistant under another name would not be trained
/// on.
std::string known_role(const std::string& text, const FormatOptions& options) {
  if (auto own = options.roles.find(text); own != options.roles.end()) return own->second;
  if (auto found = kRoles.find(text); found != kRoles.end()) return found->second;
  const auto& roles = template_roles();
  if (std::find(roles.begin(), roles.end(), text) != roles.end()) return text;
  const std::string role = printable(text, 40);
  throw RecordFault{
      cat("has a message of the unknown role '", role, "'"),
      cat("set dataset.roles={", role, ": assistant} to train on its messages, {", role,
          ": user} not to, or {", role, ": ", role, "} if the chat template knows this role")};
}

/// Refuses axolotl's field that excludes parts of a message from training.
void refuse_train_detail(const Json& message) {
  auto given = message.find("train_detail");
  if (given == message.end() || given->is_null()) return;
  throw RecordFault{
      "has a message with train_detail, and messages are trained on whole or not at all",
      "remove the field, write the record as segments, or exclude the whole message "
      "by train: false"};
}

/// `who`: the field of its role, "from" or "role", which says how the text's is called.
[[noreturn]] void refuse_without_content(const Json& message, const std::string& role,
                                         std::string_view who, const Columns& columns) {
  const char* name = who == "from" ? "value" : "content";
  const bool null = message.contains(name_in_file(name, columns));
  const std::string field = cat("'", printable(name_in_file(name, columns), 60), "'");
  throw RecordFault{
      cat("has a message of '", printable(role, 40), "' without content: ",
          null ? cat(field, " is null")
               : cat("it has no field ", field, ", its fields are ", field_names(message))),
      null ? std::string("wanted a text; leave the message or the record out")
           : missing_help(message, name, columns, cat("wanted a text in the field ", field))};
}

/// Refuses a message that asks to be trained on and whose role never is.
void refuse_wanted(const MessageWeight& weight, const std::string& role,
                   const FormatOptions& options) {
  if (weight.wanted.empty() || options.trains_all || role == "assistant") return;
  throw RecordFault{
      cat("has a message of '", printable(role, 40), "' with ", weight.wanted,
          ", and only messages of the assistant are trained on"),
      "leave the field out or write 0, or train on all messages: dataset.train_on=all of "
      "dataset=sft"};
}

}  // namespace

Conversation::Conversation(const FormatOptions& options)
    : options_(options),
      messages_(std::make_unique<Json>(Json::array())),
      tools_(std::make_unique<Json>()) {}
Conversation::Conversation(Conversation&&) noexcept = default;
Conversation::~Conversation() = default;

bool Conversation::begins_with(const std::string& role) const {
  return !empty() && messages_->front().at("role") == role;
}

size_t Conversation::size() const { return messages_->size(); }

void Conversation::add(const Json& message, bool may_train) {
  if (!message.is_object())
    throw RecordFault{cat("has a message that is not an object but ", message.type_name()),
                      "wanted {\"role\": …, \"content\": …}"};
  const Json* who = find_field(message, "from", options_.columns);
  const Json* words = find_field(message, "value", options_.columns);
  const char* who_name = who ? "from" : "role";
  if (!who)
    who = find_field(message, "role", options_.columns),
    words = find_field(message, "content", options_.columns);
  if (!who || !who->is_string())
    throw RecordFault{cat("has a message without a role: ", printable(message.dump(), 80)),
                      missing_help(message, "role", options_.columns,
                                   "wanted {\"role\": …, \"content\": …} or {\"from\": …, "
                                   "\"value\": …}; dataset.columns maps them if they have other "
                                   "names")};
  const auto own_names = {"from", "value", "role", "content"};
  Json out;
  const std::string role = known_role(who->get<std::string>(), options_);
  out["role"] = role == "call" ? "assistant" : role;
  if (words && words->is_array()) out["content"] = joined_parts(*words);
  if (words && words->is_string()) out["content"] = *words;
  if (role == "call") {
    if (!words || !words->is_string())
      throw RecordFault{"has a function call that is not a text",
                        "wanted JSON as text: {\"name\": …, \"arguments\": {…}}"};
    out["content"] = "";
    out["tool_calls"] = calls_of(words->get<std::string>());
  }
  for (const auto& [key, value] : message.items()) {
    bool known = &value == who || &value == words || out.contains(key);
    for (const char* own : own_names) known = known || key == own;
    if (!known && !options_.columns.contains(key)) out[key] = value;
  }
  for (const auto& [name, field] : options_.columns) {  // reasoning_content: thoughts
    const bool known = std::find(own_names.begin(), own_names.end(), name) != own_names.end();
    if (auto mapped = message.find(field); !known && mapped != message.end()) {
      out.erase(field);
      out[name] = *mapped;
    }
  }
  if (out.contains("tool_calls")) parse_arguments(out["tool_calls"]);
  refuse_train_detail(out);
  const MessageWeight weight = take_weight(out);
  refuse_wanted(weight, out["role"].get<std::string>(), options_);
  if (words && !words->is_string() && !words->is_array())
    throw RecordFault{cat("has a message of '", printable(role, 40), "' with the content ",
                          printable(words->dump(), 40)),
                      "wanted a text"};
  if (!out.contains("content") && !out.contains("tool_calls"))
    refuse_without_content(message, role, who_name, options_.columns);
  messages_->push_back(std::move(out));
  trains_.push_back(may_train && !weight.excluded);
  excluded_.push_back(weight.excluded);
}

void Conversation::add_all(const Json& list, const std::string& what, bool may_train) {
  if (!list.is_array())
    throw RecordFault{cat("has no list in '", printable(name_in_file(what, options_.columns), 60),
                          "' but ", list.type_name()),
                      "wanted a list of messages, [{\"role\": …, \"content\": …}, …]"};
  for (const auto& message : list) add(message, may_train);
}

void Conversation::add_system(const Json& record, const Json* first, bool may_train) {
  const Json* system = find_field(record, "system", options_.columns);
  if (!system || *system == "") return;
  const std::string field = printable(name_in_file("system", options_.columns), 60);
  if (!system->is_string())
    throw RecordFault{cat("has ", system->type_name(), " in the field '", field, "'"),
                      "wanted a text: the system's message"};
  const auto& text = system->get_ref<const std::string&>();
  Conversation next(options_);
  if (first) next.add(*first);
  if (!next.begins_with("system")) return add_text("system", text, may_train);
  const std::string said = next.messages_->front().value("content", "");
  if (trim(said) != trim(text))
    throw RecordFault{
        cat("has the system's message '", printable(text, 60), "' in the field '", field,
            "', and messages that begin with another one: '", printable(said, 60), "'"),
        cat("leave one of them out; ", columns_setting(options_.columns, {{"system", kNoField}}),
            " ignores the field")};
}

void Conversation::add_text(const char* role, const std::string& text, bool may_train) {
  messages_->push_back({{"role", role}, {"content", text}});
  trains_.push_back(may_train);
  excluded_.push_back(false);
}

void Conversation::set_tools(const Json& tools) {
  Json list = tools;
  if (tools.is_string()) {
    if (tools.get_ref<const std::string&>().find_first_not_of(" \t\r\n") == std::string::npos)
      return;
    list = Json::parse(tools.get_ref<const std::string&>(), nullptr, false);
  }
  if (list.is_discarded() || !list.is_array())
    throw RecordFault{cat("has no list in 'tools' but ",
                          list.is_discarded() ? "a text that is not JSON" : list.type_name()),
                      "wanted [{\"type\": \"function\", …}]"};
  *tools_ = Json::array();
  for (const auto& tool : list)
    tools_->push_back(tool.is_object() && tool.contains("name") && !tool.contains("function")
                          ? Json{{"type", "function"}, {"function", tool}}
                          : tool);
}

Example Conversation::finish() && {
  Example out;
  out.kind = Example::Kind::chat;
  out.messages = messages_->dump();
  if (!tools_->empty()) out.tools = tools_->dump();
  out.trains = std::move(trains_);
  out.excluded = std::move(excluded_);
  return out;
}

bool has_empty_answer(const Example& example) {
  const auto blank = [](const std::string& text) {
    return text.find_first_not_of(" \t\r\n") == std::string::npos;
  };
  if (example.kind == Example::Kind::prompted)
    return !example.texts.empty() && example.texts.back().trained &&
           blank(example.texts.back().text);
  // Most conversations have no such text and need not be parsed again.
  if (example.kind != Example::Kind::chat ||
      example.messages.find(R"("content":"")") == std::string::npos)
    return false;
  const Json messages = Json::parse(example.messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (message.value("role", "") == "assistant" && example.trains[i] && !example.excluded[i] &&
        message.contains("content") && message["content"] == "" && !message.contains("tool_calls"))
      return true;
  }
  return false;
}

namespace {

constexpr int64_t kTextsSearched = 1000;  // looking for each special token in each text takes time

}  // namespace

void SpelledTokens::note(const ExampleEncoder& encoder, const Example& example) {
  if (example.kind != Example::Kind::prompted || ++seen > kTextsSearched) return;
  std::string found = encoder.spelled_special(example);
  if (found.empty() || count++ > 0) return;
  first = example.place;
  token = std::move(found);
}

std::string SpelledTokens::warning(const std::string& file) const {
  if (count == 0) return {};
  return cat(file, ": ", counted(count, "text"),
             seen > kTextsSearched ? cat(" of the first ", kTextsSearched) : std::string(),
             count == 1 ? " has" : " have", " the name of a special token, such as '",
             printable(token, 60), "' (first: ", first,
             "), which is read as plain characters\n  help: dataset.parse_special=true reads such "
             "names as the special tokens; or write conversations as messages, for the chat "
             "template");
}

std::string EmptyAnswers::warning(const std::string& file, int64_t records) const {
  if (count == 0) return {};
  return cat(file, ": ", count, " of ", counted(records, "record"),
             count == 1 ? " has an empty answer" : " have an empty answer", " (first: ", first,
             "), from which the model can only learn to stop at once\n  help: remove these "
             "records, or correct "
             "dataset.columns if the answers are in another field");
}

}  // namespace mtrain::finetune
