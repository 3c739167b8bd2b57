// mtrain generate and eval: prompts from standard input, conversations, runs whose optimizer is
// gone, Hugging Face folders.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "roots.h"
#include "shell.h"
#include "small_tokenizer.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

constexpr const char* kGreedy = " --temperature 0 --max-tokens 6";

/// A run of a tiny model in `folder`/run.
void make_run(const Scratch& scratch, const std::string& more = "") {
  Outcome out =
      cli_in(scratch.path(), scratch.write("r.yaml", tiny_recipe()) +
                                 " -q train.steps=2 checkpoint.interval=2 run.dir=run " + more);
  REQUIRE_MESSAGE(out.status == 0, out.err);
}

/// The Hugging Face folder of a tiny model, without a tokenizer.
void copy_tiny_llama(const fs::path& folder) {
  fs::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy(source_root() / "tests/golden/llama_tiny" / file, folder / file);
}

std::string generated(const Scratch& scratch, const std::string& words) {
  Outcome out = cli_in(scratch.path(), "generate --from " + words + kGreedy);
  CHECK_MESSAGE(out.status == 0, out.err);
  return out.out;
}

}  // namespace

TEST_CASE("each line of standard input is a prompt") {
  Scratch scratch("mtrain-prompts");
  make_run(scratch);
  const std::string one = generated(scratch, "run --prompt one"),
                    two = generated(scratch, "run --prompt two");
  CHECK(one.starts_with("one"));
  scratch.write("prompts", "one\ntwo\n");
  Outcome both =
      run({.arguments = {"/bin/sh", "-c",
                         "cd " + scratch.path().string() + " && " + mtrain_binary() +
                             " generate --from run --prompt -" + kGreedy + " < prompts"}});
  CHECK_MESSAGE(both.status == 0, both.err);
  CHECK(both.out == one + two);
  CHECK_FALSE(has(both.err, "standard input"));
  auto with_input = [&](const std::string& words, const std::string& input) {
    scratch.write("input", input);
    return run({.arguments = {"/bin/sh", "-c",
                              "cd " + scratch.path().string() + " && " + mtrain_binary() +
                                  " generate --from run " + words + kGreedy + " < input"}});
  };
  CHECK(with_input("--prompt -", "one\r\ntwo\r\n").out == one + two);
  Outcome unread = with_input("", "one\n");
  CHECK(unread.status == 0);
  CHECK_MESSAGE(has(unread.err, "standard input is not read; with --prompt -"), unread.err);
  CHECK_FALSE(has(with_input("--prompt one", "two\n").err, "standard input"));
}

TEST_CASE("a prompt that is longer than model.seq_length is read from its end, with a warning") {
  Scratch scratch("mtrain-long-prompt");
  make_run(scratch, "model.seq_length=8");
  auto continued = [&](const std::string& prompt) {
    Outcome out = cli_in(scratch.path(), "generate --from run --prompt " + prompt + kGreedy);
    REQUIRE_MESSAGE(out.status == 0, out.err);
    return std::pair(out.out.substr(prompt.size()), out.err);
  };
  const auto [whole, silent] = continued("abcdefgh");
  CHECK_FALSE(has(silent, "only its last"));
  const auto [last, warned] = continued("xyzabcdefgh");
  CHECK(last == whole);
  CHECK_MESSAGE(has(warned,
                    "the prompt has 11 tokens, and only its last 8 are read: "
                    "model.seq_length is 8"),
                warned);
}

TEST_CASE("wrong words of generate: a second prompt, and numbers out of their range") {
  for (const auto& [words, wanted] : std::vector<std::pair<std::string, std::string>>{
           {"--prompt a b", "'b' is not a setting: settings are written key=value"},
           {"--top-k -1", "--top-k: wanted a number of at least 0, got -1"},
           {"--top-p 1.5", "--top-p: wanted a number from 0 to 1, got 1.5"},
           {"--temperature -1", "--temperature: wanted a number from 0 to 100, got -1"}}) {
    Outcome out = cli_in("/", "generate --from nowhere " + words);
    CHECK(out.status == 2);
    CHECK_MESSAGE(has(out.err, wanted), out.err);
  }
  CHECK(
      has(cli({"bench", "r.yaml", "--steps", "0"}).err, "--steps: wanted a number above 0, got 0"));
}

