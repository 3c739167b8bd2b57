#include "mtrain/finetune/record_format.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "../data/data_files.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/finetune/preference.h"
#include "mtrain/finetune/sft_data.h"

using namespace mtrain;
using namespace mtrain::finetune;
using namespace mtrain::testing;

namespace {

RecordFormat detect(const char* record, const Columns& columns = {}) {
  const Json json = Json::parse(record);
  return detect_format({&json, 1}, {.columns = columns}, "x.jsonl");
}

Example read_record(RecordFormat format, const char* record, const FormatOptions& options = {}) {
  return RecordReader(format, options).read(Json::parse(record), "x.jsonl:1");
}

void expect_fault(const std::string& what, const std::function<void()>& action) {
  try {
    action();
    FAIL_CHECK("no fault");
  } catch (const RecordFault& fault) {
    CHECK_MESSAGE(fault.what.find(what) != std::string::npos, fault.what);
  }
}

}  // namespace

TEST_CASE("the fields of the first records say the format") {
  using enum RecordFormat;
  struct Case {
    const char* record;
    RecordFormat format;
  };
  for (const Case& c : {Case{R"({"instruction":"a","input":"","output":"b","text":"c"})", alpaca},
                        {R"({"conversations":[]})", sharegpt},
                        {R"({"messages":[],"tools":"[]"})", openai},
                        {R"({"prompt":"a","completion":"b"})", prompt_completion},
                        {R"({"text":"a","meta":{}})", text},
                        {R"({"segments":[]})", segments},
                        {R"({"input_ids":[1],"labels":[1]})", tokens}})
    CHECK(detect(c.record) == c.format);
  CHECK(detect(R"({"question":"a","answer":"b"})",
               {{"prompt", "question"}, {"completion", "answer"}}) == prompt_completion);
  CHECK(detect(R"({"instruction":"a","response":"b"})", {{"output", "response"}}) == alpaca);
  expect_error(ErrorClass::data,
               {"cannot tell the format of x.jsonl", "question, answer",
                "dataset.format=prompt_completion dataset.columns='{completion: answer, prompt: "
                "question}'; else set dataset.format"},
               [] { detect(R"({"question":"a","answer":"b"})"); });
  expect_error(ErrorClass::data, {"by its first record: its fields are"},
               [] { detect(R"({"question":"a"})"); });
  // A faulty record among the first is reported by its place, where it is read.
  std::vector<Json> records(5, Json::parse(R"({"prompt":"a","completion":"b"})"));
  records[2] = Json::parse(R"({"promt":"a","completion":"b"})");
  CHECK(detect_format(records, {}, "x.jsonl") == prompt_completion);
  records[1] = records[3] = records[2];
  expect_error(ErrorClass::data, {"cannot tell the format of x.jsonl by its first 5 records"},
               [&] { detect_format(records, {}, "x.jsonl"); });
  expect_error(ErrorClass::data, {"which fit openai and prompt_completion", "dataset.format"},
               [] { detect(R"({"messages":[],"prompt":"a","completion":"b"})"); });
  expect_error(ErrorClass::data,
               {"chosen and rejected answers, which dataset=sft does not read",
                "dataset=preference objective=dpo",
                "dataset.format=prompt_completion dataset.columns='{completion: chosen}'",
                "--dataset preference"},
               [] { detect(R"({"prompt":"a","chosen":"b","rejected":"c"})"); });
  expect_error(ErrorClass::data, {"dataset.format=openai dataset.columns='{messages: better}'"},
               [] {
                 detect(R"({"better":[{"role":"user","content":"q"},
                     {"role":"assistant","content":"a"}],"rejected":[]})",
                        {{"chosen", "better"}});
               });
  expect_error(ErrorClass::data,
               {"with a label, good or bad, which dataset=sft does not read",
                "to train on all answers, good and bad: dataset.format=openai; to look at"},
               [] {
                 detect(R"({"messages":[{"role":"user","content":"q"},
                     {"role":"assistant","content":"a"}],"label":true})");
               });
  expect_error(ErrorClass::data, {"good and bad: dataset.format=prompt_completion; to look at"},
               [] { detect(R"({"prompt":"a","completion":"b","label":true})"); });
  expect_error(ErrorClass::data, {"no records"}, [] { detect_format({}, {}, "x"); });
  expect_error(ErrorClass::data,
               {"did you mean 'messages' by 'message'? dataset.columns='{messages: message}'"},
               [] { detect(R"({"message":[]})"); });
  // An entry that hides a field is named as the cause.
  expect_error(
      ErrorClass::config,
      {"dataset.columns={messages: conversations}: none of the first records of x.jsonl has "
       "the field 'conversations', and the entry hides their field 'messages'"},
      [] {
        detect(R"({"messages":[]})", {{"messages", "conversations"}});
      });
  expect_error(ErrorClass::config, {"hides their field 'instruction'"}, [] {
    detect(R"({"instruction":"a","output":"b"})", {{"instruction", "question"}});
  });
  const std::vector<Json> mixed = {Json::parse(R"({"text":"a"})"), Json::parse(R"({"body":"a"})")};
  expect_error(ErrorClass::data, {"text, body"}, [&] { detect_format(mixed, {}, "x"); });
}

