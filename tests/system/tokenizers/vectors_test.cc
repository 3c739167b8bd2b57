// The tokenizer plugins against ids, offsets and texts of the libraries that the files come from.
// The files lie below $MTRAIN_SHARED; without it these tests say that they were left out.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "built_plugins.h"
#include "data_files.h"
#include "mtrain/base/error.h"
#include "mtrain/config/tree.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin_host.h"

using namespace mtrain;
using nlohmann::json;

namespace {

std::optional<fs::path> shared() {
  const fs::path vectors = mtrain::testing::shared_data("vectors");
  return vectors.empty() ? std::nullopt : std::optional(vectors.parent_path());
}

std::unique_ptr<Tokenizer> open(PluginHost& host, const std::string& plugin, const fs::path& path) {
  Node settings = Node::map();
  settings.set("path", Node::string(path.string()));
  TokenizerContext context{fs::current_path()};
  return host.make<Tokenizer>(plugin, settings, context);
}

/// Code points before each byte.
std::vector<int64_t> code_points(const std::string& text) {
  std::vector<int64_t> out;
  int64_t count = 0;
  for (char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++count;
    out.push_back(count - 1);
  }
  out.push_back(count);
  return out;
}

struct Case {
  const char *plugin, *path, *vectors;
};

void compare(const Tokenizer& tokenizer, const json& line) {
  const auto text = line.at("text").get<std::string>();
  std::vector<int32_t> ids, special;
  std::vector<TextSpan> spans;
  tokenizer.encode_with(text, {}, ids, &spans);
  const auto points = code_points(text);
  json offsets = json::array();
  for (const auto& span : spans) offsets.push_back({points[span.begin], points[span.end]});
  INFO(text);
  auto want = [&](const json& got, const json& wanted, const char* what) {
    if (got == wanted) return;
    INFO(what << ": got " << got.dump().substr(0, 400) << ", wanted "
              << wanted.dump().substr(0, 400));
    CHECK(got == wanted);
  };
  want(ids, line.at("ids"), "ids");
  want(tokenizer.encode(text), line.at("ids"), "ids without offsets");
  if (line.contains("offsets")) want(offsets, line.at("offsets"), "offsets");
  if (line.contains("ids_special")) {
    tokenizer.encode_with(text, {.add_special = true}, special, nullptr);
    want(special, line.at("ids_special"), "ids with special tokens");
  }
  const json decoded = line.at("decoded").is_boolean() ? json(text) : line.at("decoded");
  want(tokenizer.decode(ids), decoded, "decoded");
  StreamDecoder stream(tokenizer);
  std::string streamed;
  for (int32_t id : ids) streamed += stream.push(id);
  want(streamed + stream.finish(), tokenizer.decode(ids), "decoded one by one");
}

void check_all(const std::vector<Case>& cases) {
  auto root = shared();
  if (!root) return;
  PluginHost plugins = testing::built_plugins();
  for (const auto& c : cases) {
    INFO(c.vectors);
    auto tokenizer = open(plugins, c.plugin, *root / "tokenizers" / c.path);
    std::ifstream in(*root / "vectors" / c.vectors);
    int lines = 0;
    for (std::string line; std::getline(in, line); ++lines) compare(*tokenizer, json::parse(line));
    CHECK(lines > 200);
  }
}

/// llama.cpp's pairs of files: texts parted by a marker, and a line of ids for each.
void check_llamacpp(const Tokenizer& tokenizer, const fs::path& stem) {
  std::ifstream in(stem.string() + ".inp", std::ios::binary), out(stem.string() + ".out");
  const std::string all(std::istreambuf_iterator<char>(in), {});
  const std::string marker = "\n__ggml_vocab_test__\n";
  int cases = 0;
  for (size_t at = 0; at <= all.size(); ++cases) {
    const size_t end = std::min(all.find(marker, at), all.size());
    const std::string text = all.substr(at, end - at);
    at = end + marker.size();
    std::string line;
    if (!std::getline(out, line)) break;
    std::istringstream numbers(line);
    std::vector<int32_t> wanted{std::istream_iterator<int32_t>(numbers), {}};
    INFO(stem.filename().string() << " '" << text << "'");
    CHECK(tokenizer.encode(text) == wanted);
  }
  CHECK(cases >= 40);
}

}  // namespace