TEST_CASE("--chat: turns of one conversation, by the template of the run") {
  Scratch scratch("mtrain-talk");
  scratch.write("t.jinja",
                "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}{% if "
                "add_generation_prompt %}[assistant]{% endif %}");
  make_run(scratch);
  // What is asked is what the template makes of it: the same as giving the rendered text as a
  // prompt.
  const std::string rendered = "[user]one;[assistant]";
  std::string plain = generated(scratch, "run --prompt '" + rendered + "'");
  std::string wanted = plain.substr(rendered.size(), plain.size() - rendered.size() - 1);
  wanted = wanted.substr(0, wanted.find(';'));
  const char* blanks = " \t\r\n";
  wanted.erase(0, wanted.find_first_not_of(blanks));
  wanted.erase(wanted.find_last_not_of(blanks) + 1);
  auto talk = [&](const std::string& input) {
    scratch.write("turns", input);
    Outcome out = run({.arguments = {"/bin/sh", "-c",
                                     "cd " + scratch.path().string() + " && " + mtrain_binary() +
                                         " generate --from run --chat --template t.jinja" +
                                         kGreedy + " < turns"}});
    CHECK_MESSAGE(out.status == 0, out.err);
    return out.out;
  };
  const std::string first = talk("one\n"), both = talk("one\ntwo\n");
  CHECK_MESSAGE(first == wanted + "\n", first, plain);
  CHECK(both.starts_with(first));
  CHECK(both.size() > first.size());
  Outcome none = cli_in(scratch.path(), "generate --from run --chat --prompt one");
  CHECK(none.status == 10);
  CHECK(has(none.err, "--template"));
}

TEST_CASE("--chat warns where the records were not trained in a chat template") {
  Scratch scratch("mtrain-talk-alpaca");
  write_at(scratch / "own/tokenizer.json", small_tokenizer());
  write_at(scratch / "own/chat_template.jinja",
           "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ "
           "m.content }};{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}{% if "
           "add_generation_prompt %}[assistant]{% endif %}");
  std::string records;
  for (int i = 0; i < 40; ++i)
    records += R"({"instruction": "Say it", "output": "yes"})"
               "\n";
  scratch.write("x.jsonl", records);
  scratch.write("r.yaml",
                "model: {type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 32, "
                "seq_length: 256}\ntokenizer: {type: hf, path: own}\n"
                "dataset: {type: sft, path: x.jsonl, split: '1'}\n"
                "train: {steps: 1}\nscheduler: {warmup_steps: 0}\nvalidation: {steps: 0}\n"
                "logger: {tensorboard: false}\n");
  auto chat = [&](const std::string& words) {
    Outcome out =
        cli_in(scratch.path(), "generate --max-tokens 1 --chat --prompt a --from " + words);
    CHECK_MESSAGE(out.status == 0, out.err);
    return out.err;
  };
  Outcome plain = cli_in(scratch.path(), "r.yaml run.dir=plain");
  REQUIRE_MESSAGE(plain.status == 0, plain.err);
  const std::string line = "alpaca records are trained in ";
  CHECK_MESSAGE(has(plain.out + plain.err,
                    line + "Stanford Alpaca's prompt; the tokenizer's chat template is not used"),
                plain.out, plain.err);
  const std::string warning = "the run was trained on alpaca records in ";
  const std::string said = chat("plain");
  CHECK_MESSAGE(
      has(said,
          warning +
              "Stanford Alpaca's prompt, but --chat formats messages with the chat template "),
      said);
  CHECK_MESSAGE(has(said, "chat_template.jinja"), said);
  CHECK_MESSAGE(has(said, "help: use --template alpaca; to train with"), said);
  CHECK_FALSE(has(chat("plain --template own/chat_template.jinja"), warning));  // was chosen

  Outcome own =
      cli_in(scratch.path(), "r.yaml run.dir=own_prompt 'dataset.prompt=\"Q: {instruction} A:\"'");
  REQUIRE_MESSAGE(own.status == 0, own.err);
  CHECK_MESSAGE(has(own.out + own.err, line + "the prompt of dataset.prompt"), own.out, own.err);
  CHECK(has(chat("own_prompt"), warning + "the prompt of dataset.prompt"));

  Outcome chats = cli_in(scratch.path(), "r.yaml run.dir=chats dataset.template_path=own");
  REQUIRE_MESSAGE(chats.status == 0, chats.err);
  CHECK_MESSAGE(has(chats.out + chats.err, "alpaca records are trained in the chat template "),
                chats.out, chats.err);
  CHECK_FALSE(has(chat("chats"), warning));
}