TEST_CASE("alpaca is Stanford's text, a text of one's own, or a chat") {
  using enum RecordFormat;
  Example plain = read_record(alpaca, R"({"instruction":"Add.","input":"1 2","output":"3"})");
  REQUIRE(plain.kind == Example::Kind::prompted);
  CHECK(plain.texts[0].text ==
        "Below is an instruction that describes a task, paired with an input that provides further "
        "context. Write a response that "
        "appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### "
        "Response:");
  CHECK_FALSE(plain.texts[0].trained);
  CHECK(plain.texts[1].text == "3");
  CHECK(plain.texts[1].trained);
  CHECK(read_record(alpaca, R"({"instruction":"Say {input}.","output":"3"})").texts[0].text ==
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n"
        "### Instruction:\nSay {input}.\n\n### Response:");
  CHECK(read_record(alpaca, R"({"instruction":"Q","input":"I","output":"3","system":"S"})",
                    {.prompt = "{input}:{instruction}="})
            .texts[0]
            .text == "S\n\nI:Q=");
  expect_fault("has an input, and dataset.prompt has no {input}", [] {
    read_record(alpaca, R"({"instruction":"Q","input":"I","output":"3"})",
                {.prompt = "{instruction}="});
  });
  for (const auto& [prompt, fault] :
       {std::pair{"Q {question} A", "{question} is no field of alpaca records"},
        {"Q {input}", "dataset.prompt has no {instruction}"}}) {
    RecordSettings settings;
    settings.prompt = prompt;
    expect_error(ErrorClass::config, {fault}, [&] { (void)settings.format_options(); });
  }
  RecordSettings settings;
  settings.prompt = "{\"q\": \"{instruction}\", {}}";
  settings.columns = parse_yaml("{reasoning_content: none}");
  (void)settings.format_options();
  Example chat = read_record(
      alpaca, R"({"instruction":"Q","input":"I","output":"A","system":"S","history":[["q","a"]]})",
      {.chat_prompts = true});
  CHECK(
      chat.messages ==
      R"([{"role":"system","content":"S"},{"role":"user","content":"q"},{"role":"assistant","content":"a"},)"
      R"({"role":"user","content":"Q\nI"},{"role":"assistant","content":"A"}])");
  expect_fault("has a history", [] {
    read_record(alpaca, R"({"instruction":"Q","output":"A","history":[["q","a"]]})");
  });
  expect_fault("no field 'output'", [] { read_record(alpaca, R"({"instruction":"Q"})"); });
  expect_fault("number in the field 'output'",
               [] { read_record(alpaca, R"({"instruction":"Q","output":1})"); });
}

