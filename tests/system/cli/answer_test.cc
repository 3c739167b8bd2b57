// mtrain generate with an encoder and a decoder.
#include <doctest/doctest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "mtrain/base/file.h"
#include "roots.h"
#include "shell.h"
#include "small_tokenizer.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

/// Multiplies the matrices of a file of float tensors.
void scale_matrices(const fs::path& file, float factor) {
  std::string bytes = mtrain::read_file(file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__" || tensor.at("shape").size() != 2) continue;
    const size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    for (size_t at = begin; at < end; at += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, bytes.data() + 8 + length + at, sizeof value);
      value *= factor;
      std::memcpy(bytes.data() + 8 + length + at, &value, sizeof value);
    }
  }
  std::ofstream(file, std::ios::binary) << bytes;
}

std::string words_of_ids(const std::vector<size_t>& ids) {
  std::string out;
  for (size_t id : ids) out += small_token(id);
  return out;
}

}  // namespace

TEST_CASE("an encoder with a decoder answers as in transformers, and reads what fits the encoder") {
  Scratch scratch("mtrain-answers");
  const fs::path folder = scratch.path() / "t5", golden = source_root() / "tests/golden/t5_tiny";
  fs::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy(golden / file, folder / file);
  const auto values = nlohmann::json::parse(mtrain::read_file(golden / "golden.json"));
  scale_matrices(folder / "model.safetensors", values["answer_scale"]);
  write_at(folder / "tokenizer.json", small_tokenizer(128, {"<pad>", "</s>", "<unk>"}));
  write_at(folder / "tokenizer_config.json", R"({"eos_token": "</s>", "pad_token": "<pad>"})");
  const auto answers = values["answers"].get<std::vector<std::vector<size_t>>>();
  std::string prompts;
  for (size_t row = 0; row < 3; ++row) {
    const auto ids = values["batch"][row].get<std::vector<size_t>>();
    prompts +=
        words_of_ids({ids.begin(), ids.begin() + std::vector<std::ptrdiff_t>{22, 13, 20}[row]}) +
        "\n";
  }
  scratch.write("prompts", prompts);
  auto answered = [&](const std::string& more) {
    return run({.arguments = {"/bin/sh", "-c",
                              "cd " + scratch.path().string() + " && " + mtrain_binary() +
                                  " generate --from t5 model.seq_length=33 "
                                  "model.decoder_seq_length=11 --prompt - --temperature 0 " +
                                  more + " < prompts"}});
  };
  Outcome out = answered("");
  CHECK_MESSAGE(out.status == 0, out.err);
  CHECK(out.out == words_of_ids(answers[0]) + "\n" + words_of_ids(answers[1]) + "\n" +
                       words_of_ids(answers[2]) + "\n");
  CHECK_MESSAGE(has(out.err,
                    "the prompt has 23 tokens with its end token, and only its first 21 and the "
                    "end token are read: the encoder has 22 of the model.seq_length positions"),
                out.err);
  Outcome few = answered("--max-tokens 2");
  std::string first;
  for (const auto& ids : answers) first += words_of_ids({ids[0], ids[1]}) + "\n";
  CHECK(few.out == first);
  Outcome chat = answered("--chat");
  CHECK(chat.status == 2);
  CHECK_MESSAGE(has(chat.err, "--chat does not support model.type=t5"), chat.err);
}