TEST_CASE("Hugging Face's tokenizer.json: byte-level byte pairs") {
  check_all({{"hf", "gpt2.tokenizer.json", "hf_generated/gpt2.jsonl"},
             {"hf", "llama3", "hf_generated/llama3.jsonl"},
             {"hf", "qwen2_5", "hf_generated/qwen2_5.jsonl"},
             {"hf", "qwen2_5", "hf_generated/qwen3.jsonl"}});
}

TEST_CASE("Hugging Face's tokenizer.json: byte pairs with byte fallback") {
  check_all({{"hf", "mistral_v1_hf", "hf_generated/mistral_v1.jsonl"}});
}

TEST_CASE("Hugging Face's tokenizer.json: word pieces and unigrams") {
  check_all({{"hf", "bert.tokenizer.json", "hf_generated/bert.jsonl"},
             {"hf", "t5.tokenizer.json", "hf_generated/t5.jsonl"}});
}

TEST_CASE("a unigram's scores are read as the Hugging Face library reads them") {
  // Three scores of T5. Those nearest to the texts give both divisions of "-------" the same sum;
  // the ids are those of tokenizers 0.22.1.
  testing::ScratchFolder scratch;
  testing::put(scratch / "t.json",
               R"({"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0],
                   ["_", -2.0122928619384766], ["-", -5.129043102264404],
                   ["---", -12.130167007446289]]}})");
  PluginHost plugins = testing::built_plugins();
  auto tokenizer = open(plugins, "hf", scratch / "t.json");
  CHECK(tokenizer->encode("_-------") == std::vector<int32_t>{1, 3, 3, 2});
  CHECK(tokenizer->encode("_----------") == std::vector<int32_t>{1, 3, 3, 2, 3});
}

TEST_CASE("SentencePiece's models: byte pairs and unigrams") {
  check_all({{"sentencepiece", "llama2.tokenizer.model", "spm_generated/llama2.jsonl"},
             {"sentencepiece", "mistral.tokenizer.model.v1", "spm_generated/mistral_v1.jsonl"},
             {"sentencepiece", "mistral.tokenizer.model.v3", "spm_generated/mistral_v3.jsonl"},
             {"sentencepiece", "t5.spiece.model", "spm_generated/t5.jsonl"},
             {"sentencepiece", "spm_test_unigram1000.model", "spm_generated/unigram1000.jsonl"}});
}

TEST_CASE("the other files of byte-level tokenizers say the same as tokenizer.json") {
  check_all({{"gpt2_bpe", "gpt2_orig", "hf_generated/gpt2.jsonl"},
             {"tiktoken", "llama3.tiktoken.model", "hf_generated/llama3.jsonl"}});
}

TEST_CASE("llama.cpp's cases") {
  auto root = shared();
  if (!root) return;
  PluginHost plugins = testing::built_plugins();
  const fs::path tokenizers = *root / "tokenizers", vectors = *root / "vectors/llamacpp";
  check_llamacpp(*open(plugins, "hf", tokenizers / "gpt2.tokenizer.json"),
                 vectors / "ggml-vocab-gpt-2.gguf");
  check_llamacpp(*open(plugins, "hf", tokenizers / "llama3"),
                 vectors / "ggml-vocab-llama-bpe.gguf");
  check_llamacpp(*open(plugins, "hf", tokenizers / "qwen2_5"), vectors / "ggml-vocab-qwen2.gguf");
  check_llamacpp(*open(plugins, "gpt2_bpe", tokenizers / "gpt2_orig"),
                 vectors / "ggml-vocab-gpt-2.gguf");
  check_llamacpp(*open(plugins, "sentencepiece", tokenizers / "llama2.tokenizer.model"),
                 vectors / "ggml-vocab-llama-spm.gguf");
}

