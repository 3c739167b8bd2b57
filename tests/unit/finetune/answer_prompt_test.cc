// The prompt of answers that are messages: written once, without the answers, or refused by name.
#include "mtrain/finetune/answer_prompt.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "has.h"
#include "mtrain/base/text.h"
#include "mtrain/finetune/preference.h"

using namespace mtrain;
using namespace mtrain::finetune;
using namespace mtrain::testing;

namespace {

/// "user q0 | assistant [g]": the messages of an answer, in brackets those that are trained on.
std::string messages_and_mask(const Example& example) {
  if (example.kind == Example::Kind::prompted)
    return cat("text ", example.texts[0].text, " | [", example.texts[1].text, "]");
  const Json messages = Json::parse(example.messages);
  std::string out;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto role = messages[i]["role"].get<std::string>(),
               content = messages[i].value("content", "");
    const bool trained = example.trains[i] && role == "assistant";
    out += cat(i == 0 ? "" : " | ", role, trained ? " [" : " ", content, trained ? "]" : "");
  }
  return out;
}

/// Records in short: U, A, S stand for messages of the user, the assistant and the system.
std::string expanded(const std::string& record) {
  std::string out;
  for (size_t i = 0; i < record.size(); ++i) {
    const char* role = record[i] == 'U'   ? "user"
                       : record[i] == 'A' ? "assistant"
                       : record[i] == 'S' ? "system"
                                          : nullptr;
    if (!role || i + 1 == record.size() || record[i + 1] != '(') {
      out += record[i];
      continue;
    }
    const size_t end = record.find(')', i);
    out +=
        cat(R"({"role":")", role, R"(","content":")", record.substr(i + 2, end - i - 2), R"("})");
    i = end;
  }
  return out;
}

Preference preference_of(const std::string& record, const FormatOptions& options = {}) {
  const Json json = Json::parse(expanded(record));
  return read_preference(json, json.contains("label") ? "labels" : "pairs", options, "x.jsonl:1");
}

/// The chosen and the rejected answer, or the only one.
std::string read_of(const std::string& record, const FormatOptions& options = {}) {
  const Preference read = preference_of(record, options);
  const std::string chosen = messages_and_mask(read.chosen);
  return read.rejected ? cat(chosen, " / ", messages_and_mask(*read.rejected)) : chosen;
}

std::string sft_of(const std::string& record, const FormatOptions& options = {}) {
  return messages_and_mask(RecordReader(RecordFormat::prompt_completion, options)
                               .read(Json::parse(expanded(record)), "x.jsonl:1"));
}

template <class Action>
std::string fault_of(const Action& action) {
  try {
    return cat("read: ", action());
  } catch (const RecordFault& fault) {
    CHECK_MESSAGE(!fault.hint.empty(), fault.what);
    return cat(fault.what, "\nhelp: ", fault.hint);
  }
}

void check_refused(const std::string& record, std::initializer_list<const char*> parts,
                   const FormatOptions& options = {}) {
  const std::string fault = fault_of([&] { return read_of(record, options); });
  for (const char* part : parts) CHECK_MESSAGE(has(fault, part), record, "\n", fault);
}

void check_sft_refused(const std::string& record, std::initializer_list<const char*> parts) {
  const std::string fault = fault_of([&] { return sft_of(record); });
  for (const char* part : parts) CHECK_MESSAGE(has(fault, part), record, "\n", fault);
}

const FormatOptions kNoPrompt{.columns = {{"prompt", "none"}}};

}  // namespace

