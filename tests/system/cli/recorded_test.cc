// A finished run needs neither the folder from which it began nor the file of its chat template,
// and notices if its tokenizer has changed.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "done.h"
#include "golden_case.h"
#include "roots.h"
#include "small_tokenizer.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using mtrain::cat;

namespace {

void write_chat_template(const Scratch& scratch) {
  scratch.write(
      "day.jinja",
      "{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}{{ m.content }};{% endfor %}");
}

/// The weights of llama_tiny as `there`, records x.jsonl, and r.yaml, which trains them.
void write_chat_run(const Scratch& scratch) {
  copy_model(scratch, source_root() / "tests/golden/llama_tiny", 200);
  write_at(
      scratch / "x.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
      "\n");
  write_chat_template(scratch);
  scratch.write("r.yaml",
                "model: {type: llama, init_from: there, seq_length: 64}\n" + kGoldenTraining +
                    "dataset: {type: sft, path: x.jsonl, split: '1', template_path: day.jinja}\n"
                    "train: {steps: 1, global_batch_size: 1}\n");
}

std::string refused(const Scratch& scratch, const std::string& words, int status) {
  const Outcome out = cli_in(scratch.path(), words);
  CHECK_MESSAGE(out.status == status, words, "\n", out.err);
  return out.err;
}

}  // namespace

TEST_CASE("a run of all weights is used after the folder from which it began has gone") {
  const Scratch scratch("mtrain-recorded-start");
  write_chat_run(scratch);
  fs::create_directories(scratch / "tok");
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    fs::copy(scratch / "there" / file, scratch / "tok" / file);
  done(scratch, "r.yaml -q run.dir=run tokenizer.path=tok");
  done(scratch, "-q export run before");
  fs::rename(scratch / "there", scratch / "moved");
  done(scratch, "-q export run after");
  for (const char* file : {"model.safetensors", "config.json"})
    CHECK(slurp(scratch / "before" / file) == slurp(scratch / "after" / file));
  done(scratch, "-q export run again --base moved");
  CHECK(slurp(scratch / "before/config.json") == slurp(scratch / "again/config.json"));
  done(scratch, "generate --from run --prompt a --max-tokens 2");
  done(scratch, "eval --from run --batches 1 --split train");
  // A run that began with that run.
  done(scratch, "r.yaml -q run.dir=second model.init_from=run tokenizer.path=tok");
  fs::rename(scratch / "run", scratch / "first");
  done(scratch, "-q export second out");
  done(scratch, "generate --from second --prompt a --max-tokens 2");
  // The tokenizer may be moved, too.
  fs::rename(scratch / "tok", scratch / "words");
  const Outcome without = done(scratch, "export second none");
  CHECK_MESSAGE(has(without.err, "gets no tokenizer"), without.err);
  CHECK_MESSAGE(has(without.err, "tokenizer.path=FOLDER"), without.err);
  done(scratch, "-q export second named tokenizer.path=words");
  CHECK(slurp(scratch / "named/tokenizer.json") == slurp(scratch / "out/tokenizer.json"));
  const std::string err = refused(scratch, "export second other optimizer.lr=1", 2);
  CHECK_MESSAGE(has(err, "'optimizer.lr=1' is no setting of the tokenizer"), err);
}

TEST_CASE("exports and merges refuse a tokenizer with which the run was not trained") {
  const Scratch scratch("mtrain-recorded-tokenizer");
  write_chat_run(scratch);
  done(scratch, "r.yaml -q run.dir=run");
  done(scratch, "r.yaml -q run.dir=lora peft=lora");
  const std::string tokenizer = slurp(scratch / "there/tokenizer.json");
  write_at(scratch / "there/tokenizer.json", small_tokenizer(190));
  for (const char* words : {"export run out", "export run out.gguf", "merge lora --into out"}) {
    const std::string err = refused(scratch, words, 12);
    CHECK_MESSAGE(has(err, "is not the one with which the run was trained"), err);
    CHECK_MESSAGE(has(err, "tokenizer.path=FOLDER"), err);
  }
  write_at(scratch / "there/tokenizer.json", tokenizer);
  done(scratch, "-q export run out");
}

