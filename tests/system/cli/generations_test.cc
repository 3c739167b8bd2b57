// validation.prompts: texts that a run generates at its validations, which change nothing of its
// training.
#include <csignal>

#include "done.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

/// A model with dropout, whose random numbers texts must not use.
std::string dropping_recipe() {
  return "model: {type: gpt2, layers: 2, hidden_size: 32, heads: 4, seq_length: 32, dropout: 0.2}\n"
         "dataset: mock\n"
         "train: {steps: 12, micro_batch_size: 2, global_batch_size: 4}\n"
         "optimizer: {lr: 2e-2}\nscheduler: {type: constant}\n"
         "checkpoint: {interval: 2, keep: 0}\nvalidation: {interval: 4, steps: 1}\n"
         "mixed_precision: {dtype: fp32}\nlogger: {tensorboard: false}\nrun: {threads: 1}\n";
}

const Words kPrompts = {"validation.prompts=[In the,abc,'']", "validation.generate_tokens=8"};

std::vector<Json> texts_of(const fs::path& folder) {
  std::vector<Json> out;
  std::ifstream in(folder / "generations.jsonl");
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  return out;
}

/// The values of a run that do not depend on its speed, with one rank also its peak memory.
std::vector<Json> values_of(const fs::path& folder, bool memory = false) {
  std::vector<Json> out = rows(folder);
  for (Json& row : out) {
    for (const char* key : {"tokens_per_second", "step_ms", "tflops", "mfu"}) row.erase(key);
    if (!memory) row.erase("memory_bytes");
  }
  return out;
}

/// What `mtrain generate` prints, without the line end.
std::string generated(const Scratch& scratch, const std::string& words) {
  const std::string out = done(scratch, "generate -q --temperature 0 " + words).out;
  REQUIRE(out.ends_with('\n'));
  return out.substr(0, out.size() - 1);
}

}  // namespace

TEST_CASE("texts at validations are logged and written, and training is the same bits") {
  Scratch scratch("mtrain-generations");
  const std::string recipe = scratch.write("r.yaml", dropping_recipe());
  train(recipe, scratch / "without", {});
  Outcome out = cli(with({recipe, "run.dir=" + (scratch / "run").string()}, kPrompts));
  REQUIRE_MESSAGE(out.status == 0, out.err);
  CHECK(values_of(scratch / "run", true) == values_of(scratch / "without", true));
  CHECK(digest(scratch / "run") == digest(scratch / "without"));
  const std::vector<Json> texts = texts_of(scratch / "run");
  REQUIRE(texts.size() == 9);
  const char* const prompts[] = {"In the", "abc", ""};
  for (size_t i = 0; i < texts.size(); ++i) {
    CHECK(texts[i].at("step") == 4 * (i / 3 + 1));
    CHECK(texts[i].at("prompt") == prompts[i % 3]);
    const auto tokens = texts[i].at("tokens").get<int>();
    CHECK(texts[i].at("ended") == (tokens < 8 ? "end" : "length"));
    CHECK(tokens <= 8);
  }
  for (const char* line : {"\nstep 4: 3 generated texts  (", "\n  > In the\n    ", "\nstep 12: 3 "})
    CHECK_MESSAGE(has(out.out, line), out.out);
  // They are those of the checkpoint of the step.
  for (const auto& one : texts) {
    const std::string prompt = one.at("prompt"), step = std::to_string(one.at("step").get<int>());
    CHECK(generated(scratch, "--max-tokens 8 --from run/checkpoints/step-" + step + " --prompt '" +
                                 prompt + "'") == prompt + one.at("text").get<std::string>());
  }
}

TEST_CASE("a run that continues generates the texts of a run without a pause") {
  Scratch scratch("mtrain-generations-resume");
  const std::string recipe = scratch.write("r.yaml", dropping_recipe());
  const Words words = with(kPrompts, {"validation.temperature=0.9"});
  auto file = [&](const char* run) { return slurp(scratch / run / "generations.jsonl"); };
  train(recipe, scratch / "whole", words);
  CHECK(texts_of(scratch / "whole").size() == 9);
  train(recipe, scratch / "parts", with(words, {"train.steps=8"}));
  CHECK(texts_of(scratch / "parts").size() == 6);
  train(recipe, scratch / "parts", words);
  CHECK(file("parts") == file("whole"));
  // Steps that are done again replace their texts.
  for (const int step : {8, 10, 12}) forget_checkpoint(scratch / "parts", step);
  train(recipe, scratch / "parts", words);
  CHECK(file("parts") == file("whole"));
  // Other seeds give other texts, and prompts may change when a run continues.
  train(recipe, scratch / "other", with(words, {"rng.seed=5"}));
  CHECK(file("other") != file("whole"));
  train(recipe, scratch / "whole", {"train.steps=16", "validation.prompts=[xyz]"});
  const std::vector<Json> texts = texts_of(scratch / "whole");
  REQUIRE(texts.size() == 10);
  CHECK(texts.back().at("prompt") == "xyz");
}