TEST_CASE("conversations of any make become messages with tools and weights") {
  using enum RecordFormat;
  Example talk = read_record(
      sharegpt, R"({"system":"S","tools":"[{\"name\":\"f\",\"parameters\":{}}]","conversations":[
      {"from":"human","value":"q"},{"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"x\":1}}"},
      {"from":"observation","value":"o"},{"from":"gpt","value":"a"}]})");
  CHECK(
      talk.messages ==
      R"([{"role":"system","content":"S"},{"role":"user","content":"q"},{"role":"assistant","content":"","tool_calls":)"
      R"([{"type":"function","function":{"name":"f","arguments":{"x":1}}}]},{"role":"tool","content":"o"},)"
      R"({"role":"assistant","content":"a"}])");
  CHECK(talk.tools == R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
  Example weighed = read_record(
      openai,
      R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","value":"b"}]},
      {"role":"assistant","content":"c","weight":0},{"role":"assistant","content":"d","loss_weight":1.0},
      {"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]})");
  CHECK(
      weighed.messages ==
      R"([{"role":"user","content":"ab"},{"role":"assistant","content":"c"},{"role":"assistant","content":"d"},)"
      R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]}])");
  for (const char* arguments : {"[1]", "x"})
    expect_fault(cat("with the arguments ", arguments), [&] {
      read_record(
          openai,
          cat(R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":")",
              arguments, R"("}}]}]})")
              .c_str());
    });
  CHECK(weighed.trains == std::vector<bool>{true, false, true, true});
  CHECK(weighed.excluded == std::vector<bool>{false, true, false, false});
  for (const char* weight : {R"("weight":0.5)", R"("loss_weight":0.3)", R"("weight":-1)",
                             R"("weight":"0")", R"("train":"false")", R"("training":2)"}) {
    const std::string record =
        R"({"messages":[{"role":"assistant","content":"c",)" + std::string(weight) + "}]}";
    const std::string key = std::string(weight + 1, std::strchr(weight + 1, '"'));
    expect_fault("has a message with " + key + " ", [&] { read_record(openai, record.c_str()); });
  }
  CHECK(
      read_record(openai,
                  R"({"messages":[{"role":"assistant","content":"c","weight":null,"train":true}]})")
          .trains == std::vector<bool>{true});
  // A role that is never trained on: 0 says what holds, 1 does not.
  const char* asks = R"({"messages":[{"role":"user","content":"q","training":true}]})";
  CHECK(read_record(openai, R"({"messages":[{"role":"user","content":"q","training":false}]})")
            .excluded == std::vector<bool>{true});
  expect_fault("message of 'user' with training true, and only messages of the assistant",
               [&] { read_record(openai, asks); });
  CHECK(read_record(openai, asks, {.trains_all = true}).excluded == std::vector<bool>{false});
  expect_fault("with train false and with weight 1", [] {
    read_record(openai,
                R"({"messages":[{"role":"assistant","content":"c","weight":1,"train":false}]})");
  });
  Example own =
      read_record(sharegpt, R"({"talk":[{"who":"agent","says":"x"}]})",
                  {.columns = {{"conversations", "talk"}, {"from", "who"}, {"value", "says"}},
                   .roles = {{"agent", "assistant"}}});
  CHECK(own.messages == R"([{"role":"assistant","content":"x"}])");
  const char* thoughtful =
      R"({"messages":[{"role":"assistant","content":"x","reasoning":"y","thoughts":"z"}]})";
  CHECK(read_record(openai, thoughtful, {.columns = {{"reasoning", "none"}}}).messages ==
        R"([{"role":"assistant","content":"x","thoughts":"z"}])");
  CHECK(read_record(openai, thoughtful, {.columns = {{"reasoning", "thoughts"}}}).messages ==
        R"([{"role":"assistant","content":"x","reasoning":"z"}])");
  Example split =
      read_record(prompt_completion,
                  R"({"prompt":[{"role":"user","content":"q"},{"role":"assistant","content":"0"},
      {"role":"user","content":"r"}],"completion":[{"role":"assistant","content":"a"}]})");
  CHECK(split.trains == std::vector<bool>{false, false, false, true});
  expect_fault("without a role", [] { read_record(openai, R"({"messages":[{"content":"x"}]})"); });
  expect_fault("without content", [] { read_record(openai, R"({"messages":[{"role":"user"}]})"); });
  expect_fault("of type 'image_url'", [] {
    read_record(openai, R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})");
  });
  expect_fault("no list", [] { read_record(openai, R"({"messages":"x"})"); });
  expect_fault("no messages", [] { read_record(openai, R"({"messages":[]})"); });
  expect_fault("not a JSON object", [] {
    read_record(sharegpt, R"j({"conversations":[{"from":"function_call","value":"f()"}]})j");
  });
}

