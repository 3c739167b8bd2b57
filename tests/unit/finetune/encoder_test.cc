#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "../data/data_files.h"
#include "byte_tokenizer.h"
#include "mtrain/finetune/example_encoder.h"

using namespace mtrain;
using namespace mtrain::finetune;
using namespace mtrain::testing;

namespace {

// Turns end with the tokenizer's end; </s> in a message is text.
constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ eos_token if m.role "
    "== 'assistant' else ';' }}"
    "{% endfor %}{% if add_generation_prompt %}a:{% endif %}";

Example chat_of(const char* messages, std::vector<bool> trains = {},
                std::vector<bool> excluded = {}) {
  Example out;
  out.messages = messages;
  const size_t count = nlohmann::json::parse(messages).size();
  trains.resize(count, true);
  excluded.resize(count, false);
  out.trains = std::move(trains);
  out.excluded = std::move(excluded);
  out.place = "x:1";
  return out;
}

constexpr const char* kTalk =
    R"([{"role":"user","content":"hi</s>"},{"role":"assistant","content":"yo"},
                                 {"role":"user","content":"?"},{"role":"assistant","content":"no"}])";

struct EncoderFixture {
  explicit EncoderFixture(TrainOn train_on = TrainOn::assistant, const char* source = kTemplate) {
    put(scratch / "t.jinja", source);
    encoder =
        std::make_unique<ExampleEncoder>(tokenizer, EncoderOptions{.template_path = "t.jinja",
                                                                   .base_directory = scratch.path(),
                                                                   .train_on = train_on});
  }
  std::string trained_part(const Example& example) const {
    TokenizedExample out = encoder->encode(example);
    return trained_text(out.ids, out.trained);
  }
  ScratchFolder scratch;
  ByteTokenizer tokenizer;
  std::unique_ptr<ExampleEncoder> encoder;
};

}  // namespace

TEST_CASE(
    "in a conversation the assistant's words are trained on, those of its last turn, or all") {
  CHECK(EncoderFixture().trained_part(chat_of(kTalk)) == "............yo>......no>");
  CHECK(EncoderFixture(TrainOn::last).trained_part(chat_of(kTalk)) == ".....................no>");
  CHECK(EncoderFixture(TrainOn::all).trained_part(chat_of(kTalk)) == "<u:hi</s>;a:yo>u:?;a:no>");
  CHECK(EncoderFixture().trained_part(chat_of(kTalk, {true, false})) == ".....................no>");
  CHECK(EncoderFixture().trained_part(chat_of(kTalk, {true, true, true, false})) ==
        "............yo>.........");
  // With `all`, other roles than the assistant are trained on too, except messages that the record
  // excludes.
  CHECK(EncoderFixture(TrainOn::all)
            .trained_part(chat_of(kTalk, {false, false}, {false, false, false, true})) ==
        "<u:hi</s>;a:yo>u:?;a:...");
  CHECK(EncoderFixture(TrainOn::all).trained_part(chat_of(kTalk, {}, {true})) ==
        "<u:......;a:yo>u:?;a:no>");
  CHECK(EncoderFixture().trained_part(chat_of(R"([{"role":"user","content":"x"}])")) == ".....");
}

TEST_CASE("a template that marks what is generated is believed, turn by turn") {
  const char* marked =
      "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ "
      "eos_token }}{% endgeneration %}"
      "{% else %}{{ m.content }}{% endif %}{% endfor %}";
  const char* talk =
      R"([{"role":"assistant","content":"aa"},{"role":"assistant","content":"bb"},{"role":"user","content":"c"}])";
  CHECK(EncoderFixture(TrainOn::assistant, marked).trained_part(chat_of(talk)) == "aa>bb>.");
  CHECK(
      EncoderFixture(TrainOn::assistant, marked).trained_part(chat_of(talk, {true, false, true})) ==
      "aa>....");
}

namespace {

/// Bytes, but a blank and the letter after it are one token, as in GPT-2.
class BlankJoiner final : public Tokenizer {
 public:
  std::string name() const override { return "joiner"; }
  int64_t vocab_size() const override { return 512; }
  void encode_to(std::string_view text, std::vector<int32_t>& ids) const override {
    for (size_t i = 0; i < text.size(); ++i) {
      const bool joins = text[i] == ' ' && i + 1 < text.size();
      if (joins) ++i;
      ids.push_back(static_cast<unsigned char>(text[i]) + (joins ? 256 : 0));
    }
  }
  std::string decode_bytes(std::span<const int32_t> ids) const override {
    std::string out;
    for (int32_t id : ids) {
      if (id >= 256) out += ' ';
      out += static_cast<char>(id % 256);
    }
    return out;
  }
  std::string identity() const override { return name(); }
};

}  // namespace

