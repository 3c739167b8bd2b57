// GGUF files from runs and folders, compared with llama.cpp's Python package gguf, and options that
// do not fit the kind of output.
#include <doctest/doctest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "done.h"
#include "python_check.h"
#include "roots.h"
#include "shell.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

std::string utf8(int code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

/// GPT-2's splitting, the 256 bytes, two merges, and two special tokens.
std::string byte_level_tokenizer() {
  nlohmann::ordered_json vocab;
  for (int byte = 0, other = 256; byte < 256; ++byte) {
    const bool printed = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    vocab[utf8(printed ? byte : other++)] = byte;
  }
  vocab["th"] = 256;
  vocab["the"] = 257;
  auto special = nlohmann::ordered_json::array();
  for (int id : {258, 259})
    special.push_back({{"id", id},
                       {"content", id == 258 ? "<s>" : "</s>"},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
  const nlohmann::ordered_json bytes = {{"type", "ByteLevel"},
                                        {"add_prefix_space", false},
                                        {"trim_offsets", true},
                                        {"use_regex", true}};
  return nlohmann::ordered_json{{"version", "1.0"},
                                {"added_tokens", special},
                                {"normalizer", nullptr},
                                {"pre_tokenizer", bytes},
                                {"post_processor", nullptr},
                                {"decoder", bytes},
                                {"model",
                                 {{"type", "BPE"},
                                  {"dropout", nullptr},
                                  {"unk_token", nullptr},
                                  {"vocab", vocab},
                                  {"merges", {"t h", "th e"}}}}}
      .dump();
}

void train(const Scratch& scratch, const std::string& type, const std::string& more) {
  write_at(scratch / "tok/tokenizer.json", byte_level_tokenizer());
  write_at(scratch / "tok/tokenizer_config.json",
           R"({"bos_token":"<s>","eos_token":"</s>","add_bos_token":true})");
  scratch.write("r.yaml", "model: {type: " + type +
                              ", layers: 2, hidden_size: 64, heads: 4, kv_heads: 2, "
                              "ffn_hidden_size: 96, seq_length: 16" +
                              more +
                              "}\ntokenizer: {type: hf, path: tok}\ndataset: mock\n"
                              "run: {threads: 1}\nlogger: {tensorboard: false}\n"
                              "train: {steps: 1, global_batch_size: 4}\n"
                              "scheduler: {warmup_steps: 0}\n");
  done(scratch, "r.yaml -q run.dir=run");
}

}  // namespace

TEST_CASE("a GGUF file of a run has what llama.cpp's converter gives the run's folder") {
  const std::pair<std::string, std::string> models[] = {
      {"llama", ""},
      {"llama", ", attention: {qk_norm: true}"},
      {"moe", ", moe: {experts: 4, top_k: 2, layer_freq: 1}"}};
  for (const auto& [type, more] : models) {
    CAPTURE(more);
    const Scratch scratch("mtrain-gguf");
    train(scratch, type, more);
    for (const std::string dtype : {"f32", "bf16", "q8_0"}) {
      const std::string folder = "fp32";  // norms and routers are fp32 in any file
      if (!fs::exists(scratch / folder))
        done(scratch, "-q export run " + folder + " --dtype " + folder);
      const Outcome said = done(scratch, "export run " + dtype + ".gguf --dtype " + dtype);
      CHECK_MESSAGE(has(said.out, "1 file"), said.out);
      done(scratch, "-q convert " + folder + " again-" + dtype + ".gguf --dtype " + dtype);
      python_agrees("gguf_check.py",
                    {(scratch / (dtype + ".gguf")).string(), (scratch / folder).string(), dtype});
    }
    done(scratch, "-q convert fp32 own-type.gguf");  // the folder's, without --dtype
    CHECK(slurp(scratch / "own-type.gguf") == slurp(scratch / "again-f32.gguf"));
  }
}

TEST_CASE("options and models that do not fit a GGUF file are refused") {
  const Scratch scratch("mtrain-gguf-faults");
  train(scratch, "llama", "");
  auto fails = [&](const std::string& words, int status, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), words);
    const std::string details = words + "\n" + outcome.err;
    CHECK_MESSAGE(outcome.status == status, details);
    CHECK_MESSAGE(has(outcome.err, part), outcome.err);
  };
  fails("export run out --dtype q8_0", 2, "only for GGUF files");
  fails("export run out.gguf --shard-size 1GB", 2, "--shard-size");
  done(scratch, "-q export run out.gguf");
  fails("export run out.gguf", 18, "exists already");
  fails("export run other.gguf --dtype fp64", 2, "--dtype");
  done(scratch, "r.yaml -q run.dir=bytes tokenizer=byte ~tokenizer.path");
  fails("export bytes other.gguf", 10, "needs tokenizer.json");
  const Outcome failed = cli_in(scratch.path(), "export run other.gguf", "/nowhere",
                                {"MTRAIN_FAULT=hf.write:3:errno=ENOSPC"});
  CHECK(failed.status == 18);
  for (const auto& entry : fs::directory_iterator(scratch.path()))
    CHECK(entry.path().filename().string().find("other") == std::string::npos);
}

TEST_CASE("a GGUF file has the chat template of the training") {
  const Scratch scratch("mtrain-gguf-template");
  train(scratch, "llama", "");
  const std::string own = "{% for m in messages %}{{ m.content }}<s>{% endfor %}";
  scratch.write("own.jinja", own);
  write_at(
      scratch / "x.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
      "\n");
  done(scratch,
       "r.yaml -q run.dir=chats dataset=sft dataset.path=x.jsonl dataset.split='1' "
       "dataset.template_path=own.jinja train.global_batch_size=1 validation.steps=0");
  fs::remove(scratch / "own.jinja");
  done(scratch, "-q export chats chats.gguf");
  CHECK(has(slurp(scratch / "chats.gguf"), own));
}