TEST_CASE("a model is used without the plugin of its optimizer") {
  Scratch scratch("mtrain-no-optimizer");
  make_run(scratch);
  const std::string before = generated(scratch, "run --prompt a");
  // The same program with what the model needs, and no optimizer.
  const fs::path built = build_root();
  for (const char* folder : {"bin", "lib/mtrain/plugins"}) fs::create_directories(scratch / folder);
  fs::copy(built / "bin/mtrain", scratch / "bin/mtrain");
  for (const auto& file : fs::directory_iterator(built / "lib"))
    if (file.is_regular_file())
      fs::copy(file.path(), scratch / "lib" / file.path().filename().string());
  for (const char* plugin : {"model_llama", "tokenizer_byte", "dataset_mock"})
    for (const char* ending : {".so", ".json"})
      fs::copy(built / "lib/mtrain/plugins" / (std::string(plugin) + ending),
               scratch / "lib/mtrain/plugins" / (std::string(plugin) + ending));
  Outcome without = run({.arguments = {(scratch / "bin/mtrain").string(), "generate", "--from",
                                       (scratch / "run").string(), "--prompt", "a", "--temperature",
                                       "0", "--max-tokens", "6"}});
  CHECK_MESSAGE(without.status == 0, without.err);
  CHECK(without.out == before);
}

TEST_CASE(
    "a model with more rows than its tokenizer has ids is warned of where it is used, and "
    "generates tokens alone") {
  Scratch scratch("mtrain-hf-rows");
  const fs::path golden = source_root() / "tests/golden/llama_tiny";
  fs::create_directories(scratch / "model");
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy(golden / file, scratch / "model" / file);
  scratch.write("r.yaml",
                "model: {type: llama, init_from: model, seq_length: 16}\ntokenizer: {type: hf, "
                "path: model}\ndataset: mock\n"
                "train: {steps: 1}\nlogger: {tensorboard: false}\n");
  auto warned = [&](const std::string& words) {
    Outcome outcome = cli_in(scratch.path(), words);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    CHECK_MESSAGE(
        has(outcome.err,
            "model/config.json), and tokenizer 'hf' has 40 ids: 160 rows belong to no token"),
        outcome.err);
    const std::string once = "rows belong to no token";
    CHECK(outcome.err.find(once) == outcome.err.rfind(once));
  };
  write_at(scratch / "model/tokenizer.json", small_tokenizer(40));
  warned("train r.yaml -q run.dir=run");
  warned("eval --batches 1 --from model dataset=mock model.seq_length=32");
  // Almost every draw among all rows would be one that has no token.
  warned("generate --from model --prompt 123 --temperature 50 --max-tokens 24");
  write_at(scratch / "model/tokenizer.json", small_tokenizer(190));
  Outcome padded = cli_in(scratch.path(), "train r.yaml run.dir=padded");
  CHECK_MESSAGE(padded.status == 0, padded.err);
  CHECK_MESSAGE(has(padded.err, "the last 10 rows belong to no token"), padded.err);
  CHECK_FALSE(has(padded.err, "more than padding explains"));
}