TEST_CASE("adapters whose base has moved: the help names --base") {
  const Scratch scratch("mtrain-recorded-base");
  write_chat_run(scratch);
  done(scratch, "r.yaml -q run.dir=lora peft=lora");
  fs::rename(scratch / "there", scratch / "moved");
  for (const char* words : {"export lora out", "merge lora --into out"}) {
    const std::string err = refused(scratch, words, 12);
    CHECK_MESSAGE(has(err, "there, which does not exist"), err);
    CHECK_MESSAGE(has(err, "--base FOLDER"), err);
  }
  done(scratch, "-q merge lora --into out --base moved");
}

TEST_CASE("a run of all weights has no adapters, wherever its base is") {
  const Scratch scratch("mtrain-recorded-no-adapters");
  write_chat_run(scratch);
  done(scratch, "r.yaml -q 'run.dir=the run'");
  fs::rename(scratch / "there", scratch / "moved");
  for (const char* words :
       {"merge 'the run' --into out --base moved", "merge 'the run' --into out"}) {
    const std::string err = refused(scratch, words, 12);
    CHECK_MESSAGE(has(err, "the run has no adapters: its run trained all weights"), err);
    CHECK_MESSAGE(has(err, "mtrain export 'the run' DIR"), err);
    CHECK_FALSE(has(err, "model.init_from"));
  }
}

TEST_CASE("a folder of adapters has the tokenizer and the template of the training") {
  const Scratch scratch("mtrain-recorded-adapters");
  write_chat_run(scratch);
  done(scratch, "r.yaml -q run.dir=lora peft=lora");
  const std::string trained = slurp(scratch / "day.jinja"),
                    tokenizer = slurp(scratch / "there/tokenizer.json");
  fs::remove(scratch / "day.jinja");
  done(scratch, "-q export lora adapters");
  CHECK(slurp(scratch / "adapters/chat_template.jinja") == trained);
  CHECK(slurp(scratch / "adapters/tokenizer.json") == tokenizer);
  CHECK_FALSE(fs::exists(scratch / "adapters/generation_config.json"));
  const std::string chat = " --chat --prompt a --temperature 0 --max-tokens 6 --date 2025-01-02";
  const std::string said = done(scratch, "generate --from lora" + chat).out;
  done(scratch, "-q merge adapters --base there --into merged");
  CHECK(slurp(scratch / "merged/chat_template.jinja") == trained);
  CHECK(slurp(scratch / "merged/tokenizer.json") == tokenizer);
  CHECK(done(scratch, "generate --from merged" + chat).out == said);
  CHECK(done(scratch, "generate --from there --adapter adapters" + chat).out == said);
  // A template alone goes with the tokenizer of the base.
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    fs::remove(scratch / "adapters" / file);
  done(scratch, "-q merge adapters --base there --into again");
  for (const char* file : {"chat_template.jinja", "tokenizer.json"})
    CHECK(slurp(scratch / "again" / file) == slurp(scratch / "merged" / file));
  // A faulty template is reported, and not replaced by another one.
  write_at(scratch / "adapters/chat_template.jinja", "{% if");
  const Outcome faulty = cli_in(scratch.path(), "generate --from there --adapter adapters" + chat);
  CHECK(faulty.status != 0);
  CHECK_MESSAGE(has(faulty.err, "chat_template.jinja"), faulty.err);
  fs::remove(scratch / "adapters/chat_template.jinja");
  write_at(scratch / "adapters/tokenizer_config.json", "{");
  const Outcome damaged = cli_in(scratch.path(), "generate --from there --adapter adapters" + chat);
  CHECK(damaged.status != 0);
  CHECK_MESSAGE(has(damaged.err, "adapters/tokenizer_config.json"), damaged.err);
}

