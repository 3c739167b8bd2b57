// Files that cannot be right: one error with its place, at load, whatever is wrong.
#include <doctest/doctest.h>

#include <tuple>

#include "built_plugins.h"
#include "data_files.h"
#include "mtrain/config/tree.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin_host.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

class Fixture {
 public:
  Fixture() : host_(built_plugins()) {}
  std::unique_ptr<Tokenizer> open(const std::string& plugin, const std::string& file) {
    Node settings = Node::map();
    settings.set("path", Node::string(file));
    TokenizerContext context{scratch.path()};
    return host_.make<Tokenizer>(plugin, settings, context);
  }
  ScratchFolder scratch;

 private:
  PluginHost host_;
};

struct BadFile {
  std::string content;
  std::initializer_list<std::string> says;
};

std::string json_with(const std::string& model, const std::string& more = "") {
  return "{" + more + "\"model\": " + model + "}";
}

}  // namespace

TEST_CASE("a tokenizer.json that cannot be right is refused with the place of the fault") {
  const std::string bpe =
      R"({"type": "BPE", "unk_token": "a", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})";
  const BadFile files[] = {
      {"", {"t.json", "not valid JSON"}},
      {"{\"model\": ", {"t.json", "not valid JSON", "line 1"}},
      {"[]", {"t.json", "must be an object"}},
      {"{}", {"'model' is missing"}},
      {std::string(100, '[') + std::string(100, ']'), {"t.json"}},
      {json_with(R"({"type": "Magic"})"), {"model", "Magic", "BPE, WordPiece"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a x"]})"),
       {"model.merges[0]", "'x'"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]})"),
       {"model.merges[0]", "'ab'"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a a a"]})"),
       {"model.merges[0]", "one space"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]})"),
       {"model.merges[0]", "pair"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": 0}, "merges": 7})"),
       {"model.merges", "must be a list"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": -1}, "merges": []})"), {"model.vocab", "-1"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": 99999999}, "merges": []})"),
       {"model.vocab", "99999999"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": 900000}, "merges": []})"),
       {"model.vocab", "largest id"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": 0, "a": 1}, "merges": []})"),
       {"model.vocab", "twice"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []})"),
       {"model.vocab", "has the id 0"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": "x"}, "merges": []})"),
       {"model.vocab", "not an integer"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "u"})"),
       {"unk_token", "'u'"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1})"),
       {"dropout"}},
      {json_with(bpe, R"("normalizer": {"type": "Odd"}, )"), {"normalizer", "Odd"}},
      {json_with(
           bpe,
           R"("normalizer": {"type": "Replace", "pattern": {"Regex": "(a"}, "content": ""}, )"),
       {"normalizer.pattern", "is invalid near"}},
      {json_with(bpe, R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAA"}, )"),
       {"precompiled_charsmap", "truncated"}},
      {json_with(
           bpe,
           R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Odd"}, )"),
       {"pre_tokenizer.behavior", "Isolated"}},
      {json_with(bpe, R"("added_tokens": [{"id": 1, "content": "z"}], )"),
       {"added_tokens", "'z'", "'b'"}},
      {json_with(bpe,
                 R"("added_tokens": [{"id": 7, "content": "z"}, {"id": 7, "content": "y"}], )"),
       {"added_tokens[1]", "twice"}},
      {json_with(bpe, R"("added_tokens": [{"id": 9000000, "content": "z"}], )"),
       {"added_tokens", "beyond"}},
      {json_with(
           bpe,
           R"("post_processor": {"type": "BertProcessing", "sep": ["s", 70], "cls": ["c", 0]}, )"),
       {"post_processor", "70"}},
      {json_with(R"({"type": "BPE", "vocab": {"a": 0}, "merges": []})",
                 R"("pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"}, )"),
       {"no token for the byte"}},
      {json_with(R"({"type": "Unigram", "vocab": [["a", "b"]]})"), {"model.vocab", "item 0"}},
      {json_with(R"({"type": "Unigram", "vocab": [["a", 0]], "unk_id": 4})"), {"model.unk_id"}},
      {json_with(R"({"type": "WordPiece", "vocab": {"a": 0}})"), {"unk_token"}},
  };
  Fixture lab;
  for (const auto& file : files) {
    INFO(file.content.substr(0, 200));
    put(lab.scratch / "t.json", file.content);
    expect_error(ErrorClass::data, file.says, [&] { lab.open("hf", "t.json"); });
  }
  expect_error(ErrorClass::io, {"missing.json"}, [&] { lab.open("hf", "missing.json"); });
}

TEST_CASE("a small tokenizer.json of each kind encodes and decodes") {
  Fixture lab;
  put(lab.scratch / "t.json",
      json_with(R"({"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2}})",
                R"("pre_tokenizer": {"type": "Whitespace"}, )"));
  auto words = lab.open("hf", "t.json");
  CHECK(words->encode("a b, a") == std::vector<int32_t>{1, 2, 0, 1});
  CHECK(words->decode(std::vector<int32_t>{1, 2}) == "a b");
  put(lab.scratch / "t.json",
      json_with(
          R"({"type": "BPE", "end_of_word_suffix": "</w>", "vocab": {"a": 0, "b": 1, "b</w>": 2, "ab</w>": 3},
                "merges": ["a b</w>"]})",
          R"("pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": {"type": "BPEDecoder", "suffix": "</w>"}, )"));
  auto suffixed = lab.open("hf", "t.json");
  CHECK(suffixed->encode("ab aab") == std::vector<int32_t>{3, 0, 3});
  CHECK(suffixed->decode(suffixed->encode("ab aab")) == "ab aab");
}