TEST_CASE("questions of SQuAD as BERT splits them") {
  auto root = shared();
  if (!root) return;
  PluginHost plugins = testing::built_plugins();
  auto bert = open(plugins, "hf", *root / "tokenizers/bert.tokenizer.json");
  std::ifstream words_in(*root / "vectors/swift/basic_tokenized_questions.json"),
      ids_in(*root / "vectors/swift/tokenized_questions.json");
  const json words = json::parse(words_in), ids = json::parse(ids_in);
  REQUIRE(words.size() == ids.size());
  for (size_t i = 0; i < words.size(); ++i) {
    std::string text;
    for (const auto& word : words[i]) text += (text.empty() ? "" : " ") + word.get<std::string>();
    INFO(text);
    CHECK(json(bert->encode(text)) == ids[i]);
  }
}

TEST_CASE("the text of special tokens is text, unless asked for") {
  auto root = shared();
  if (!root) return;
  PluginHost plugins = testing::built_plugins();
  const fs::path tokenizers = *root / "tokenizers";
  for (auto [file, mark, id] :
       {std::tuple{"gpt2.tokenizer.json", "<|endoftext|>", 50256},
        std::tuple{"llama3", "<|end_of_text|>", 128001}, std::tuple{"t5.tokenizer.json", "</s>", 1},
        std::tuple{"bert.tokenizer.json", "[SEP]", 102}, std::tuple{"mistral_v1_hf", "</s>", 2}}) {
    INFO(file);
    auto tokenizer = open(plugins, "hf", tokenizers / file);
    const std::string text = std::string("a ") + mark + " b " + mark;
    for (int32_t got : tokenizer->encode(text)) CHECK(got != id);
    std::vector<int32_t> ids;
    std::vector<TextSpan> spans;
    tokenizer->encode_with(text, {.parse_special = true}, ids, &spans);
    CHECK(std::count(ids.begin(), ids.end(), id) == 2);
    const size_t at = static_cast<size_t>(std::find(ids.begin(), ids.end(), id) - ids.begin());
    CHECK(text.substr(spans[at].begin, spans[at].end - spans[at].begin) == mark);
    CHECK(tokenizer->eod() == id);
    CHECK(tokenizer->decode_bytes(std::vector<int32_t>{id}).empty());
    bool listed = false;
    for (const auto& token : tokenizer->special_tokens())
      listed = listed || (token.id == id && token.text == mark);
    CHECK(listed);
    CHECK_THROWS_AS(
        tokenizer->decode(std::vector<int32_t>{static_cast<int32_t>(tokenizer->vocab_size())}),
        Error);
    CHECK_THROWS_AS(tokenizer->decode(std::vector<int32_t>{-1}), Error);
  }
}

TEST_CASE("threads give what one thread gives, and bytes that are no UTF-8 come back") {
  auto root = shared();
  if (!root) return;
  PluginHost plugins = testing::built_plugins();
  auto tokenizer = open(plugins, "hf", *root / "tokenizers/llama3");
  std::ifstream in(*root / "text/tinyshakespeare.txt", std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(in), {});
  std::vector<std::string_view> texts;
  for (size_t at = 0; at < all.size(); at += 5000)
    texts.push_back(std::string_view(all).substr(at, 5000));
  auto batch = tokenizer->encode_batch(texts, 4);
  REQUIRE(batch.size() == texts.size());
  for (size_t i = 0; i < texts.size(); ++i) CHECK(batch[i] == tokenizer->encode(texts[i]));
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i * 131 % 256);
  CHECK(tokenizer->decode_bytes(tokenizer->encode(bytes)) == bytes);
}