TEST_CASE(
    "a prompt begins with the special tokens of the tokenizer's file where the model expects it") {
  Scratch scratch("mtrain-generate-special");
  Json tokenizer = Json::parse(small_tokenizer(190));
  tokenizer["post_processor"] = Json::parse(
      R"({"type": "TemplateProcessing",
          "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
          "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}})");
  copy_tiny_llama(scratch / "model");
  write_at(scratch / "model/tokenizer.json", tokenizer.dump());
  // A prompt that is too long is reported with its number of tokens.
  auto tokens = [&](const std::string& words, const char* count) {
    Outcome out = cli_in(scratch.path(),
                         "generate --max-tokens 1 model.seq_length=3 --prompt 1234 "
                         "--from " +
                             words);
    CHECK_MESSAGE(out.status == 0, out.err);
    CHECK_MESSAGE(has(out.err, std::string("the prompt has ") + count + " tokens"), words, out.err);
    CHECK_MESSAGE(out.out.starts_with("1234"), out.out);
  };
  tokens("model", "5");
  tokens("model --no-add-special", "4");
  scratch.write(
      "r.yaml",
      "model: {type: llama, init_from: model, seq_length: 16}\ntokenizer: {type: hf, path: model}\n"
      "dataset: mock\ntrain: {steps: 1, micro_batch_size: 1, global_batch_size: 1}\n");
  REQUIRE(cli_in(scratch.path(), "r.yaml -q run.dir=run").status == 0);
  tokens("run", "4");
  tokens("run --add-special", "5");
  REQUIRE(cli_in(scratch.path(), "-q import model imported").status == 0);
  tokens("imported", "5");
}

TEST_CASE("generate and eval name the faults of a Hugging Face folder") {
  Scratch scratch("mtrain-hf-faults");
  Outcome neither = cli_in(scratch.path(), "generate --from . --prompt a");
  CHECK(neither.status == 12);
  CHECK_MESSAGE(has(neither.err, "or a Hugging Face folder, which has a config.json"), neither.err);
  copy_tiny_llama(scratch / "model");
  Outcome silent = cli_in(scratch.path(), "generate --from model --prompt a");
  CHECK(silent.status == 10);
  CHECK(has(silent.err, "tokenizer.json"));
  CHECK(has(silent.err, "tokenizer=byte"));
  // A fault of the folder's config.json has its place there, not in a recipe that nobody wrote.
  auto config = nlohmann::ordered_json::parse(std::ifstream(scratch / "model/config.json"));
  config["hidden_act"] = "gelu";
  write_at(scratch / "model/config.json", config.dump(1));
  Outcome other = cli_in(scratch.path(), "generate --from model --prompt a tokenizer=byte");
  CHECK(other.status == 10);
  CHECK_MESSAGE(has(other.err, "--> " + (scratch / "model/config.json").string() + ":"), other.err);
  CHECK_MESSAGE(has(other.err, "\"hidden_act\": \"gelu\""), other.err);
  CHECK_FALSE(has(other.err, "init_from: model, "));
  write_at(scratch / "model/tokenizer.json", "{}");
  Outcome damaged =
      cli_in(scratch.path(), "generate --from model --prompt a model.init_ignore=[hidden_act]");
  CHECK(damaged.status != 0);
  CHECK_MESSAGE(has(damaged.err, (scratch / "model/tokenizer.json").string()), damaged.err);
  CHECK_FALSE(has(damaged.err, "model.init_from is"));
}