TEST_CASE("a token that begins in a header and contains the first letter of an answer is trained") {
  for (const char* source :
       {"{% for m in messages %}{{ m.role[0] }}: {% if m.role == 'assistant' %}{% generation %}"
        "{{ m.content }};{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}",
        "{% for m in messages %}{{ m.role[0] }}: {{ m.content }};{% endfor %}"
        "{% if add_generation_prompt %}a: {% endif %}"}) {
    ScratchFolder scratch;
    put(scratch / "t.jinja", source);
    const BlankJoiner tokenizer;
    const ExampleEncoder encoder(tokenizer,
                                 {.template_path = "t.jinja", .base_directory = scratch.path()});
    const TokenizedExample out = encoder.encode(
        chat_of(R"([{"role":"user","content":"hi"},{"role":"assistant","content":"yes"}])"));
    std::string shown;
    for (size_t i = 0; i < out.ids.size(); ++i)
      shown += (out.trained[i] ? "[" : "|") + tokenizer.decode_bytes({&out.ids[i], 1});
    CHECK(shown == "|u|:| h|i|;|a|:[ y[e[s[;");
  }
}

TEST_CASE(
    "a call of a function that the template leaves out is refused, whatever else has its name") {
  const char* talk =
      R"([{"role":"user","content":"add"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"add","arguments":{}}}]}])";
  for (const char* name : {"", "chatml", "qwen", "llama3", "vicuna"}) {
    CAPTURE(name);
    ByteTokenizer tokenizer;
    EncoderFixture lab;
    auto own = std::make_unique<ExampleEncoder>(tokenizer, EncoderOptions{.chat_template = name});
    const ExampleEncoder& encoder = *name ? *own : *lab.encoder;
    expect_error(ErrorClass::data,
                 {"message 1 has tool_calls", "does not read", *name ? name : "t.jinja",
                  "dataset.template_path", "on_bad=skip"},
                 [&] { (void)encoder.encode(chat_of(talk)); });
  }
  const char* writes =
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c | tojson }}{% "
      "endfor %}{{ eos_token }}{% endfor %}";
  CHECK(EncoderFixture(TrainOn::all, writes).trained_part(chat_of(talk)) ==
        R"(add>{"function": {"name": "add", "arguments": {}}}>)");
  const char* drops =
      "{% for m in messages %}{{ m.content }}{% if m.tool_calls and false %}!{% endif %}{{ "
      "eos_token }}{% endfor %}";
  expect_error(ErrorClass::data, {"message 1 calls the function 'add'", "t.jinja", "on_bad=skip"},
               [&] { (void)EncoderFixture(TrainOn::all, drops).encoder->encode(chat_of(talk)); });
}

TEST_CASE("reasoning in a field that the template does not read is refused") {
  const std::string begin = R"([{"role":"user","content":"?"},{"role":"assistant","content":"4",")";
  for (const char* field : {"reasoning_content", "reasoning", "thinking"}) {
    CAPTURE(field);
    const std::string talk = cat(begin, field, R"(":"2+2"}])");
    expect_error(ErrorClass::data,
                 {cat("message 1 has ", field), "t.jinja", "does not read",
                  cat("dataset.columns={", field, ": none}")},
                 [&] { (void)EncoderFixture().encoder->encode(chat_of(talk.c_str())); });
    const std::string reads = cat("{% for m in messages %}{{ m.", field,
                                  " or '' }}{{ m.content }}{{ eos_token }}{% endfor %}");
    CHECK(EncoderFixture(TrainOn::all, reads.c_str()).trained_part(chat_of(talk.c_str())) ==
          "?>2+24>");
    const std::string empty = cat(begin, field, R"(":null}])");
    CHECK(EncoderFixture().trained_part(chat_of(empty.c_str())) == ".......4>");
  }
}

TEST_CASE(
    "a tool whose definition the template leaves out is refused, whatever else has its name") {
  Example talk =
      chat_of(R"([{"role":"user","content":"add"},{"role":"assistant","content":"no add"}])");
  talk.tools = R"([{"type":"function","function":{"name":"add","parameters":{}}}])";
  expect_error(ErrorClass::data,
               {"has the tool 'add'", "t.jinja", "dataset.template_path", "on_bad=skip",
                "dataset.columns={tools: none}"},
               [&] { (void)EncoderFixture().encoder->encode(talk); });
  const char* writes =
      "{{ tools | tojson }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}";
  CHECK(EncoderFixture(TrainOn::all, writes).trained_part(talk) ==
        R"([{"type": "function", "function": {"name": "add", "parameters": {}}}]add>no add>)");
  const char* names =
      "{% for t in tools %}{{ t.function.name }};{% endfor %}{% for m in messages %}{{ m.content "
      "}}{{ eos_token }}{% endfor %}";
  CHECK(EncoderFixture(TrainOn::all, names).trained_part(talk) == "add;add>no add>");
  talk.tools.clear();
  (void)EncoderFixture().encoder->encode(talk);
}