TEST_CASE("every layout generates the texts of one rank, and trains the same with them") {
  Scratch scratch("mtrain-generations-layouts");
  const std::string dense =
      "model: {type: llama, layers: 4, hidden_size: 32, heads: 4, kv_heads: 2, ffn_hidden_size: "
      "80, "
      "seq_length: 32}\n";
  const std::string experts =
      "model: {type: moe, layers: 2, hidden_size: 32, heads: 4, kv_heads: 2, ffn_hidden_size: 64, "
      "seq_length: 32, moe: {experts: 4, top_k: 2, ffn_hidden_size: 32}}\n";
  // A learning rate with which all runs have the initial weights.
  const std::string training =
      "dataset: mock\ntrain: {steps: 2, micro_batch_size: 1, global_batch_size: 4}\n"
      "optimizer: {lr: 1e-30}\nscheduler: {type: constant}\nvalidation: {interval: 1, steps: 1}\n"
      "mixed_precision: {dtype: fp32}\nlogger: {tensorboard: false}\nrun: {threads: 1}\n";
  scratch.write("dense.yaml", dense + training);
  scratch.write("experts.yaml", experts + training);
  const Words prompts = {"validation.prompts=[In the,abc,Z]", "validation.generate_tokens=9"};
  for (const auto& [model, layouts] :
       {std::pair<std::string, std::vector<Words>>{
            "dense",
            {{"dist.nproc=2", "dist.zero=1"},
             {"dist.nproc=2", "dist.zero=2"},
             {"dist.nproc=2", "dist.zero=3"},
             {"dist.zero=3"},
             {"dist.nproc=2", "dist.tp=2"},
             {"dist.nproc=4", "dist.tp=2", "dist.sp=true", "dist.pp=2"},
             {"dist.nproc=4", "dist.pp=2"},
             {"dist.nproc=2", "dist.pp=2", "dist.vp=2", "dist.schedule=interleaved"},
             {"dist.nproc=2", "dist.cp=2"},
             {"dist.nproc=4", "dist.cp=2", "dist.tp=2", "dist.sp=true"}}},
        {"experts",
         {{"dist.nproc=2", "dist.ep=2"},
          {"dist.nproc=4", "dist.tp=2", "dist.sp=true", "dist.ep=2"},
          {"dist.nproc=4", "dist.ep=2", "dist.zero=3"}}}}) {
    const std::string recipe = (scratch / (model + ".yaml")).string();
    train(recipe, scratch / model / "one", prompts);
    const std::string one = slurp(scratch / model / "one/generations.jsonl");
    CHECK(texts_of(scratch / model / "one").size() == 6);
    for (const Words& layout : layouts) {
      CAPTURE(text(layout));
      const fs::path folder = scratch / model / std::to_string(&layout - layouts.data());
      train(recipe, folder / "without", layout);
      train(recipe, folder / "run", with(layout, prompts));
      CHECK(slurp(folder / "run/generations.jsonl") == one);
      CHECK(values_of(folder / "run") == values_of(folder / "without"));
    }
  }
}

TEST_CASE("ranks that wait for the text of another rank are not taken for ranks that hang") {
  Scratch scratch("mtrain-generations-wait");
  const std::string recipe = scratch.write("r.yaml", dropping_recipe());
  train(recipe, scratch / "run",
        {"dist.nproc=2", "dist.silence_seconds=1", "train.steps=1", "validation.prompts=[a]",
         "validation.generate_tokens=4000"});
  CHECK(texts_of(scratch / "run").size() == 1);
}