TEST_CASE("generate and eval from a Hugging Face folder") {
  Scratch scratch("mtrain-hf-use");
  copy_tiny_llama(scratch / "model");
  // A tokenizer that is given is used, whether or not the folder has one.
  fs::create_directories(scratch / "words");
  write_at(scratch / "words/tokenizer.json", small_tokenizer());
  const std::string words = " tokenizer=hf tokenizer.path=words";
  const std::string given =
      "eval --json --batches 1 --from model dataset=mock model.seq_length=32" + words;
  Outcome without = cli_in(scratch.path(), given);
  REQUIRE_MESSAGE(without.status == 0, without.err);
  Outcome other =
      cli_in(scratch.path(),
             "generate --from model --prompt Hello --temperature 0 --max-tokens 1" + words);
  REQUIRE_MESSAGE(other.status == 0, other.err);
  CHECK(other.out.starts_with("Hello"));
  write_at(scratch / "model/tokenizer.json", small_tokenizer());
  Outcome with = cli_in(scratch.path(), given);
  REQUIRE_MESSAGE(with.status == 0, with.err);
  CHECK(nlohmann::json::parse(with.out).at("loss") ==
        nlohmann::json::parse(without.out).at("loss"));
  const std::string text = generated(scratch, "model --prompt Hello");
  CHECK(text.starts_with("Hello"));
  CHECK(text.size() > 6);

  // The same as a run that begins with these weights.
  scratch.write("r.yaml",
                "model: {type: llama, init_from: model, seq_length: 128}\ntokenizer: {type: hf, "
                "path: model}\ndataset: mock\n"
                "train: {steps: 0}\nmixed_precision: {dtype: auto}\n");
  REQUIRE(cli_in(scratch.path(), "r.yaml -q run.dir=run").status == 0);
  CHECK(generated(scratch, "run --prompt Hello") == text);
  Outcome bare = cli_in(scratch.path(), "eval --from model");
  CHECK(bare.status == 2);
  CHECK(has(bare.err, "dataset=gpt"));
  Outcome eval = cli_in(scratch.path(),
                        "eval --json --batches 1 --from model dataset=mock model.seq_length=32");
  REQUIRE_MESSAGE(eval.status == 0, eval.err);
  Outcome same =
      cli_in(scratch.path(),
             "eval --json --batches 1 --from run model.seq_length=32 mixed_precision.dtype=fp32");
  REQUIRE_MESSAGE(same.status == 0, same.err);
  CHECK(nlohmann::json::parse(eval.out).at("loss") == nlohmann::json::parse(same.out).at("loss"));
}