TEST_CASE("fields of a message that would be trained on wrongly are refused by name") {
  using enum RecordFormat;
  for (const char* record : {R"({"conversations":[{"from":"bard","value":"x"}]})",
                             R"({"conversations":[{"role":"bard","content":"x"}]})"})
    expect_fault("unknown role 'bard'", [&] { read_record(sharegpt, record); });
  expect_fault("unknown role 'asistant'",
               [] { read_record(openai, R"({"messages":[{"role":"asistant","content":"x"}]})"); });
  const Example narrated =
      read_record(openai, R"({"messages":[{"role":"narrator","content":"x"}]})",
                  {.roles = {{"narrator", "narrator"}}});
  CHECK(narrated.messages == R"([{"role":"narrator","content":"x"}])");
  for (const char* role : {"system", "developer", "user", "assistant", "tool"})
    CHECK_NOTHROW(read_record(
        openai,
        (R"({"messages":[{"role":")" + std::string(role) + R"(","content":"x"}]})").c_str()));
  expect_fault("train_detail", [] {
    read_record(openai, R"({"messages":[{"role":"assistant","content":"x","train_detail":[{}]}]})");
  });
  expect_fault("of 'user' with the content 5",
               [] { read_record(openai, R"({"messages":[{"role":"user","content":5}]})"); });
}

TEST_CASE("dataset.roles maps to roles that chat templates know, or keeps the name") {
  auto roles = [](const char* name, const char* to) {
    RecordSettings settings;
    settings.roles = Node::map();
    settings.roles.set(name, Node::string(to));
    return settings.format_options().roles;
  };
  for (const char* known : {"system", "developer", "user", "assistant", "tool", "call", "function",
                            "context", "documents", "tool_results"}) {
    CHECK(roles("agent", known).at("agent") == known);
    // The reader knows these names, too.
    const std::string message =
        cat(R"({"messages":[{"role":")", known, R"(","content":"{\"name\":\"f\"}"}]})");
    CHECK_NOTHROW(read_record(RecordFormat::openai, message.c_str()));
  }
  CHECK(roles("narrator", "narrator").at("narrator") == "narrator");
  expect_error(ErrorClass::config,
               {"dataset.roles.gpt: 'asistant' is not a role", "did you mean 'assistant'?"},
               [&] { roles("gpt", "asistant"); });
  expect_error(ErrorClass::config, {"dataset.roles.a: 'zzz' is not a role", "there are system"},
               [&] { roles("a", "zzz"); });
}

TEST_CASE("segments and tokens have their own loss mask") {
  using enum RecordFormat;
  Example parts = read_record(
      segments, R"({"segments":[{"text":"a","label":false},{"text":"b","label":true}]})");
  CHECK(parts.kind == Example::Kind::segments);
  CHECK(parts.texts[1].trained);
  expect_fault("no label in segment 0",
               [] { read_record(segments, R"({"segments":[{"text":"a"}]})"); });
  parts = read_record(segments, R"({"segments":[{"text":"a","label":1},{"text":"b","label":0}]})");
  CHECK(parts.texts[0].trained);
  CHECK_FALSE(parts.texts[1].trained);
  for (const char* label : {"2", "\"yes\"", "[]"})
    expect_fault(cat("label ", label, " in segment 0"), [&] {
      read_record(segments, cat(R"({"segments":[{"text":"a","label":)", label, "}]}").c_str());
    });
  Example ids = read_record(
      tokens, R"({"input_ids":[5,6,7,0],"labels":[-100,6,7,-100],"attention_mask":[1,1,1,0]})");
  CHECK(ids.ids == std::vector<int32_t>{5, 6, 7});
  CHECK(ids.trained == std::vector<uint8_t>{0, 1, 1});
  CHECK(read_record(tokens, R"({"input_ids":[5]})").trained == std::vector<uint8_t>{1});
  expect_fault("labels[1] is 7 where input_ids has 6",
               [] { read_record(tokens, R"({"input_ids":[5,6],"labels":[5,7]})"); });
  expect_fault("2 input_ids but 1 labels",
               [] { read_record(tokens, R"({"input_ids":[5,6],"labels":[5]})"); });
  expect_fault("not an integer", [] { read_record(tokens, R"({"input_ids":[5.5]})"); });
  expect_fault("beyond 32 bits",
               [] { read_record(tokens, R"({"input_ids":[18446744073709551615]})"); });
}