TEST_CASE("a run of an encoder with a decoder answers with the tokens of its dataset") {
  Scratch scratch("mtrain-answers-run");
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += "{\"text\": \"words of a text, number " + std::to_string(i) + "\"}\n";
  scratch.write("x.jsonl", text);
  REQUIRE(cli_in(scratch.path(), "data prepare -q -i x.jsonl -o x -t byte --append-eod").status ==
          0);
  scratch.write("r.yaml",
                "model: {type: t5, layers: 1, encoder_layers: 1, hidden_size: 16, heads: 2, "
                "head_dim: 8, ffn_hidden_size: 32, seq_length: 48, decoder_seq_length: 16}\n"
                "tokenizer: {type: byte, extra_ids: 8}\n"
                "dataset: {type: t5_seq2seq, path: x, split: '100,0,0', sentinels: 8, "
                "decoder_seq_length: 16, start_token: <extra_id_7>}\n"
                "train: {steps: 2, micro_batch_size: 2, global_batch_size: 2}\n"
                "checkpoint: {interval: 2}\nvalidation: {steps: 0}\nrun: {threads: 1}\n"
                "optimizer: {type: adamw, lr: 1.0e-30}\n");  // two runs with the same weights
  for (const char* words : {"run.dir=run", "run.dir=other 'dataset.start_token=<extra_id_0>'"}) {
    Outcome made = cli_in(scratch.path(), std::string("r.yaml -q ") + words);
    REQUIRE_MESSAGE(made.status == 0, made.err);
  }
  auto answer = [&](const std::string& words) {
    Outcome out = cli_in(scratch.path(), "generate --prompt abc --seed 3 --from " + words);
    CHECK_MESSAGE(out.status == 0, out.err);
    return out.out;
  };
  const std::string whole = answer("run");
  CHECK(whole == answer("run --max-tokens 16"));
  CHECK_FALSE(whole.starts_with("abc"));
  CHECK(whole.size() <= 17 * 4);
  // The start token is the decoder's first input.
  CHECK(whole != answer("other"));
  CHECK(answer("other") == answer("other --max-tokens 16"));
  // An exported folder starts with the same token; so does one whose config.json names another.
  for (const char* name : {"run", "other"}) {
    Outcome exported = cli_in(scratch.path(), std::string("export ") + name + " hf-" + name);
    REQUIRE_MESSAGE(exported.status == 0, exported.err);
    const fs::path folder = scratch / (std::string("hf-") + name);
    for (const char* file : {"config.json", "generation_config.json"})
      CHECK(Json::parse(slurp(folder / file)).at("decoder_start_token_id") ==
            (name == std::string("run") ? 257 : 264));
  }
  const std::string sizes =
      " model.seq_length=48 model.decoder_seq_length=16 tokenizer.type=byte "
      "tokenizer.extra_ids=8";
  CHECK(answer("hf-run" + sizes) == whole);
  CHECK(answer("hf-other" + sizes) == answer("other"));
  CHECK(answer("hf-run model.decoder_start_token=264" + sizes) == answer("other"));
}

TEST_CASE("special tokens of prompts are read and printed where they are wanted") {
  Scratch scratch("mtrain-answers-special");
  scratch.write("r.yaml",
                "model: {type: t5, layers: 1, encoder_layers: 1, hidden_size: 16, heads: 2, "
                "head_dim: 8, ffn_hidden_size: 32, seq_length: 48, decoder_seq_length: 16}\n"
                "tokenizer: {type: byte, extra_ids: 8}\ndataset: mock\n"
                "train: {steps: 1, micro_batch_size: 2, global_batch_size: 2}\n"
                "validation: {steps: 0}\nrun: {threads: 1}\n"
                "optimizer: {type: adamw, lr: 0.05}\n");
  REQUIRE(cli_in(scratch.path(), "r.yaml -q run.dir=run").status == 0);
  auto answer = [&](const std::string& words) {
    Outcome out = cli_in(
        scratch.path(), "generate --prompt 'a <extra_id_3> b' --temperature 5 --from run " + words);
    CHECK_MESSAGE(out.status == 0, out.err);
    return out;
  };
  Outcome plain = answer(""), parsed = answer("--parse-special");
  CHECK_MESSAGE(has(plain.err, "the prompt contains '<extra_id_3>'"), plain.err);
  CHECK_MESSAGE(parsed.err == "", parsed.err);
  CHECK(plain.out != parsed.out);
  CHECK(plain.out.find("<extra_id_") == std::string::npos);
  // Of 16 tokens sampled almost evenly, one of 8 in 265; the first seeds with one are enough.
  bool printed = false;
  for (int seed = 1; seed <= 12 && !printed; ++seed)
    printed = has(answer("--parse-special --seed " + std::to_string(seed)).out, "<extra_id_");
  CHECK(printed);
}