TEST_CASE("a message that the template leaves out is refused, whatever else has its text") {
  const auto refuses = [](const ExampleEncoder& encoder, const char* talk, const char* message) {
    expect_error(ErrorClass::data,
                 {message, "leaves out", "dataset.chat_template", "dataset.template_path",
                  "dataset.on_bad=skip"},
                 [&] { (void)encoder.encode(chat_of(talk)); });
  };
  const char* no_system =
      "{% for m in messages if m.role != 'system' %}{{ m.content }}{{ eos_token }}{% endfor %}";
  refuses(*EncoderFixture(TrainOn::all, no_system).encoder,
          R"([{"role":"system","content":"hi"},{"role":"user","content":"hi"}])",
          "message 0 (system) has the text 'hi', which the chat template t.jinja");
  ByteTokenizer tokenizer;
  for (const char* name : {"vicuna", "llama2", "alpaca"}) {
    CAPTURE(name);
    const ExampleEncoder encoder(tokenizer, EncoderOptions{.chat_template = name});
    refuses(encoder,
            R"([{"role":"user","content":"hi"},{"role":"system","content":"Rhyme."},
               {"role":"assistant","content":"yo"}])",
            "message 1 (system) has the text 'Rhyme.'");
  }
  const char* call_only =
      "{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% else %}{{ "
      "m.content }}{% endif %}{{ eos_token }}{% endfor %}";
  refuses(
      *EncoderFixture(TrainOn::all, call_only).encoder,
      R"([{"role":"user","content":"2?"},{"role":"assistant","content":"Let me see.","tool_calls":
             [{"function":{"name":"add","arguments":{}}}]}])",
      "message 1 (assistant) has the text 'Let me see.'");
}