TEST_CASE("texts without a prompt have their first words in common as the prompt") {
  const FormatOptions none{.columns = {{"prompt", "none"}}};
  auto split = [&](const Json& record, const FormatOptions& options = {}) {
    const Preference pair = read_preference(record, "pairs", options, "x:1");
    CHECK(pair.chosen.texts[0].text == pair.rejected->texts[0].text);
    CHECK_FALSE(pair.chosen.texts[0].trained);
    return pair.chosen.texts[0].text + "|" + pair.chosen.texts[1].text + "|" +
           pair.rejected->texts[1].text;
  };
  auto texts = [](const char* chosen, const char* rejected) {
    return Json{{"chosen", chosen}, {"rejected", rejected}};
  };
  CHECK(split(texts("\n\nHuman: Hi?\n\nAssistant: Yes.", "\n\nHuman: Hi?\n\nAssistant: No.")) ==
        "\n\nHuman: Hi?\n\nAssistant:| Yes.| No.");
  // A word is not divided, and no answer is empty.
  CHECK(split(texts("It is black", "It is blue")) == "It is| black| blue");
  CHECK(split(texts("Q\nyes", "Q\nyes sir")) == "Q\n|yes|yes sir");
  CHECK(split(texts("Q: so\nyes ", "Q: so\nyes ")) == "Q: so\n|yes |yes ");
  Json record = texts("It is black", "It is blue");
  record["margin"] = 2;
  CHECK(split(record) == "It is| black| blue");
  expect_fault("no first words in common", [&] { split(texts("black", "blue")); });
  expect_fault("no first words in common", [&] { split(texts(" black", " blue")); });
  expect_fault("no first words in common", [&] { split(texts("same", "same")); });
  // Another text may be the prompt.
  record["question"] = "Which one?";
  expect_fault("has no field 'prompt'; its fields are chosen, rejected, margin, question",
               [&] { split(record); });
  CHECK(split(record, none) == "It is| black| blue");
  expect_fault("not both texts", [&] { split({{"chosen", "a b"}, {"rejected", 1}}); });
}

