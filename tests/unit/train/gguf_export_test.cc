// GGUF files: the bytes of the header, of blocks of q8_0, and the arrangement of tensors. Whole
// files are compared with llama.cpp's package gguf by tests/golden/gguf_check.py.
#include "mtrain/train/gguf_export.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "temp_dir.h"

using namespace mtrain;

namespace {

/// Tensors whose elements count from 0, in pieces of seven.
class Counting final : public HfTensorSource {
 public:
  explicit Counting(std::vector<TensorSpec> specs) : specs_(std::move(specs)) {}
  const std::vector<TensorSpec>& specs() const override { return specs_; }
  void read(size_t i, const HfSink& out) override {
    std::vector<float> values;
    for (int64_t n = 0; n < specs_[i].shape.numel(); ++n) {
      values.push_back(static_cast<float>(n));
      if (values.size() < 7 && n + 1 < specs_[i].shape.numel()) continue;
      out(std::as_bytes(std::span(values)));
      values.clear();
    }
  }

 private:
  std::vector<TensorSpec> specs_;
};

struct GgufFolder : testing::TempDir {
  void put(const std::string& name, const std::string& text) const {
    write_file_atomic(path() / name, text);
  }
};

constexpr const char* kTokenizer =
    R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},
        "added_tokens":[{"id":3,"content":"<s>","special":true}],
        "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}})";

std::string config(const std::string& type, const std::string& more = "") {
  return cat(R"({"model_type":")", type,
             R"(","num_hidden_layers":1,"max_position_embeddings":8,"hidden_size":4,)",
             R"("intermediate_size":6,"num_attention_heads":2,"num_key_value_heads":1,)",
             R"("head_dim":4,"rms_norm_eps":1e-5,"vocab_size":5)", more, "}");
}

std::string refusal(const GgufModel& model, std::vector<TensorSpec> specs, const fs::path& to) {
  Counting source(std::move(specs));
  try {
    write_gguf(to, model, source);
  } catch (const Error& error) {
    CHECK_FALSE(fs::exists(to));
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a header has metadata, tensors with aligned offsets, and padding") {
  GgufHeader header;
  header.number("n", 7);
  header.text("t", "xy");
  header.tensor("m", Shape{2, 3}, GgmlType::f32);
  header.tensor("v", Shape{3}, GgmlType::f32);
  const std::string bytes = header.bytes();
  const auto number = [&](size_t at) {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, 8);
    return value;
  };
  CHECK(bytes.substr(0, 8) == std::string("GGUF\3\0\0\0", 8));
  CHECK(number(8) == 2);   // tensors
  CHECK(number(16) == 2);  // keys
  CHECK(bytes.substr(24, 17) == std::string("\1\0\0\0\0\0\0\0n\4\0\0\0\7\0\0\0", 17));
  const size_t m = 24 + 17 + 8 + 1 + 4 + 8 + 2;
  CHECK(number(m) == 1);
  CHECK(number(m + 13) == 3);  // columns first
  CHECK(number(m + 21) == 2);
  CHECK(number(m + 33) == 0);
  CHECK(number(m + 41 + 8 + 1 + 4 + 8 + 4) == 32);  // 24 bytes of m, and 8 zeros
  CHECK(bytes.size() % GgufHeader::kAlignment == 0);
}

TEST_CASE("q8_0 is a scale and 32 numbers, rounded half away from zero") {
  std::vector<float> values(64, 0.0f);
  for (int i = 0; i < 32; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i) - 127.0f;
  values[1] = 0.5f;
  values[2] = -2.5f;
  const auto bytes = gguf_packed(GgmlType::q8_0, values, "t");
  REQUIRE(bytes.size() == 68);
  CHECK(gguf_bytes(GgmlType::q8_0, 64) == 68);
  auto at = [&](size_t i) { return static_cast<int8_t>(bytes[i]); };
  CHECK(at(0) == 0);  // 1.0 in fp16
  CHECK(at(1) == 0x3C);
  CHECK(at(2) == -127);
  CHECK(at(3) == 1);
  CHECK(at(4) == -3);
  CHECK(at(33) == -96);
  for (size_t i = 34; i < 68; ++i) CHECK(at(i) == 0);
  std::vector<float> large(32, 1e38f);
  CHECK_THROWS_AS(gguf_packed(GgmlType::q8_0, large, "t"), Error);
}