TEST_CASE("a message that the template changes is not left out") {
  const auto encodes = [](const char* content, const char* message) {
    const std::string source =
        cat("{% for m in messages %}{{ ", content, " }}{{ eos_token }}{% endfor %}");
    const std::string talk = cat(R"([{"role":"user","content":"?"},{"role":"assistant",)", message,
                                 R"(},{"role":"user","content":"!"}])");
    return EncoderFixture(TrainOn::all, source.c_str()).trained_part(chat_of(talk.c_str()));
  };
  CHECK(encodes("m.content | trim", R"("content":" \n ok \n")") == "?>ok>!>");
  CHECK(encodes("m.content", R"("content":" \n ")") == "?> \n >!>");
  CHECK(encodes("m.content | trim", R"("content":" \n ")") == "?>>!>");
  CHECK(encodes("m.content | upper", R"("content":"ok")") == "?>OK>!>");
  CHECK(encodes("m.content | tojson", R"("content":"\"a\"")") == R"("?">"\"a\"">"!">)");
  // Reasoning in earlier turns, which templates of reasoning models remove.
  const char* answer = "m.content.split('</think>')[-1]";
  CHECK(encodes(answer, R"("content":"<think>2+2</think>4")") == "?>4>!>");
  CHECK(encodes(answer, R"("content":"<think>2+2</think>")") == "?>>!>");
  const char* call = R"("content":"1<2: adds","tool_calls":[{"name":"add"}])";
  CHECK(encodes("m.content | tojson ~ m.tool_calls", call).find("adds") != std::string::npos);
}

TEST_CASE(
    "a template that comes with mtrain is chosen by name, and its special tokens are looked for in "
    "the tokenizer") {
  ByteTokenizer tokenizer;
  auto encoder = [&](const char* name) {
    return ExampleEncoder(tokenizer, EncoderOptions{.chat_template = name});
  };
  const TokenizedExample vicuna = encoder("vicuna").encode(chat_of(kTalk));
  std::string trained_part = trained_text(vicuna.ids, vicuna.trained);
  trained_part.erase(std::remove(trained_part.begin(), trained_part.end(), '.'),
                     trained_part.end());
  CHECK(trained_part == " yo> no>");
  CHECK(encoder("vicuna").missing_special_tokens().empty());
  CHECK(encoder("zephyr").missing_special_tokens().empty());
  CHECK(encoder("chatml").missing_special_tokens() ==
        std::vector<std::string>{"<|im_end|>", "<|im_start|>"});
  CHECK(encoder("chatml").identity() != encoder("vicuna").identity());
  expect_error(ErrorClass::config, {"dataset.chat_template", "dataset.template_path", "both"}, [&] {
    ExampleEncoder(tokenizer,
                   EncoderOptions{.chat_template = "chatml", .template_path = "t.jinja"});
  });
}

TEST_CASE("a template's name is refused where there is only one template") {
  ScratchFolder scratch;
  ByteTokenizer tokenizer;
  const auto encoder = [&](const char* path) {
    return ExampleEncoder(tokenizer, EncoderOptions{.template_path = path,
                                                    .template_name = "rag",
                                                    .base_directory = scratch.path()});
  };
  put(scratch / "t.jinja", "O");
  put(scratch / "one.json", R"({"chat_template": "C"})");
  put(scratch / "named.json", R"({"chat_template": [{"name": "rag", "template": "R"}]})");
  for (const char* path : {"t.jinja", "one.json"})
    expect_error(ErrorClass::config,
                 {"dataset.template_name is 'rag'", path, "has a single template", "leave"},
                 [&] { (void)encoder(path); });
  CHECK(encoder("named.json").has_template());
}

TEST_CASE("the date that templates see is the recipe's") {
  EncoderFixture lab(TrainOn::all, "{{ messages[0].content }} {{ strftime_now('%d %b %Y') }}");
  CHECK(lab.trained_part(chat_of(R"([{"role":"user","content":"x"}])")) == "x 26 Jul 2024");
  for (const char* bad : {"", "2024", "2024-02-30", "2024-07-26x", "yesterday"})
    expect_error(ErrorClass::config, {"dataset.date", "2024-07-26"},
                 [&] { ExampleEncoder(lab.tokenizer, EncoderOptions{.date = bad}); });
}

TEST_CASE("texts end with the end of document, and only the answer is trained on") {
  ByteTokenizer tokenizer;
  auto trained_part = [&](const Example& example, TrainOn train_on = TrainOn::assistant) {
    TokenizedExample out =
        ExampleEncoder(tokenizer, EncoderOptions{.train_on = train_on}).encode(example);
    return trained_text(out.ids, out.trained);
  };
  Example prompted;
  prompted.kind = Example::Kind::prompted;
  prompted.texts = {{"ask</s>", false}, {"say", true}};
  CHECK(trained_part(prompted) == ".......say>");
  CHECK(trained_part(prompted, TrainOn::all) == "ask</s>say>");
  prompted.texts = {{"text", true}};
  CHECK(trained_part(prompted) == "text>");
  prompted.texts = {{"", false}, {"", true}};
  CHECK(trained_part(prompted) == ">");
  Example parts;
  parts.kind = Example::Kind::segments;
  parts.texts = {{"a", true}, {"b", false}, {"c", true}};
  CHECK(trained_part(parts) == "a.c");
  parts.texts = {{"<s>b", false}, {"c</s>", true}};  // nothing is added
  CHECK(trained_part(parts) == "..c>");
}

TEST_CASE("what cannot be encoded is reported") {
  ByteTokenizer tokenizer;
  ExampleEncoder plain(tokenizer, {});
  CHECK_FALSE(plain.has_template());
  expect_error(
      ErrorClass::config,
      {"x:1", "no chat template", "dataset.chat_template", "chatml", "dataset.template_path"},
      [&] { plain.encode(chat_of(kTalk)); });
  Example ids;
  ids.kind = Example::Kind::tokens;
  ids.trained = {1, 1};
  for (int32_t bad : {-1, 258}) {
    ids.ids = {5, bad};
    expect_error(ErrorClass::data, {"token 1", std::to_string(bad), "258"},
                 [&] { plain.encode(ids); });
  }
  EncoderFixture refusing(
      TrainOn::assistant,
      "{% if messages|length > 2 %}{{ raise_exception('too many') }}{% endif %}{{ "
      "messages[0].content }}");
  std::vector<Example> many(100, chat_of(R"([{"role":"user","content":"x"}])"));
  many[7] = many[93] = chat_of(kTalk);
  std::vector<size_t> rejected;
  auto encoded = refusing.encoder->encode_all(
      many,
      [&](const Example& example, const Error&) {
        rejected.push_back(static_cast<size_t>(&example - many.data()));
      },
      4);
  CHECK(rejected == std::vector<size_t>{7, 93});
  CHECK(encoded[7].ids.empty());
  CHECK(encoded[99].ids == std::vector<int32_t>{'x'});
}