TEST_CASE("of whole conversations, the prompt is the common beginning, which fields may repeat") {
  const std::string pair = R"("chosen":[U(q),A(g)],"rejected":[U(q),A(b)])",
                    both = "user q | assistant [g] / user q | assistant [b]";
  for (const char* more :
       {"", R"("prompt":"q",)", R"("prompt":" q\n",)", R"("prompt":[U(q)],)",
        R"("messages":[U(q),A(g)],)", R"("prompt":"q","messages":[U(q),A(g)],)",
        R"("prompt":[U(q)],"messages":[U(q),A(g)],)", R"("messages":[U(q)],)",
        R"("conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"g"}],)",
        R"("messages":[],)", R"("prompt":"",)"})
    CHECK(read_of(cat("{", more, pair, "}")) == both);
  // Several turns.
  const std::string turns = R"("chosen":[U(q),A(a),U(r),A(g)],"rejected":[U(q),A(a),U(r),A(b)])",
                    all =
                        "user q | assistant a | user r | assistant [g] / "
                        "user q | assistant a | user r | assistant [b]";
  for (const char* more : {"", R"("prompt":"q",)", R"("prompt":"r",)", R"("prompt":[U(q)],)",
                           R"("prompt":[U(q),A(a),U(r)],)", R"("messages":[U(q),A(a),U(r),A(g)],)"})
    CHECK(read_of(cat("{", more, turns, "}")) == all);
  // What comes after the first difference is the answers'.
  CHECK(read_of(
            R"({"prompt":"q","chosen":[U(q),A(g),U(x),A(y)],"rejected":[U(q),A(b),U(x),A(z)]})") ==
        "user q | assistant [g] | user x | assistant [y] / "
        "user q | assistant [b] | user x | assistant [z]");
  CHECK(read_of(R"({"chosen":[U(q),A(g)],"rejected":[U(q),A(g)]})") ==
        "user q | assistant [g] / user q | assistant [g]");
}

TEST_CASE("a field that contradicts whole conversations is refused, with what to do") {
  const std::string pair = R"("chosen":[U(q),A(g)],"rejected":[U(q),A(b)]})";
  check_refused(cat(R"({"prompt":"other",)", pair),
                {"has the prompt 'other', but the user's messages differ from it: 'q'",
                 "dataset.columns='{prompt: none}' ignores it"});
  check_refused(cat(R"({"prompt":[U(other)],)", pair),
                {"messages in 'prompt' that differ from the beginning of 'chosen' and 'rejected': "
                 "message 1 is 'other' of the user, not 'q' of the user",
                 "dataset.columns='{prompt: none}'"});
  check_refused(cat(R"({"prompt":"q","messages":[U(z),A(g)],)", pair),
                {"messages in 'messages' that differ", "dataset.columns='{messages: none}'"});
  check_refused(cat(R"({"messages":[U(q),A(b)],)", pair), {"message 2 is 'b' of the assistant"});
  check_refused(cat(R"({"prompt":[U(q),A(a)],)", pair), {"messages in 'prompt' that differ"});
  check_refused(cat(R"({"prompt":"q","messages":"talk",)", pair),
                {"has string in the field 'messages'", "wanted a message"});
  // What the help says works.
  CHECK(read_of(cat(R"({"prompt":"other",)", pair), kNoPrompt) ==
        "user q | assistant [g] / user q | assistant [b]");
}

TEST_CASE("answers alone follow the prompt, without the answer that ends a conversation") {
  const std::string pair = R"("chosen":[A(g)],"rejected":[A(b)]})",
                    both = "user q | assistant [g] / user q | assistant [b]";
  for (const char* more :
       {R"("prompt":"q",)", R"("prompt":[U(q)],)", R"("messages":[U(q)],)",
        R"("messages":[U(q),A(g)],)", R"("prompt":"q","messages":[U(q),A(g)],)",
        R"("prompt":[U(q)],"messages":[U(q),A(g)],)", R"("prompt":"q","conversations":[U(q)],)",
        R"("conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"g"}],)"})
    CHECK(read_of(cat("{", more, pair)) == both);
  CHECK(read_of(R"({"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"g"}],
      "chosen":{"from":"gpt","value":"g"},"rejected":{"from":"gpt","value":"b"}})") == both);
  CHECK(read_of(R"({"prompt":[U(q),A(a),U(r)],"messages":[U(r)],"chosen":[A(g),U(x),A(y)],
      "rejected":[A(b)]})") ==
        "user q | assistant a | user r | assistant [g] | user x | assistant "
        "[y] / user q | assistant a | user r | assistant [b]");
  check_refused(cat(R"({"messages":[U(q),A(z)],)", pair),
                {"messages in 'messages' that end with 'z' of the assistant, which is not 'chosen'",
                 "dataset.columns='{messages: none}'"});
  check_refused(cat(R"({"prompt":[U(p)],"messages":[U(q)],)", pair),
                {"messages in 'messages', 'q' of the user, and others in 'prompt', 'p' of the user",
                 "dataset.columns='{messages: none}' or dataset.columns='{prompt: none}'"});
  check_refused(cat(R"({"prompt":"p","messages":[U(q),A(g)],)", pair), {"has the prompt 'p'"});
}