TEST_CASE("a Hugging Face folder is named by its own path, and its file leads to it") {
  Scratch scratch("mtrain-hf-names");
  copy_tiny_llama(scratch / "model");
  write_at(scratch / "model/tokenizer.json", small_tokenizer());
  fs::create_directories(scratch / "sub");
  // The type is that of config.json, and the line says so.
  const std::string words = " --batches 1 dataset=mock model.seq_length=32";
  Outcome eval = cli_in(scratch / "sub", "eval --from ../model" + words);
  CHECK_MESSAGE(eval.status == 0, eval.err);
  CHECK_MESSAGE(eval.out.starts_with((scratch / "model").string() +
                                     " (in fp32, because of the dtype in config.json), valid: "
                                     "loss "),
                eval.out);
  Outcome no_type = cli_in(scratch / "sub", "eval --from ../model dataset.path=x");
  CHECK(no_type.status == 2);
  CHECK_MESSAGE(has(no_type.err, "name its type, too: dataset=gpt"), no_type.err);
  Outcome typed =
      cli_in(scratch / "sub", "eval --from ../model mixed_precision.dtype=bf16" + words);
  CHECK_MESSAGE(has(typed.out, " (in bf16), valid: loss "), typed.out);
  const std::string config = slurp(scratch / "model/config.json");
  nlohmann::json smaller = nlohmann::json::parse(config);
  smaller.erase("torch_dtype");
  smaller["dtype"] = "bfloat16";
  write_at(scratch / "model/config.json", smaller.dump());
  Outcome faster = cli_in(scratch / "sub", "eval --from ../model" + words);
  CHECK_MESSAGE(has(faster.out, ", the faster of bf16 and fp32 on this machine), valid: loss "),
                faster.out);
  write_at(scratch / "model/config.json", config);
  Outcome json = cli_in(scratch / "sub", "eval --json --from ../model" + words);
  CHECK(nlohmann::json::parse(json.out).at("dtype") == "fp32");
  Outcome file = cli_in(scratch.path(), "eval --from model/model.safetensors" + words);
  CHECK(file.status == 12);
  CHECK_MESSAGE(has(file.err, "is a file of a Hugging Face folder"), file.err);
  CHECK_MESSAGE(has(file.err, "--from model"), file.err);
  // Of initial weights from one file, config.json is next to it.
  scratch.write("sub/r.yaml",
                "model: {type: llama, init_from: ../model/model.safetensors, seq_length: 16}\n"
                "tokenizer: {type: 'null', vocab_size: 190}\ndataset: mock\ntrain: {steps: 1}\n"
                "scheduler: {warmup_steps: 0}\nlogger: {tensorboard: false}\n");
  Outcome other = cli_in(scratch.path(), "check sub/r.yaml model.layers=1");
  CHECK_MESSAGE(
      has(other.err + other.out, "1 differs from " + (scratch / "model/config.json").string() +
                                     ", whose num_hidden_layers means 2"),
      other.err);
  // What config.json gives is not among the words of the user.
  REQUIRE(cli_in(scratch.path(), "sub/r.yaml -q run.dir=run train.steps=1").status == 0);
  Outcome shown = cli_in(scratch.path(), "runs show run");
  CHECK_MESSAGE(has(shown.out, "train.steps=1"), shown.out);
  CHECK_MESSAGE(!has(shown.out, "++model."), shown.out);
}

TEST_CASE("eval and generate refuse settings that have no effect on saved weights") {
  Scratch scratch("mtrain-unused-settings");
  scratch.write("r.yaml", tiny_recipe());
  for (const char* dir : {"a", "b"})
    REQUIRE(cli_in(scratch.path(),
                   std::string("r.yaml -q train.steps=1 scheduler.warmup_steps=0 run.dir=") + dir)
                .status == 0);
  for (const std::string command :
       {"eval --from a --batches 1 ", "generate --from a --prompt a --max-tokens 1 "}) {
    CAPTURE(command);
    for (const std::string setting :
         {"model.init_from=b", "model.init_std=0.5", "checkpoint.dir=b/checkpoints", "run.dir=b",
          "run.name=other", "train.steps=7", "optimizer.lr=1e-9", "scheduler.type=linear",
          "ddp.overlap_grad_reduce=true", "ddp.bucket_size=1M", "model.recompute=full",
          "dist.zero=1", "comm_overlap.embedding_wgrad_limit=3", "logger.interval=3",
          "validation.interval=3"}) {
      Outcome out = cli_in(scratch.path(), command + setting);
      CHECK_MESSAGE(out.status == 12, setting, ": ", out.err);
      CHECK_MESSAGE(has(out.err, "so these settings have no effect:\n  " +
                                     setting.substr(0, setting.find('=')) + ": "),
                    setting, ": ", out.err);
      CHECK(out.out.empty());
    }
    Outcome two = cli_in(scratch.path(), command + "'run={dir: b}' train.max_minutes=1");
    CHECK(two.status == 12);
    for (const char* part : {"run.dir: b", "train.max_minutes: 1", "leave out these settings"})
      CHECK_MESSAGE(has(two.err, part), two.err);
    Outcome used = cli_in(scratch.path(), command + "run.threads=1");
    CHECK_MESSAGE(used.status == 0, used.err);
    // The data decide what eval reads, and nothing of generate.
    for (const std::string setting :
         {"train.micro_batch_size=1", "validation.steps=2", "dataset.vocab_size=9", "rng.seed=3"}) {
      Outcome out = cli_in(scratch.path(), command + setting);
      if (command.starts_with("eval")) {
        CHECK_MESSAGE(out.status == 0, out.err);
        continue;
      }
      CHECK(out.status == 12);
      CHECK_MESSAGE(has(out.err, "so these settings have no effect:\n  " +
                                     setting.substr(0, setting.find('=')) + ": "),
                    out.err);
      CHECK(has(out.err, "--seed is the seed of sampling") == setting.starts_with("rng"));
    }
  }
  // A Hugging Face folder is the one that --from names.
  Outcome folder = cli_in(scratch.path(),
                          "eval --batches 1 dataset=mock tokenizer=byte model.init_from=a --from " +
                              (source_root() / "tests/golden/llama_tiny").string());
  CHECK(folder.status == 12);
  CHECK_MESSAGE(has(folder.err, "so these settings have no effect:\n  model.init_from: a"),
                folder.err);
}