TEST_CASE("rows of queries alternate between the halves of a head, and gemma's norms get 1") {
  const GgufFolder folder;
  folder.put("tokenizer.json", kTokenizer);
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  auto values = [&](const std::string& type, const std::string& tensor, const Shape& shape) {
    Counting source({{tensor, DType::f32, shape}});
    const fs::path to = folder.path() / (type + ".gguf");
    fs::remove(to);
    const HfExported done = write_gguf(
        to,
        {.config = config(type), .tokenizer = folder.path(), .name = "t", .type = GgmlType::f32},
        source);
    CHECK(done.tensors == 1);
    const std::string bytes = read_file(to);
    std::vector<float> out(static_cast<size_t>(shape.numel()));
    const size_t size = (done.bytes + 31) / 32 * 32;
    std::memcpy(out.data(), bytes.data() + bytes.size() - size, done.bytes);
    return out;
  };
  const Shape shape{8, 2};  // two heads of four rows
  CHECK(values("llama", name, shape) ==
        std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15});
  CHECK(values("qwen2", name, shape) ==
        std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(values("llama", "model.layers.0.self_attn.k_proj.bias", Shape{4}) ==
        std::vector<float>{0, 2, 1, 3});
  CHECK(values("gemma", "model.norm.weight", Shape{3}) == std::vector<float>{1, 2, 3});
  CHECK(values("llama", "model.norm.weight", Shape{3}) == std::vector<float>{0, 1, 2});
}

TEST_CASE("what llama.cpp does not have is refused by name, and an existing file is kept") {
  const GgufFolder folder;
  const fs::path to = folder.path() / "x.gguf";
  const std::vector<TensorSpec> norm = {{"model.norm.weight", DType::f32, Shape{3}}};
  auto refused = [&](const std::string& text, const std::vector<TensorSpec>& specs,
                     const std::string& part) {
    const std::string message =
        refusal({.config = text, .tokenizer = folder.path(), .name = "t"}, specs, to);
    CHECK_MESSAGE(message.find(part) != std::string::npos, message);
  };
  refused(config("llama"), norm, "tokenizer.json: no such file");
  folder.put("tokenizer.json", kTokenizer);
  refused(config("gpt2"), norm, "of the family gpt2");
  refused(config("qwen2", R"(,"rope_scaling":{"rope_type":"dynamic"})"), norm, "type dynamic");
  refused(config("llama"), {{"model.layers.0.extra.weight", DType::f32, Shape{3}}},
          "no tensor for model.layers.0.extra.weight");
  std::string other = kTokenizer;
  other.replace(other.find("ByteLevel"), 9, "Metaspace");
  folder.put("tokenizer.json", other);
  refused(config("llama"), norm, "pre-tokenizer Metaspace");
  folder.put("tokenizer.json", R"({"model":{"type":"Unigram","vocab":[]}})");
  refused(config("llama"), norm, "this is neither");
  folder.put("tokenizer.json", R"({"model":{"vocab":{"a":9},"merges":[]},"pre_tokenizer":
      {"type":"ByteLevel","add_prefix_space":false}})");
  refused(config("llama"), norm, "has the id 9, and the model has 5 rows");
  folder.put("tokenizer.json", kTokenizer);
  CHECK(refusal({.config = config("llama"), .tokenizer = folder.path(), .name = "t"}, norm, to)
            .empty());
  const std::string before = read_file(to);
  Counting source(norm);
  CHECK_THROWS_AS(
      write_gguf(to, {.config = config("llama"), .tokenizer = folder.path(), .name = "t"}, source),
      Error);
  CHECK(read_file(to) == before);
  int left = 0;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    left += entry.path().filename().string().find("partial") != std::string::npos ? 1 : 0;
  CHECK(left == 0);
}