TEST_CASE("system messages are written once") {
  const std::string both = "system s | user q | assistant [g] / system s | user q | assistant [b]";
  for (const char* record :
       {R"({"prompt":[S(s),U(q)],"chosen":[S(s),U(q),A(g)],"rejected":[S(s),U(q),A(b)]})",
        R"({"prompt":[S(s),U(q)],"chosen":[U(q),A(g)],"rejected":[U(q),A(b)]})",
        R"({"prompt":[U(q)],"chosen":[S(s),U(q),A(g)],"rejected":[S(s),U(q),A(b)]})",
        R"({"prompt":"q","chosen":[S(s),U(q),A(g)],"rejected":[S(s),U(q),A(b)]})",
        R"({"system":"s","chosen":[S(s),U(q),A(g)],"rejected":[S(s),U(q),A(b)]})",
        R"({"system":"s","prompt":[U(q)],"chosen":[A(g)],"rejected":[A(b)]})",
        R"({"system":"s","prompt":[S(s),U(q)],"chosen":[A(g)],"rejected":[A(b)]})",
        R"({"prompt":[S(s)],"chosen":[U(q),A(g)],"rejected":[U(q),A(b)]})",
        R"({"prompt":[S(s),U(q)],"messages":[U(q),A(g)],"chosen":[A(g)],"rejected":[A(b)]})",
        R"({"prompt":"q","messages":[S(s)],"chosen":[A(g)],"rejected":[A(b)]})"})
    CHECK_MESSAGE(read_of(record) == both, record);
  check_refused(R"({"system":"t","prompt":[S(s),U(q)],"chosen":[A(g)],"rejected":[A(b)]})",
                {"'t' in the field 'system', and messages that begin with another one: 's'",
                 "dataset.columns='{system: none}'"});
  check_refused(R"({"prompt":[S(t),U(q)],"chosen":[S(s),U(q),A(g)],"rejected":[S(s),U(q),A(b)]})",
                {"system's message 't' of the system in 'prompt', and another one, 's'"});
  check_refused(R"({"prompt":[U(q)],"chosen":[S(s),A(g)],"rejected":[S(s),A(b)]})",
                {"answers that begin with a system message"});
}

TEST_CASE("an answer without a prompt is refused with the field that is probably the prompt") {
  for (const auto& [field, named] : {std::pair{"promt", "promt"},
                                     {"question", "question"},
                                     {"instruction", "instruction"},
                                     {"Prompt", "Prompt"},
                                     {"user_prompt", "user_prompt"},
                                     {"input", "input"}}) {
    const std::string setting = cat("dataset.columns='{prompt: ", named, "}'");
    for (const char* rest :
         {R"("completion":"It is","label":false})", R"("completion":[A(It is)],"label":false})",
          R"("chosen":[A(g)],"rejected":[A(b)]})", R"("chosen":"a g","rejected":"a b"})"}) {
      const std::string record = cat("{\"", field, R"(":"What?",)", rest);
      check_refused(record, {"has no field 'prompt'; its fields are ", field, setting.c_str()});
      // What the help says works.
      const FormatOptions mapped{.columns = {{"prompt", named}}};
      CHECK_MESSAGE(has(read_of(record, mapped), "What?"), record);
    }
  }
  check_refused(R"({"prompt_id":"7","completion":"c","label":true})",
                {"its fields are prompt_id, completion, label", "{prompt: NAME}",
                 "if the completions have none, dataset.columns='{prompt: none}'"});
  check_refused(R"({"prompt":null,"completion":"c","label":true})", {"the field 'prompt' is null"});
  check_refused(R"({"messages":[A(c)],"label":true})", {"has no field 'prompt'"});
  CHECK(read_of(R"({"completion":"c","label":true})", kNoPrompt) == "text  | [c]");
  CHECK(read_of(R"({"prompt":"","completion":"c","label":true})") == "text  | [c]");
  CHECK(read_of(R"({"completion":[A(c)],"label":true})", kNoPrompt) == "assistant [c]");
  // The setting keeps what is mapped already.
  check_refused(R"({"question":"q","reply":"c","label":true})",
                {"dataset.columns='{completion: reply, prompt: question}'"},
                {.columns = {{"completion", "reply"}}});
}