TEST_CASE("preferences are pairs or labels, and only the answers are trained on") {
  auto pair = [](const char* record, const char* format = "pairs") {
    return read_preference(Json::parse(record), format, {}, "x:1");
  };
  Preference texts = pair(R"({"prompt":"p","chosen":"c","rejected":"r"})");
  CHECK(texts.chosen.texts[1].text == "c");
  CHECK(texts.rejected->texts[1].text == "r");
  Preference lists = pair(
      R"({"prompt":[{"role":"user","content":"q"}],"chosen":[{"role":"assistant","content":"c"}],
      "rejected":[{"role":"assistant","content":"r"}]})");
  CHECK(lists.chosen.messages ==
        R"([{"role":"user","content":"q"},{"role":"assistant","content":"c"}])");
  CHECK(lists.chosen.trains == std::vector<bool>{false, true});
  // A prompt that is a text is the user's message, unless the answers have it.
  for (const char* record : {R"({"prompt":"q","chosen":[{"role":"assistant","content":"c"}],
           "rejected":[{"role":"assistant","content":"r"}]})",
                             R"({"prompt":"q ","chosen":[{"role":"user","content":"q"},
           {"role":"assistant","content":"c"}],"rejected":[{"role":"user","content":"q"},
           {"role":"assistant","content":"r"}]})"}) {
    const Preference said = pair(record);
    CHECK(said.rejected->messages ==
          R"([{"role":"user","content":"q"},{"role":"assistant","content":"r"}])");
    CHECK(said.chosen.trains == std::vector<bool>{false, true});
  }
  CHECK(pair(R"({"prompt":"q","completion":[{"role":"assistant","content":"c"}],"label":true})",
             "labels")
            .chosen.messages ==
        R"([{"role":"user","content":"q"},{"role":"assistant","content":"c"}])");
  CHECK(pair(R"({"prompt":"q","messages":[{"role":"assistant","content":"c"}],"label":true})",
             "labels")
            .chosen.messages ==
        R"([{"role":"user","content":"q"},{"role":"assistant","content":"c"}])");
  // It stands behind the system message, and once in each answer.
  CHECK(Json::parse(pair(R"({"prompt":"q","conversations":[{"from":"system","value":"s"}],
      "chosen":{"from":"gpt","value":"c"},"rejected":{"from":"gpt","value":"r"}})")
                        .chosen.messages)[1]["content"] == "q");
  expect_fault("one of its answers has the user's message, and the other does not", [&] {
    pair(R"({"prompt":"q","chosen":[{"role":"assistant","content":"c"}],
      "rejected":[{"role":"user","content":"q"},{"role":"assistant","content":"r"}]})");
  });
  CHECK(pair(R"({"prompt":"q","chosen":[{"role":"system","content":"s"},
      {"role":"user","content":"q"},{"role":"assistant","content":"c"}],
      "rejected":[{"role":"system","content":"s"},{"role":"user","content":"q"},
      {"role":"assistant","content":"r"}]})")
            .chosen.trains == std::vector<bool>{false, false, true});
  expect_fault("has an answer without messages",
               [&] { pair(R"({"prompt":"q","completion":[],"label":true})", "labels"); });
  expect_fault("differ in message 1, which is one of the user", [&] {
    pair(R"({"chosen":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],
      "rejected":[{"role":"user","content":"z"},{"role":"assistant","content":"b"}]})");
  });
  expect_fault("begin with a system message", [&] {
    pair(R"({"prompt":"q","chosen":[{"role":"system","content":"s"},
      {"role":"assistant","content":"c"}],"rejected":[{"role":"assistant","content":"r"}]})");
  });
  expect_fault("has the prompt 'q'", [&] {
    pair(R"({"prompt":"q","messages":[{"role":"user","content":"x"},
      {"role":"assistant","content":"c"}],"label":true})",
         "labels");
  });
  Preference alike =
      pair(R"({"chosen":[{"role":"user","content":"q"},{"role":"assistant","content":"c"}],
      "rejected":[{"role":"user","content":"q"},{"role":"assistant","content":"r"}]})");
  CHECK(alike.rejected->trains == std::vector<bool>{false, true});
  Preference shared =
      pair(R"({"conversations":[{"from":"human","value":"q"}],"chosen":{"from":"gpt","value":"c"},
      "rejected":{"from":"gpt","value":"r"}})");
  CHECK(shared.rejected->messages ==
        R"([{"role":"user","content":"q"},{"role":"assistant","content":"r"}])");
  Preference label =
      pair(R"({"messages":[{"role":"assistant","content":"0"},{"role":"user","content":"q"},
      {"role":"assistant","content":"a"}],"label":false})",
           "labels");
  CHECK_FALSE(label.good);
  CHECK(label.chosen.trains == std::vector<bool>{false, false, true});
  CHECK(pair(R"({"prompt":"p","completion":"c","label":true})", "labels").good);
  expect_fault("no field 'rejected'", [&] { pair(R"({"prompt":"p","chosen":"c"})"); });
  expect_fault("neither true nor false", [&] { pair(R"({"messages":[],"label":1})", "labels"); });
  expect_fault("one of its answers has the user's message, and the other does not", [&] {
    pair(R"({"prompt":"q","chosen":[{"role":"user","content":"other"}],
      "rejected":[{"role":"assistant","content":"r"}]})");
  });
  expect_fault("has system, and its prompt and answer are texts",
               [&] { pair(R"({"system":"s","prompt":"p","chosen":"c","rejected":"r"})"); });
  expect_fault("has the field 'input' of an alpaca record",
               [&] { pair(R"({"input":"i","prompt":"p","chosen":"c","rejected":"r"})"); });
  expect_fault("has the field 'history' of an alpaca record", [&] {
    pair(R"({"history":[["q","a"]],"prompt":"p","completion":"c","label":true})", "labels");
  });
  pair(R"({"input":"","history":[],"prompt":"p","chosen":"c","rejected":"r"})");
  expect_fault("has tools", [&] {
    pair(R"({"tools":["t"],"prompt":"p","completion":"c","label":true})", "labels");
  });
  expect_fault("not both texts", [&] { pair(R"({"prompt":"p","chosen":"c","rejected":["r"]})"); });
}