TEST_CASE("--chat uses the template and the day of the training") {
  const Scratch scratch("mtrain-recorded-chat");
  write_chat_run(scratch);
  done(scratch, "r.yaml -q run.dir=run dataset.date=2025-01-02");
  const auto answer = [&](const std::string& more) {
    return done(scratch,
                "generate --from run --chat --prompt a --temperature 0 --max-tokens 6" + more)
        .out;
  };
  const std::string trained = answer("");
  CHECK(trained == answer(" --date 2025-01-02"));
  CHECK(trained == answer(" --template day.jinja"));
  write_at(scratch / "day.jinja", "{% for m in messages %}zzzz{{ m.content }}{% endfor %}");
  CHECK(trained == answer(""));
  fs::remove(scratch / "day.jinja");
  CHECK(trained == answer(""));
  CHECK(has(refused(scratch, "generate --from run --chat --prompt a --date today", 10),
            "--date: 'today' is not a date"));
  // Records are rendered as they are trained.
  write_chat_template(scratch);
  CHECK(has(done(scratch, "data render x.jsonl --template day.jinja").out, "2024-07-26"));
  CHECK(has(done(scratch, "data render x.jsonl --template day.jinja --date 2025-01-02").out,
            "2025-01-02"));
}

TEST_CASE("folders of preferences have the template of the training") {
  const Scratch scratch("mtrain-recorded-preference");
  write_chat_run(scratch);
  write_at(scratch / "p.jsonl", R"({"prompt": [{"role": "user", "content": "a"}], )"
                                R"("chosen": [{"role": "assistant", "content": "b"}], )"
                                R"("rejected": [{"role": "assistant", "content": "cc"}]})"
                                "\n");
  done(scratch,
       "r.yaml -q run.dir=run dataset.type=preference dataset.path=p.jsonl objective=simpo");
  const std::string trained = slurp(scratch / "day.jinja");
  fs::remove(scratch / "day.jinja");
  done(scratch, "-q export run out");
  CHECK(slurp(scratch / "out/chat_template.jinja") == trained);
}

TEST_CASE("transformers ends an exported model's answer, and reads blanks, as the training did") {
  const Scratch scratch("mtrain-recorded-ends");
  write_chat_run(scratch);
  fs::create_directories(scratch / "tok");
  auto tokenizer = nlohmann::json::parse(small_tokenizer(200, {"<unk>", "</s>", "<end>"}));
  tokenizer["normalizer"] = {{"type", "Sequence"},
                             {"normalizers", {{{"type", "Prepend"}, {"prepend", "_"}}}}};
  write_at(scratch / "tok/tokenizer.json", tokenizer.dump());
  const auto write_config = [&](const char* more) {
    write_at(scratch / "tok/tokenizer_config.json",
             cat(R"({"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>")", more, "}"));
  };
  scratch.write("end.jinja", "{% for m in messages %}{{ m.content }}{{ '<end>' }}{% endfor %}");
  const std::string train =
      "r.yaml tokenizer.path=tok ~model.init_from model.vocab_size=200 model.layers=2 "
      "model.hidden_size=32 model.heads=4 model.ffn_hidden_size=64 dataset.template_path=";
  write_config("");
  CHECK(has(done(scratch, train + "end.jinja run.dir=run").err, "\"legacy\": true"));
  done(scratch, "-q export run out");
  const auto json_of = [&](const char* file) {
    return nlohmann::json::parse(slurp(scratch / file));
  };
  CHECK(json_of("out/generation_config.json").at("eos_token_id") == nlohmann::json({1, 2}));
  CHECK(json_of("out/tokenizer_config.json").at("legacy") == true);
  CHECK(json_of("out/tokenizer_config.json").at("eos_token") == "</s>");
  // A template that ends an answer with the end of the text, and a folder that is clear.
  scratch.write("end.jinja", "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}");
  write_config(", \"legacy\": true");
  CHECK_FALSE(has(done(scratch, train + "end.jinja run.dir=clear").err, "legacy"));
  done(scratch, "-q export clear plain");
  CHECK(json_of("plain/generation_config.json").at("eos_token_id") == 1);
  CHECK(slurp(scratch / "plain/tokenizer_config.json") ==
        slurp(scratch / "tok/tokenizer_config.json"));
}