TEST_CASE(
    "one answer is a completion, the last message of a conversation, or what the prompt leaves") {
  for (const char* record :
       {R"({"prompt":[U(q)],"completion":[A(g)],"label":true})",
        R"({"prompt":"q","completion":[U(q),A(g)],"label":true})",
        R"({"prompt":[U(q)],"completion":[U(q),A(g)],"label":true})",
        R"({"completion":[U(q),A(g)],"label":true})",
        R"({"messages":[U(q)],"completion":[A(g)],"label":true})",
        R"({"messages":[U(q),A(g)],"completion":[A(g)],"label":true})",
        R"({"messages":[U(q),A(g)],"label":true})",
        R"({"prompt":"q","messages":[U(q),A(g)],"label":true})",
        R"({"prompt":[U(q)],"messages":[U(q),A(g)],"label":true})",
        R"({"conversations":[U(q),A(g)],"messages":[U(q),A(g)],"label":true})"})
    CHECK_MESSAGE(read_of(record) == "user q | assistant [g]", record);
  const std::string turns = R"(U(q),A(a),U(r),A(g)],"label":true})";
  CHECK(read_of(R"({"completion":[)" + turns) == "user q | assistant a | user r | assistant [g]");
  CHECK(read_of(R"({"messages":[)" + turns) == "user q | assistant a | user r | assistant [g]");
  CHECK(read_of(R"({"prompt":[U(q)],"completion":[)" + turns) ==
        "user q | assistant [a] | user r | assistant [g]");
  check_refused(R"({"prompt":"q","response":"g","label":true})",
                {"has a label but neither messages nor a completion; its fields are prompt, "
                 "response, label",
                 "dataset.columns='{completion: response}'"});
  check_refused(R"({"prompt":[U(q),A(g)],"label":true})", {"neither messages nor a completion"});
  check_refused(R"({"messages":[U(q),A(g),U(x)],"label":true})",
                {"in the field 'messages' that ends with a message of the user"});
  check_refused(R"({"messages":[U(q),A(g)],"conversations":[U(q),A(h)],"label":true})",
                {"messages that differ"});
}

TEST_CASE("if the answers are texts, messages repeat the prompt and the answer or are refused") {
  for (const char* more : {R"("messages":[U(q),A(g)],)", R"("messages":[U(q)],)", ""}) {
    CHECK(read_of(cat("{", more, R"("prompt":"q","chosen":"g","rejected":"b"})")) ==
          "text q | [g] / text q | [b]");
    CHECK(read_of(cat("{", more, R"("prompt":"q","completion":"g","label":true})")) ==
          "text q | [g]");
  }
  for (const char* record :
       {R"({"messages":[U(q)],"completion":"g","label":false})",
        R"({"messages":[U(q)],"chosen":"a g","rejected":"a b"})",
        R"({"prompt":"q","messages":[U(q),A(x)],"completion":"g","label":true})",
        R"({"prompt":"q","messages":[U(p)],"chosen":"g","rejected":"b"})"})
    check_refused(record, {"has messages in the field 'messages', and a text in the field '",
                           "dataset.columns='{messages: none}'"});
  check_refused(R"({"prompt":[U(q)],"chosen":"g","rejected":"b"})",
                {"not both texts: the field 'prompt' has array", "wanted two texts"});
  check_refused(R"({"prompt":"q","chosen":[A(g)],"rejected":"b"})",
                {"not both texts: array in the field 'chosen', string in the field 'rejected'",
                 "wanted two texts, or two lists of messages"});
  check_refused(R"({"prompt":"q","chosen":[A(g)],"rejected":3})",
                {"has number in the field 'rejected'", "wanted a message"});
  // A field that columns use as an answer is not read a second time.
  CHECK(read_of(R"({"messages":[U(q),A(b)],"good":[U(q),A(g)]})",
                {.columns = {{"rejected", "messages"}, {"chosen", "good"}}}) ==
        "user q | assistant [g] / user q | assistant [b]");
}

