// What the loading of a file of records reports: its counts, and settings without effect.
#include "mtrain/finetune/sft_data.h"

#include <doctest/doctest.h>

#include "../data/data_files.h"
#include "byte_tokenizer.h"
#include "has.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/finetune/preference.h"

using namespace mtrain;
using namespace mtrain::finetune;
using namespace mtrain::testing;

namespace {

constexpr int64_t kLength = 512;
constexpr const char *kPair = R"({"prompt": "q", "completion": "a"})",
                     *kChat = R"({"messages": [{"role": "user", "content": "q"},
 {"role": "assistant", "content": "a"}]})",
                     *kAlpaca = R"({"instruction": "q", "output": "a"})";

struct SftFixture {
  /// A line without its line breaks.
  static std::string line(std::string text) {
    std::erase(text, '\n');
    return text + "\n";
  }
  SftFile load(const std::string& lines) {
    put(scratch / "x.jsonl", lines);
    return load_sft_file(scratch / "x.jsonl", settings,
                         make_encoder(settings, {.seq_length = kLength,
                                                 .base_directory = scratch.path(),
                                                 .tokenizer = &tokenizer}),
                         kLength);
  }
  ScratchFolder scratch;
  ByteTokenizer tokenizer;
  SftSettings settings;
};

}  // namespace

TEST_CASE(
    "a summary counts each record once: whether it is valid, broken JSON or of wrong fields") {
  SftFixture f;
  f.settings.records.on_bad = "skip";
  f.settings.format = "prompt_completion";
  const std::string good = SftFixture::line(kPair);
  const SftFile file = f.load(
      good + "{\"prompt\": \"q\", \"completion\": 7}\n{broken\n{\"prompt\": \"q\"}\n" + good);
  CHECK(file.counts.records == 5);
  CHECK(file.counts.bad == 3);
  CHECK_MESSAGE(has(file.summary(), "2 of 5 records, "), file.summary());
  CHECK_MESSAGE(has(file.summary(), "; 3 invalid ones left out"), file.summary());
  put(f.scratch / "p.jsonl", R"({"prompt": "q", "chosen": "a", "rejected": "b"})"
                             "\n{broken\n"
                             R"({"prompt": "q", "chosen": 1, "rejected": "b"})"
                             "\n");
  PreferenceSettings settings;
  settings.records.on_bad = "skip";
  const PreferenceFile pairs = load_preference_file(
      f.scratch / "p.jsonl", settings,
      make_encoder(
          {.records = settings.records},
          {.seq_length = kLength, .base_directory = f.scratch.path(), .tokenizer = &f.tokenizer}),
      kLength);
  CHECK_MESSAGE(has(pairs.summary(kLength), "1 of 3 records"), pairs.summary(kLength));
}

TEST_CASE("settings that have no effect on the records of a file are named") {
  const auto unused = [](const std::function<void(RecordSettings&)>& set, const char* record) {
    SftFixture f;
    set(f.settings.records);
    return join(f.load(SftFixture::line(record)).unused, "\n");
  };
  const auto vicuna = [](RecordSettings& r) { r.chat_template = "vicuna"; };
  const auto prompt = [](RecordSettings& r) { r.prompt = "{instruction}{input}"; };
  CHECK_MESSAGE(has(unused(vicuna, kPair), "dataset.chat_template has no effect on "),
                unused(vicuna, kPair));
  CHECK(unused(vicuna, kChat).empty());
  CHECK(unused(vicuna, kAlpaca).empty());
  CHECK_MESSAGE(has(unused(prompt, kPair), "dataset.prompt has no effect on "),
                unused(prompt, kPair));
  CHECK(unused(prompt, kAlpaca).empty());
  CHECK(unused([](RecordSettings&) {}, kPair).empty());
  const auto named = [](RecordSettings& r) { r.template_name = "rag"; };
  CHECK_MESSAGE(has(unused(named, kPair), "dataset.template_name has no effect on "),
                unused(named, kPair));
}

