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

/// The values of a run that do not depend on its speed.
std::vector<Json> values_of(const fs::path& folder) {
  std::vector<Json> out = rows(folder);
  for (Json& row : out)
    for (const char* key : {"tokens_per_second", "step_ms", "tflops", "mfu"}) row.erase(key);
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
  CHECK(values_of(scratch / "run") == values_of(scratch / "without"));
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

TEST_CASE("data-parallel ranks share the prompts, with every zero stage that keeps the weights") {
  Scratch scratch("mtrain-generations-ranks");
  const std::string recipe = scratch.write("r.yaml", dropping_recipe());
  std::string first;
  for (const char* zero : {"dist.zero=0", "dist.zero=1", "dist.zero=2"}) {
    CAPTURE(zero);
    const Words layout = {"dist.nproc=2", zero, "validation.interval=6"};
    train(recipe, scratch / zero / "without", layout);
    train(recipe, scratch / zero / "run", with(layout, kPrompts));
    CHECK(values_of(scratch / zero / "run") == values_of(scratch / zero / "without"));
    const std::vector<Json> texts = texts_of(scratch / zero / "run");
    REQUIRE(texts.size() == 6);
    CHECK(texts[0].at("prompt") == "In the");
    CHECK(texts[4].at("prompt") == "abc");
    CHECK(texts[5].at("step") == 12);
    for (const auto& one : texts) CHECK(one.at("tokens").get<int>() > 0);
    const std::string all = slurp(scratch / zero / "run/generations.jsonl");
    if (first.empty()) first = all;
    CHECK(all == first);
  }
  // A rank that waits for another one's text is not taken for a rank that hangs.
  train(recipe, scratch / "long",
        {"dist.nproc=2", "dist.silence_seconds=1", "train.steps=1", "validation.prompts=[a]",
         "validation.generate_tokens=4000"});
  CHECK(texts_of(scratch / "long").size() == 1);
}

TEST_CASE("a signal ends the generation of texts, and the run continues") {
  Scratch scratch("mtrain-generations-signal");
  const std::string recipe = scratch.write("r.yaml", dropping_recipe());
  const Words words = with({recipe, "run.dir=" + (scratch / "run").string()}, kPrompts);
  Outcome out = run({.arguments = with({mtrain_binary()}, words),
                     .environment = {"MTRAIN_FAULT=generate.token:12:stop"},
                     .while_stopped = [](pid_t pid) { ::kill(pid, SIGINT); }});
  CHECK_MESSAGE(out.status == 128 + SIGINT, out.err);
  CHECK_MESSAGE(has(out.out, "the texts after step 4 are not generated completely"), out.out);
  CHECK(texts_of(scratch / "run").empty());
  Outcome rest = cli(words);
  CHECK_MESSAGE(rest.status == 0, rest.err);
  CHECK(texts_of(scratch / "run").size() == 6);
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
  Outcome tensor = cli_in(scratch.path(), "r.yaml validation.prompts=[a] dist.tp=2 dist.nproc=2");
  CHECK(tensor.status == 10);
  CHECK_MESSAGE(has(tensor.err, "only where each rank holds the whole model"), tensor.err);
  CHECK_MESSAGE(has(tensor.err, "mtrain generate --from RUN"), tensor.err);
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
                       "r.yaml run.dir=bad ~dataset dataset.type=sft dataset.path=chats.jsonl "
                       "dataset.valid_path=chats.jsonl dataset.template_path=bad.jinja "
                       "validation.prompts=[x]");
  CHECK(bad.status == 11);
  CHECK_MESSAGE(has(bad.err, "not x"), bad.err);
  CHECK_FALSE(fs::exists(scratch / "bad"));
}