TEST_CASE("sft reads the prompt of messages as preferences do") {
  for (const char* record :
       {R"({"prompt":[U(q)],"completion":[U(q),A(g)]})", R"({"prompt":[U(q)],"completion":[A(g)]})",
        R"({"prompt":"q","completion":[A(g)]})", R"({"prompt":"q","completion":[U(q),A(g)]})",
        R"({"prompt":[U(q),A(g)],"completion":[A(g)]})", R"({"prompt":[U(q)],"completion":A(g)})"})
    CHECK_MESSAGE(sft_of(record) == "user q | assistant [g]", record);
  CHECK(sft_of(R"({"prompt":[S(s),U(q)],"completion":[S(s),U(q),A(g)]})") ==
        "system s | user q | assistant [g]");
  CHECK(sft_of(R"({"system":"s","prompt":[S(s),U(q)],"completion":[A(g)]})") ==
        "system s | user q | assistant [g]");
  CHECK(sft_of(R"({"messages":[U(z)],"prompt":[U(q)],"completion":[A(g)]})") ==
        "user q | assistant [g]");  // the format reads no messages
  check_sft_refused(R"({"prompt":[U(q)],"completion":[U(z),A(g)]})",
                    {"messages in 'prompt' that differ from the beginning of 'completion': message "
                     "1 is 'q' of the user, not 'z' of the user"});
  check_sft_refused(R"({"prompt":"q","completion":[U(z),A(g)]})", {"has the prompt 'q'"});
  check_sft_refused(R"({"prompt":[U(q)],"completion":"g"})",
                    {"has array in the field 'prompt', and a text in the field 'completion'",
                     "wanted two texts"});
  check_sft_refused(R"({"promt":"q","completion":"g"})", {"dataset.columns='{prompt: promt}'"});
  CHECK(has(fault_of([] {
              return messages_and_mask(
                  RecordReader(RecordFormat::openai, {})
                      .read(Json::parse(expanded(R"({"system":"s","messages":[S(t),U(q)]})")),
                            "x:1"));
            }),
            "'s' in the field 'system', and messages that begin with another one: 't'"));
}

TEST_CASE("a message without a text or a role says which field it has instead") {
  const auto fault = [](const char* list) {
    return fault_of([&] {
      return messages_and_mask(RecordReader(RecordFormat::sharegpt, {})
                                   .read(Json{{"conversations", Json::parse(list)}}, "x:1"));
    });
  };
  const auto says = [&](const char* list, std::initializer_list<const char*> parts) {
    for (const char* part : parts) CHECK_MESSAGE(has(fault(list), part), fault(list));
  };
  says(R"([{"from":"human","text":"q"}])",
       {"a message of 'user' without content: it has no field 'value', its fields are from, text",
        "if 'text' is the value: dataset.columns='{value: text}'"});
  says(R"([{"role":"user","content":null}])",
       {"a message of 'user' without content: 'content' is null", "wanted a text"});
  says(R"([{"speaker":"user","content":"q"}])", {"dataset.columns='{role: speaker}'"});
}

TEST_CASE("a file has pairs or labels") {
  const auto fault = [](const char* record, const std::string& format) {
    return fault_of([&] {
      read_preference(Json::parse(record), format, {}, "x.jsonl:2");
      return "no fault";
    });
  };
  const std::string label = fault(R"({"prompt":"q","completion":"g","label":true})", "pairs"),
                    pair = fault(R"({"prompt":"q","chosen":"g","rejected":"b"})", "labels"),
                    half = fault(R"({"prompt":"q","chosen":"g"})", "pairs");
  CHECK(has(label, "has a label, in a file of chosen and rejected answers\nhelp: a file has one"));
  CHECK(has(pair, "has chosen and rejected answers, in a file of labels\nhelp: a file has one"));
  CHECK(has(half, "has no field 'rejected'"));
}