TEST_CASE("an entry of columns whose field no record has is refused, or named") {
  const auto loaded = [](const char* columns, const std::vector<const char*>& records,
                         const char* roles = "{}") {
    SftFixture f;
    f.settings.records.columns = parse_yaml(columns);
    f.settings.records.roles = parse_yaml(roles);
    if (has(records[0], "messages")) f.settings.records.chat_template = "chatml";
    std::string text;
    for (const char* record : records) text += SftFixture::line(record);
    const SftFile file = f.load(text);
    return cat(file.format, "; ", join(file.unused, "\n"));
  };
  const char *alpaca = R"({"instruction":"a","ctx":"c","output":"b"})",
             *with_text = R"({"instruction":"a","output":"b","text":"a b"})",
             *question = R"({"question":"a","answer":"b","text":"a b"})",
             *with_input = R"({"instruction":"a","input":"i","ctx":"c","output":"b"})";
  struct Refused {
    const char *columns, *record, *words;
  };
  for (const Refused& c : std::vector<Refused>{
           {"{instruction: instrction}", with_text, "no record of"},
           {"{instruction: instrction}", with_text, "the field 'instrction'"},
           {"{prompt: question, completion: anser}", question, "did you mean 'answer'?"},
           {"{prompt: question, completion: reply}", question, "{completion: none} ignores"},
           {"{input: cxt}", alpaca, "did you mean 'ctx'?"},
           {"{input: context_text}", with_input, "their fields are"}}) {
    CAPTURE(c.columns);
    expect_error(ErrorClass::config, {"dataset.columns=", c.words},
                 [&] { loaded(c.columns, {c.record}); });
  }
  // A field that only a later record has is found; one of another file may be absent.
  CHECK(loaded("{input: ctx}", {R"({"instruction":"a","output":"b"})", alpaca}) == "alpaca; ");
  CHECK(has(loaded("{system: preamble}", {alpaca}), "no record has the field 'preamble'"));
  CHECK(loaded("{input: none}", {with_input}) == "alpaca; ");
  // Entries that the format does not read.
  CHECK(has(loaded("{prompt: ctx}", {alpaca}), "does not read 'prompt' there"));
  CHECK(has(loaded("{text: answer}", {R"({"prompt":"a","completion":"b","answer":"c"})"}),
            "prompt_completion; dataset.columns={text: answer} has no effect on "));
  // Roles, and names in messages.
  const char* chat = R"({"messages":[{"role":"a","words":"x"},{"role":"assistant","words":"z"}]})";
  CHECK(loaded("{content: words}", {chat}, "{a: user}") == "openai; ");
  CHECK(loaded("{content: words}", {chat}, "{a: user, b: user}").find("'a'") == std::string::npos);
  CHECK(has(loaded("{content: words}", {chat}, "{a: user, b: user}"),
            "for 'b': no message has this role"));
  CHECK(has(loaded("{}", {alpaca}, "{a: user}"), "for 'a': its records have no messages"));
}