TEST_CASE("other files that cannot be right are refused with the place of the fault") {
  Fixture lab;
  auto refuse = [&](const char* plugin, const char* file, const std::string& content,
                    std::initializer_list<std::string> says) {
    INFO(plugin << ": " << content.substr(0, 100));
    put(lab.scratch / file, content);
    expect_error(ErrorClass::data, says, [&] { lab.open(plugin, file); });
  };
  refuse("tiktoken", "r.tiktoken", "", {"r.tiktoken", "empty"});
  refuse("tiktoken", "r.tiktoken", "IQ== 0\nIg==\n", {"r.tiktoken:2"});
  refuse("tiktoken", "r.tiktoken", "IQ== 0\nI*== 1\n", {"r.tiktoken:2", "base64"});
  refuse("tiktoken", "r.tiktoken", "IQ== 0\nIQ== 1\n", {"r.tiktoken:2", "twice"});
  refuse("tiktoken", "r.tiktoken", "IQ== 0\nIg== 1\n", {"r.tiktoken", "no token for the byte"});
  refuse("sentencepiece", "t.model", "", {"t.model", "no pieces"});
  refuse("sentencepiece", "t.model", "\x0A\x7F", {"t.model", "longer than the rest of the file"});
  refuse("sentencepiece", "t.model", "\x0A\x80", {"t.model", "truncated"});
  refuse("sentencepiece", "t.model", std::string("\x0A\x02\x0A\x00", 4),
         {"t.model", "piece 0 has no text"});
  refuse("sentencepiece", "t.model", "\x0A\x03\x0A\x01\xFF", {"t.model", "piece 0 is not UTF-8"});
  refuse("sentencepiece", "t.model", "\x0A\x03\x0A\x01z", {"t.model", "unknown"});
  put(lab.scratch / "merges.txt", "#version: 0.2\na b\n");
  refuse("gpt2_bpe", "vocab.json", "{\"a\": 0,", {"vocab.json", "not valid JSON"});
  refuse("gpt2_bpe", "vocab.json", "{\"a\": [0]}", {"vocab.json", "'a'", "a list"});
  refuse("gpt2_bpe", "vocab.json", "{\"a\": 0}", {"merges.txt:2", "'b'"});
  refuse("gpt2_bpe", "vocab.json", "{\"a\": 0, \"b\": 1}", {"merges.txt:2", "'a b'"});
  refuse("gpt2_bpe", "vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2}",
         {"vocab.json", "no token for the byte"});
}

TEST_CASE("files of another tokenizer are refused with the name of the plugin that reads them") {
  Fixture lab;
  for (const char* folder : {"gpt2", "hf"}) fs::create_directories(lab.scratch / folder);
  put(lab.scratch / "gpt2/encoder.json", "{}");
  put(lab.scratch / "gpt2/vocab.bpe", "");
  put(lab.scratch / "hf/tokenizer.json", "{}");
  put(lab.scratch / "t.json", "{\"version\": \"1.0\", \"added_tokens\": []}");
  put(lab.scratch / "t.model", std::string("\x0A\x0E\x0A\x05<unk>\x15\0\0\0\0\x18\x02", 16));
  put(lab.scratch / "t.tiktoken", "IQ== 0\nIg== 1\n");
  for (const auto& [plugin, file, reader] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"hf", "gpt2", "gpt2_bpe"},
           {"hf", "t.model", "sentencepiece"},
           {"hf", "t.tiktoken", "tiktoken"},
           {"sentencepiece", "hf", "hf"},
           {"sentencepiece", "t.json", "hf"},
           {"gpt2_bpe", "hf", "hf"},
           {"tiktoken", "t.model", "sentencepiece"},
           {"hf", "t.json", ""}}) {
    CAPTURE(plugin);
    CAPTURE(file);
    try {
      lab.open(plugin, file);
      CHECK(false);
    } catch (const Error& fault) {
      const bool named = fault.hint().find(cat("use --tokenizer ", reader,
                                               " or tokenizer.type=", reader)) != std::string::npos;
      CHECK_MESSAGE(named == !reader.empty(), fault.hint());
    }
  }
}

TEST_CASE("the null tokenizer reads ids") {
  PluginHost host = built_plugins();
  Node settings = Node::map();
  settings.set("vocab_size", Node::integer(100));
  TokenizerContext context;
  auto null = host.make<Tokenizer>("null", settings, context);
  CHECK(null->encode(" 1 22\n99 ") == std::vector<int32_t>{1, 22, 99});
  CHECK(null->decode(std::vector<int32_t>{1, 22, 100}) == "1 22");
  CHECK(null->eod() == 100);
  CHECK(null->vocab_size() == 101);
  for (const char* text : {"100", "-1", "x", "1.5", "99999999999"})
    expect_error(ErrorClass::data, {"null tokenizer"}, [&] { null->encode(text); });
}