TEST_CASE("a tokenizer that is not the run's is warned of") {
  Scratch scratch("mtrain-other-tokenizer");
  scratch.write("r.yaml", tiny_recipe() + "tokenizer: {type: hf, path: own}\n");
  for (const auto& [folder, ids] : {std::pair{"own", 200}, {"copy", 200}, {"other", 195}})
    write_at(scratch / folder / "tokenizer.json", small_tokenizer(static_cast<size_t>(ids)));
  REQUIRE(cli_in(scratch.path(), "r.yaml -q run.dir=run train.steps=2 scheduler.warmup_steps=0")
              .status == 0);
  for (const char* command :
       {"eval --batches 1 --from run ", "generate --prompt 1 --max-tokens 1 --from run "}) {
    CAPTURE(command);
    Outcome same = cli_in(scratch.path(), std::string(command) + "tokenizer.path=copy");
    CHECK_MESSAGE(same.status == 0, same.err);
    CHECK_MESSAGE(!has(same.err, "another tokenizer"), same.err);
    Outcome other = cli_in(scratch.path(), std::string(command) + "tokenizer.path=other");
    CHECK_MESSAGE(other.status == 0, other.err);
    CHECK_MESSAGE(has(other.err, "step 2 was trained with another tokenizer: hf: 200 tokens"),
                  other.err);
    CHECK_MESSAGE(has(other.err, "and this is hf: 195 tokens"), other.err);
    CHECK_MESSAGE(has(other.err, "leave out the settings of tokenizer"), other.err);
    const std::string own = slurp(scratch / "own/tokenizer.json");
    write_at(scratch / "own/tokenizer.json", own + "\n");
    Outcome changed = cli_in(scratch.path(), command);
    CHECK_MESSAGE(has(changed.err, "help: restore the tokenizer's files"), changed.err);
    CHECK_MESSAGE(has(changed.err, "which differ in: file "), changed.err);
    write_at(scratch / "own/tokenizer.json", own);
  }
  // The contents of its file identify a tokenizer, not the name.
  const std::string on = "r.yaml -q run.dir=run train.steps=3 scheduler.warmup_steps=0 ";
  Outcome other = cli_in(scratch.path(), on + "tokenizer.path=other");
  CHECK(other.status == 12);
  CHECK_MESSAGE(has(other.err, "tokenizer: hf: 200 tokens"), other.err);
  CHECK_MESSAGE(has(other.err, "\n    tokenizer.path: own -> "), other.err);
  fs::rename(scratch / "copy/tokenizer.json", scratch / "renamed.json");
  Outcome same = cli_in(scratch.path(), on + "tokenizer.path=renamed.json");
  CHECK_MESSAGE(same.status == 0, same.err);
  CHECK_MESSAGE(!has(same.err, "tokenizer"), same.err);
}