TEST_CASE("a signal ends the generation of texts on all ranks, and the run continues") {
  Scratch scratch("mtrain-generations-signal");
  const std::string recipe = scratch.write("r.yaml", dropping_recipe());
  for (const Words& layout : {Words{},
                              {"dist.nproc=2"},
                              {"dist.nproc=2", "dist.tp=2"},
                              {"dist.nproc=2", "dist.zero=3"}}) {
    CAPTURE(text(layout));
    const fs::path folder = scratch / (layout.empty() ? "one" : layout.back());
    const Words words = with(with({recipe, "run.dir=" + folder.string()}, layout),
                             with(kPrompts, {"validation.generate_tokens=100"}));
    Outcome out = run({.arguments = with({mtrain_binary()}, words),
                       .environment = {"MTRAIN_FAULT=generate.token:12:stop"},
                       .while_stopped = [](pid_t pid) { ::kill(pid, SIGINT); }});
    CHECK_MESSAGE(out.status == 128 + SIGINT, out.err);
    CHECK_MESSAGE(has(out.out, "the texts after step 4 are not generated completely"), out.out);
    CHECK(texts_of(folder).empty());
    Outcome rest = cli(words);
    CHECK_MESSAGE(rest.status == 0, rest.err);
    CHECK(texts_of(folder).size() == 6);
  }
}

TEST_CASE("with sft a prompt is a user's turn of the chat template, or the text as trained") {
  Scratch scratch("mtrain-generations-sft");
  std::string chats, texts, orders;
  for (const char c : std::string("abcdefgh")) {
    const std::string name(1, c);
    chats +=
        Json{{"messages",
              {{{"role", "user"}, {"content", name}}, {{"role", "assistant"}, {"content", "yes"}}}}}
            .dump() +
        "\n";
    texts += Json{{"prompt", "say " + name}, {"completion", " no"}}.dump() + "\n";
    orders += Json{{"instruction", name}, {"output", "ok"}}.dump() + "\n";
  }
  scratch.write("chats.jsonl", chats);
  scratch.write("texts.jsonl", texts);
  scratch.write("orders.jsonl", orders);
  scratch.write(
      "r.yaml",
      "model: {type: llama, layers: 1, hidden_size: 32, heads: 2, ffn_hidden_size: 64, "
      "seq_length: 192}\ntokenizer: byte\n"
      "dataset: {type: sft, split: '50,50,0'}\n"
      "train: {steps: 40, micro_batch_size: 4, global_batch_size: 4}\n"
      "optimizer: {lr: 1e-2}\nscheduler: {type: constant}\nmixed_precision: {dtype: fp32}\n"
      "validation: {steps: 1, prompts: [c], generate_tokens: 16}\n"
      "logger: {tensorboard: false}\n");
  const std::string form =
      "Below is an instruction that describes a task. Write a response that appropriately "
      "completes the request.\n\n### Instruction:\nc\n\n### Response:";
  struct Kind {
    std::string words, asked, text;
  };
  for (const Kind& kind :
       {Kind{"dataset.path=chats.jsonl dataset.chat_template=vicuna", "--chat --prompt c", "yes"},
        {"dataset.path=texts.jsonl 'validation.prompts=[say c]'", "--prompt 'say c'", " no"},
        {"dataset.path=orders.jsonl", "--prompt '" + form + "'", "ok"}}) {
    CAPTURE(kind.words);
    done(scratch, "r.yaml -q run.dir=run checkpoint.resume=auto " + kind.words);
    const std::vector<Json> made = texts_of(scratch / "run");
    REQUIRE(made.size() == 1);
    CHECK(made[0].at("text") == kind.text);
    CHECK(made[0].at("ended") == "end");
    const std::string answer = generated(scratch, "--from run --max-tokens 16 " + kind.asked);
    CHECK_MESSAGE(answer.ends_with(kind.text), answer);
    fs::remove_all(scratch / "run");
  }
}