TEST_CASE("what an error proposes for preference data reads that data") {
  const char* question = R"({"role": "user", "content": "q"})";
  const auto answer = [](const char* text) {
    return cat(R"({"role": "assistant", "content": ")", text, R"("})");
  };
  const std::string chosen = cat("\"chosen\": [", question, ",", answer("g"), "], "),
                    rejected = cat("\"rejected\": [", question, ",", answer("b"), "]"),
                    single = cat("\"chosen\": ", answer("g"), ", \"rejected\": ", answer("b")),
                    texts = R"("chosen": "p g", "rejected": "p b")";
  struct Proposed {
    std::string record, setting;
  };
  for (const auto& [record, setting] : std::vector<Proposed>{
           {cat("{\"prompt\": \"q\", ", texts, "}"),
            "dataset.format=prompt_completion dataset.columns='{completion: chosen}'"},
           {cat("{", texts, "}"), "dataset.format=text dataset.columns='{text: chosen}'"},
           {cat("{\"question\": \"q\", ", texts, "}"),
            "dataset.format=prompt_completion dataset.columns='{completion: chosen, prompt: "
            "question}'"},
           {cat("{\"system\": \"s\", \"question\": \"q\", ", texts, "}"),
            "dataset.format=prompt_completion dataset.columns='{completion: chosen, prompt: "
            "question, system: none}'"},
           {cat("{", chosen, rejected, "}"),
            "dataset.format=openai dataset.columns='{messages: chosen}'"},
           {cat("{\"prompt\": \"q\", \"messages\": [], ", chosen, rejected, "}"),
            "dataset.format=openai dataset.columns='{messages: chosen}'"},
           {cat("{\"prompt\": \"q\", ", single, "}"),
            "dataset.format=prompt_completion dataset.columns='{completion: chosen}'"},
           {cat("{\"prompt\": [", question, "], ", single, "}"),
            "dataset.format=prompt_completion dataset.columns='{completion: chosen}'"},
           {cat("{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}], ", single, "}"),
            "dataset.format=prompt_completion dataset.columns='{completion: chosen, prompt: "
            "conversations}'"},
           {cat("{\"messages\": [", question, ",", answer("g"), "], \"label\": true}"),
            "dataset.format=openai"},
           {cat("{\"messages\": [", question, "], \"completion\": [", answer("g"),
                "], \"label\": true}"),
            "dataset.format=prompt_completion dataset.columns='{prompt: messages}'"},
           {R"({"promt": "q", "completion": "a"})",
            "dataset.format=prompt_completion dataset.columns='{prompt: promt}'"},
           {R"({"question": "q", "response": "a", "label": false})",
            "dataset.format=prompt_completion dataset.columns='{completion: response, prompt: "
            "question}'"},
           {R"({"prompt": "q", "completion": "a", "label": false})",
            "dataset.format=prompt_completion"}}) {
    CAPTURE(record);
    SftFixture f;
    f.settings.records.chat_template = "chatml";
    std::string help;
    try {
      f.load(SftFixture::line(record));
      FAIL_CHECK("no error");
    } catch (const Error& error) {
      help = error.hint();
    }
    CHECK_MESSAGE(has(help, cat(": ", setting)), help);
    const size_t columns = setting.find('\''), format = std::string("dataset.format=").size();
    f.settings.format = setting.substr(format, setting.find(' ') - format);
    if (columns != std::string::npos)
      f.settings.records.columns =
          parse_yaml(setting.substr(columns + 1, setting.size() - columns - 2));
    CHECK(f.load(SftFixture::line(record)).examples->size() == 1);
  }
  // Nothing reads them with their prompts: the help says what to write.
  for (const char* record :
       {R"({"chosen": 1, "rejected": 2})", R"({"prompt": [], "chosen": "a", "rejected": "b"})",
        R"({"messages": [], "completion": "a", "label": true})"}) {
    SftFixture f;
    expect_error(ErrorClass::data, {"write records of a format of sft"},
                 [&] { f.load(SftFixture::line(record)); });
  }
}

TEST_CASE("preference data without records, or whose fields have other names, says what to do") {
  const auto refuses = [](const std::string& lines, std::initializer_list<std::string> parts) {
    SftFixture f;
    put(f.scratch / "p.jsonl", lines);
    expect_error(ErrorClass::data, parts, [&] {
      load_preference_file(f.scratch / "p.jsonl", {},
                           make_encoder({}, {.seq_length = kLength,
                                             .base_directory = f.scratch.path(),
                                             .tokenizer = &f.tokenizer}),
                           kLength);
    });
  };
  refuses("", {"p.jsonl has no records", "wanted one object per line"});
  refuses("\n\n", {"p.jsonl has no records"});
  refuses(R"({"question": "q", "good": "a", "bad": "b"})",
          {"neither a label nor chosen and rejected; its fields are question, good, bad",
           "dataset.columns='{chosen: good, prompt: question, rejected: bad}'"});
  refuses(R"({"prompt": "q", "completion": "a", "is_good": true})",
          {"dataset.columns='{label: is_good}'"});
  refuses(R"({"prompt": "q", "chosen": "a", "reject": "b"})",
          {"has no field 'rejected'", "dataset.columns='{rejected: reject}'"});
}