TEST_CASE("with preferences a prompt is a user's turn where the answers are messages") {
  Scratch scratch("mtrain-generations-pairs");
  auto message = [](const char* role, const std::string& words) {
    return Json{{"role", role}, {"content", words}};
  };
  std::string chats, texts;
  for (const char c : std::string("abcdefgh")) {
    const std::string name(1, c);
    chats += Json{{"prompt", {message("user", name)}},
                  {"chosen", {message("assistant", "yes")}},
                  {"rejected", {message("assistant", "no")}}}
                 .dump() +
             "\n";
    texts += Json{{"prompt", name}, {"chosen", "yes"}, {"rejected", "no"}}.dump() + "\n";
  }
  scratch.write("chats.jsonl", chats);
  scratch.write("texts.jsonl", texts);
  scratch.write("r.yaml",
                "model: {type: llama, layers: 1, hidden_size: 32, heads: 2, ffn_hidden_size: 64, "
                "seq_length: 512}\ntokenizer: byte\nobjective: dpo\n"
                "dataset: {type: preference, split: '50,50,0'}\n"
                "train: {steps: 3, micro_batch_size: 2, global_batch_size: 2}\n"
                "optimizer: {lr: 1e-2}\nscheduler: {type: constant}\n"
                "mixed_precision: {dtype: fp32}\nlogger: {tensorboard: false}\n"
                "validation: {steps: 1, prompts: [c], generate_tokens: 5}\n");
  done(scratch, "r.yaml -q run.dir=chats dataset.path=chats.jsonl dataset.chat_template=vicuna");
  done(scratch, "r.yaml -q run.dir=texts dataset.path=texts.jsonl");
  const std::vector<Json> turn = texts_of(scratch / "chats"), text = texts_of(scratch / "texts");
  REQUIRE(turn.size() == 1);
  REQUIRE(text.size() == 1);
  CHECK(turn[0].at("text") ==
        generated(scratch, "--from chats --max-tokens 5 --chat --template vicuna --prompt c"));
  CHECK("c" + text[0].at("text").get<std::string>() ==
        generated(scratch, "--from texts --max-tokens 5 --prompt c"));
}

TEST_CASE("an encoder with a decoder answers the prompts of its validation") {
  Scratch scratch("mtrain-generations-t5");
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += Json{{"text", "words of a text, number " + std::to_string(i)}}.dump() + "\n";
  scratch.write("x.jsonl", text);
  done(scratch, "data prepare -q -i x.jsonl -o x -t byte --append-eod");
  scratch.write("r.yaml",
                "model: {type: t5, layers: 1, encoder_layers: 1, hidden_size: 16, heads: 2, "
                "head_dim: 8, ffn_hidden_size: 32, seq_length: 48, decoder_seq_length: 16}\n"
                "tokenizer: {type: byte, extra_ids: 8}\n"
                "dataset: {type: t5_seq2seq, path: x, split: '90,10,0', sentinels: 8, "
                "decoder_seq_length: 16, start_token: <extra_id_7>}\n"
                "train: {steps: 4, micro_batch_size: 2, global_batch_size: 2}\n"
                "validation: {steps: 1, prompts: [abc]}\nrun: {threads: 1}\n"
                "mixed_precision: {dtype: fp32}\noptimizer: {lr: 1.0e-2}\n");
  done(scratch, "r.yaml -q run.dir=run");
  const std::vector<Json> made = texts_of(scratch / "run");
  REQUIRE(made.size() == 1);
  CHECK(made[0].at("text") == generated(scratch, "--from run --prompt abc"));
  CHECK(made[0].at("tokens").get<int>() <= 16);
}

TEST_CASE("prompts that cannot be answered are refused, and those that are cut are said to be") {
  Scratch scratch("mtrain-generations-refused");
  scratch.write("r.yaml", dropping_recipe());
  Outcome scores = cli_in(scratch.path(),
                          "r.yaml validation.prompts=[a] objective=classification model.labels=2");
  CHECK(scores.status == 10);
  CHECK_MESSAGE(has(scores.err, "predicts no tokens"), scores.err);
  Outcome cut = cli_in(scratch.path(), "r.yaml train.steps=1 run.dir=cut 'validation.prompts=[" +
                                           std::string(40, 'x') + "]'");
  CHECK_MESSAGE(cut.status == 0, cut.err);
  CHECK_MESSAGE(has(cut.err,
                    "validation.prompts[0] has 40 tokens, and only its last 32 are read: "
                    "model.seq_length is 32"),
                cut.err);
  // A template that cannot write the prompt ends the run before its first step.
  scratch.write("bad.jinja",
                "{% for m in messages %}{% if m.content == 'x' %}{{ raise_exception('not x') }}"
                "{% endif %}{{ m.content }}{% endfor %}");
  scratch.write(
      "chats.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
      "\n");
  Outcome bad = cli_in(scratch.path(),
                       "r.yaml run.dir=bad dataset=sft dataset.path=chats.jsonl "
                       "dataset.valid_path=chats.jsonl dataset.template_path=bad.jinja "
                       "validation.prompts=[x]");
  CHECK(bad.status == 11);
  CHECK_MESSAGE(has(bad.err, "not x"), bad.err);
  CHECK_FALSE(fs::exists(scratch / "bad"));
}
