// What a run leaves behind says all there is to know about it, and is enough to repeat it bit for
// bit.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "shell.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using nlohmann::json;
using Words = std::vector<std::string>;

namespace {

std::vector<std::string> losses(const fs::path& run) {
  std::vector<std::string> out;
  std::stringstream lines(slurp(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    out.push_back(json::parse(line).at("loss").dump());
  return out;
}

std::string short_recipe() {
  return "defaults: [{optimizer: mine}, _self_]\n" + tiny_recipe() +
         "rng: {seed: '${oc.env:MTRAIN_TEST_SEED}'}\n";
}

}  // namespace

TEST_CASE(
    "a run keeps its recipe, the files it is made of, the overrides, the origins and the program") {
  Scratch scratch("mtrain-saved");
  write_at(scratch / "optimizer/mine.yaml", "# ours\nbeta2: 0.9\n");
  std::string r = scratch.write("r.yaml", short_recipe());
  REQUIRE(cli({r, "run.dir=" + (scratch / "a").string(), "train.steps=4",
               "scheduler.warmup_steps=1", "-q"},
              {"MTRAIN_TEST_SEED=77"})
              .status == 0);
  fs::path config = scratch / "a/config";
  CHECK(slurp(config / "recipe.yaml") == short_recipe());
  CHECK(slurp(config / "files/optimizer/mine.yaml") == "# ours\nbeta2: 0.9\n");
  CHECK(has(slurp(config / "overrides.txt"), "train.steps=4\n"));
  CHECK(has(slurp(config / "resolved.yaml"), "seed: 77"));
  json origins = json::parse(slurp(config / "provenance.json"));
  CHECK(origins.at("rng.seed").at("expression") == "${oc.env:MTRAIN_TEST_SEED}");
  CHECK(origins.at("train.steps").at("where") == "command line, argument 3");
  CHECK(origins.at("train.steps").at("shadowed").at(0).at("value") == "40");
  CHECK(origins.at("optimizer.beta2").at("line") == 2);
  json environment = json::parse(slurp(config / "environment.json"));
  CHECK(environment.at("binaries").at("mtrain").get<std::string>().size() == 64);
  CHECK(environment.at("binaries").at("libmtrain_core.so").get<std::string>().size() == 64);
  CHECK(environment.at("plugins").size() == 4);
  CHECK_FALSE(has(environment.dump(), "MTRAIN_TEST_SEED"));
  json manifest = json::parse(slurp(scratch / "a/checkpoints/step-4/manifest.json"));
  CHECK(has(manifest.dump(), "MTRAIN_TEST_SEED"));  // the recipe's text, in the checkpoint too
  CHECK(has(manifest.dump(), "libmtrain_core.so"));
}

TEST_CASE("rerun: from the saved text alone, into a new folder, the same bits") {
  Scratch scratch("mtrain-rerun");
  write_at(scratch / "optimizer/mine.yaml", "beta2: 0.9\n");
  std::string r = scratch.write("r.yaml", short_recipe());
  fs::path a = scratch / "a";
  REQUIRE(
      cli({r, "run.dir=" + a.string(), "train.steps=6", "-q"}, {"MTRAIN_TEST_SEED=77"}).status ==
      0);
  fs::remove(scratch / "r.yaml");
  fs::remove_all(scratch / "optimizer");
  Outcome again = cli({"rerun", a.string(), "-q"});
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK_FALSE(has(again.err, "differs from"));
  REQUIRE(losses(a).size() == 6);
  CHECK(losses(scratch / "a-rerun") == losses(a));
  CHECK(digest(scratch / "a-rerun") == digest(a));
  Outcome from_checkpoint = cli(
      {"rerun", (a / "checkpoints/step-5").string(), "train.steps=3", "scheduler.warmup_steps=1"});
  CHECK_MESSAGE(from_checkpoint.status == 0, from_checkpoint.err);
  CHECK(losses(scratch / "a-rerun-2").size() == 3);
  CHECK(cli({"rerun", (scratch / "nowhere").string()}).status == 12);

  // Different hashes are reported.
  json environment = json::parse(slurp(a / "config/environment.json"));
  environment["binaries"]["mtrain"] = std::string(64, '0');
  write_at(a / "config/environment.json", environment.dump());
  Outcome warned = cli({"rerun", a.string(), "train.steps=5"});
  CHECK(warned.status == 0);
  CHECK_MESSAGE(has(warned.err, "a different build of mtrain"), warned.err);
}

TEST_CASE(
    "rerun: data that have changed are refused in the words of a resume, unless the user asks for "
    "others") {
  Scratch scratch("mtrain-rerun-data");
  for (const char* text : {"one two three four five six seven eight nine ten",
                           "other words than those of the first text, and more of them"}) {
    scratch.write("text.txt", std::string(text) + " " + text + "\n\n" + text + "\n");
    const std::string prepare =
        "data prepare -i text.txt -o data -t byte --split-on blank-lines --force -q";
    Outcome prepared = cli_in(scratch.path(), prepare);
    REQUIRE_MESSAGE(prepared.status == 0, prepared.err);
    if (fs::exists(scratch / "a")) break;
    scratch.write("r.yaml", tiny_recipe());
    Outcome trained = cli_in(scratch.path(),
                             "r.yaml dataset.type=gpt +dataset.path=data "
                             "\"dataset.split='50,50,0'\" tokenizer=byte model.seq_length=8 "
                             "train.steps=3 scheduler.warmup_steps=1 -q run.dir=a");
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    REQUIRE(cli_in(scratch.path(), "rerun a -q").status == 0);
  }
  Outcome resumed = cli_in(scratch.path(), "rerun a train.steps=4");
  CHECK(resumed.status == 12);
  CHECK_MESSAGE(has(resumed.err, "data has different contents: data.bin had "), resumed.err);
  CHECK(has(resumed.err, "dataset.path="));
  CHECK_FALSE(has(resumed.err, "{"));
  CHECK_FALSE(fs::exists(scratch / "a-rerun-2"));
  Outcome wanted = cli_in(scratch.path(), "rerun a dataset.path=data");
  CHECK_MESSAGE(wanted.status == 0, wanted.err);
  CHECK_MESSAGE(has(wanted.err, "differs from a: data: data has different contents"), wanted.err);
}

TEST_CASE("runs/latest means the newest run, and rerun follows it") {
  Scratch scratch("mtrain-latest");
  scratch.write("one.yaml", tiny_recipe());
  scratch.write("two.yaml", tiny_recipe());
  for (const char* name : {"one", "two"}) {
    CHECK(cli_in(scratch.path(),
                 std::string(name) + ".yaml train.steps=1 scheduler.warmup_steps=0 -q")
              .status == 0);
    CHECK(fs::read_symlink(scratch / "runs/latest") == name);
  }
  CHECK(cli_in(scratch.path(), "rerun runs/latest -q").status == 0);
  CHECK(fs::exists(scratch / "runs/two-rerun"));
  CHECK(fs::read_symlink(scratch / "runs/latest") == "two-rerun");
  CHECK(cli_in(scratch.path(), "config diff runs/one runs/latest").status == 0);
}

TEST_CASE("resuming reports every change by its class, and its source") {
  Scratch scratch("mtrain-resume");
  std::string r = scratch.write("r.yaml", tiny_recipe()),
              run_dir = "run.dir=" + (scratch / "r").string();
  REQUIRE(cli({r, run_dir, "train.steps=5", "-q"}).status == 0);
  Outcome refused = cli({r, run_dir, "train.steps=6", "model.hidden_size=64", "optimizer.lr=1e-3",
                         "checkpoint.keep=5"});
  CHECK(refused.status == 12);
  CHECK_MESSAGE(has(refused.err, "model.hidden_size: 32 -> 64"), refused.err);
  CHECK_MESSAGE(has(refused.err, "command line, argument 4"), refused.err);
  CHECK_FALSE(has(refused.err, "optimizer.lr"));  // what may change is no reason
  Outcome changed = cli({r, run_dir, "train.steps=6", "optimizer.lr=1e-3", "checkpoint.keep=5"});
  CHECK_MESSAGE(changed.status == 0, changed.err);
  CHECK_MESSAGE(
      has(changed.err, "optimizer.lr: 0.002 -> 0.001   (command line, argument 4; before: " + r),
      changed.err);
  CHECK_FALSE(has(changed.err, "checkpoint.keep"));
}

namespace {

/// A folder with text that is prepared as `data`, and a recipe that trains its eight samples of an
/// epoch one a step.
void write_text_run(const Scratch& scratch) {
  std::string text;
  for (int i = 0; i < 12; ++i) text += std::string(8, static_cast<char>('a' + i)) + "\n\n";
  scratch.write("text.txt", text);
  Outcome prepared =
      cli_in(scratch.path(),
             "data prepare -i text.txt -o data -t byte --append-eod --split-on blank-lines -q");
  REQUIRE_MESSAGE(prepared.status == 0, prepared.err);
  scratch.write(
      "r.yaml",
      "model: {type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 32, seq_length: "
      "16}\n"
      "dataset: {type: gpt, path: data, split: '1'}\ntokenizer: byte\ntrain: {steps: 3}\n"
      "validation: {steps: 0}\nlogger: {tensorboard: false}\nscheduler: {type: constant}\n");
}

}  // namespace

TEST_CASE(
    "a run goes on with more steps where the samples it has seen stay in their order, and is "
    "refused elsewhere") {
  Scratch scratch("mtrain-resume-order");
  write_text_run(scratch);
  auto train = [&](const std::string& words) {
    return cli_in(scratch.path(), "r.yaml -q " + words);
  };
  auto works = [&](const std::string& words) {
    Outcome out = train(words);
    REQUIRE_MESSAGE(out.status == 0, out.err);
  };
  works("run.dir=whole train.steps=6");
  works("run.dir=parts train.steps=2");
  works("run.dir=parts train.steps=6");  // the same epoch
  CHECK(losses(scratch / "parts") == losses(scratch / "whole"));
  Outcome longer = train("run.dir=whole train.steps=20");
  CHECK(longer.status == 12);
  CHECK_MESSAGE(has(longer.err, "train.steps: 6 -> 20   (command line, argument "), longer.err);
  CHECK_MESSAGE(has(longer.err,
                    "the run began with 1 epoch (6 samples), but this recipe has 3 epochs, the "
                    "last one shuffled by itself (20 samples)"),
                longer.err);
  CHECK(has(longer.err, "dataset.order=open"));
  CHECK(losses(scratch / "whole").size() == 6);
  works("run.dir=whole train.steps=4");  // nothing to do
  works("run.dir=epochs train.epochs=1");
  Outcome epochs = train("run.dir=epochs train.epochs=2");
  CHECK(epochs.status == 12);
  CHECK_MESSAGE(has(epochs.err, "\n  train.epochs=2 needs train.steps: 8 -> 16   (command line"),
                epochs.err);
  works("run.dir=open train.epochs=1 dataset.order=open");
  works("run.dir=open train.epochs=3 dataset.order=open");
  works("run.dir=once train.epochs=3 dataset.order=open");
  CHECK(losses(scratch / "open") == losses(scratch / "once"));
}

TEST_CASE("resuming on other data is refused by the settings that changed them") {
  Scratch scratch("mtrain-resume-data");
  write_text_run(scratch);
  REQUIRE(cli_in(scratch.path(), "r.yaml -q run.dir=a").status == 0);
  for (const auto& [words, message] : std::vector<std::pair<std::string, std::string>>{
           {"rng.seed=7", "rng.seed: "},
           {"model.seq_length=8", "model.seq_length: 16 -> 8   (command line"},
           {"\"dataset.split='9,1'\"", "dataset.split: \"1\" -> \"9,1\"   (command line"},
           {"dataset.order=open", "dataset.order: megatron -> open   (command line"},
           {"dataset.type=mock '~dataset.path' '~dataset.split'",
            "dataset.type: gpt -> mock   (command line"},
           {"dataset.eod_mask_loss=true", "dataset.eod_mask_loss: false -> true   (command"}}) {
    Outcome refused = cli_in(scratch.path(), "r.yaml -q run.dir=a train.steps=5 " + words);
    CHECK(refused.status == 12);
    CHECK_MESSAGE(has(refused.err, "\n  " + message), refused.err);
    CHECK_MESSAGE(has(refused.err, "undo this change"), refused.err);  // no other is named
  }
  // The same data in another place are no other data, and what counts at the beginning alone is
  // passed over.
  const fs::path moved = scratch / "moved";
  fs::create_directories(moved);
  for (const char* end : {".bin", ".idx", ".tokenizer.json"})
    if (fs::exists(scratch / (std::string("data") + end)))
      fs::copy(scratch / (std::string("data") + end), moved / (std::string("data") + end));
  Outcome there = cli_in(scratch.path(),
                         "r.yaml -q run.dir=a train.steps=5 dataset.path=moved/data "
                         "dataset.drop_last=false model.init_std=0.5");
  CHECK_MESSAGE(there.status == 0, there.err);
  CHECK_FALSE(has(there.err, "dataset."));
  CHECK_MESSAGE(has(there.err, "model.init_std: 0.02 -> 0.5"), there.err);
  CHECK(has(there.err, "have no effect"));
  scratch.write("other.txt", std::string(200, 'x') + "\n\nand more\n");
  Outcome other = cli_in(scratch.path(),
                         "data prepare -i other.txt -o other -t byte --split-on blank-lines -q");
  REQUIRE_MESSAGE(other.status == 0, other.err);
  Outcome file = cli_in(scratch.path(), "r.yaml -q run.dir=a train.steps=6 dataset.path=other");
  CHECK(file.status == 12);
  CHECK_MESSAGE(has(file.err, "  dataset.path: "), file.err);
}

TEST_CASE("train.skip_steps on a resume: coming steps count, and steps that are done are refused") {
  Scratch scratch("mtrain-resume-skip");
  const std::string r = scratch.write("r.yaml", tiny_recipe()), run = (scratch / "r").string(),
                    run_dir = "run.dir=" + run;
  REQUIRE(cli({r, run_dir, "train.steps=5", "train.skip_steps=[2]", "-q"}).status == 0);
  // A step that was skipped may stay in the list, or leave it.
  for (const auto& [steps, skipped] : {std::pair{"train.steps=6", "train.skip_steps=[2]"},
                                       {"train.steps=7", "train.skip_steps=[]"}}) {
    Outcome past = cli({r, run_dir, steps, skipped, "-q"});
    CHECK_MESSAGE(past.status == 0, past.err);
    CHECK_FALSE(has(past.err, "train.skip_steps"));
  }
  for (const char* steps : {"train.steps=9", "train.steps=7"}) {  // 7: no step is left
    Outcome late = cli({r, run_dir, steps, "train.skip_steps=[4, 3, 8]", "-q"});
    CHECK(late.status == 12);
    for (const std::string& part :
         {std::string("train.skip_steps: [] -> [4, 3, 8]"),
          std::string("the run is at step 7, so this has no effect on step 3, 4"),
          "from a checkpoint before step 3 with this setting: mtrain checkpoint rewind " + run})
      CHECK_MESSAGE(has(late.err, part), part, late.err);
  }
  Outcome coming = cli({r, run_dir, "train.steps=9", "train.skip_steps=[8]"});
  CHECK_MESSAGE(coming.status == 0, coming.err);
  CHECK_MESSAGE(has(coming.err, "train.skip_steps: "), coming.err);
}

/// A run of one step, and a recipe that leaves the model to `model.init_from`.
struct Weights {
  Scratch scratch{"mtrain-init-from"};
  fs::path base = scratch / "base";
  std::string start = "model.init_from=" + base.string(),
              bare = recipe("bare.yaml", "init_std: 0.02");

  Weights() {
    const std::string path = recipe("base.yaml",
                                    "layers: 2, hidden_size: 32, heads: 4, kv_heads: 2, "
                                    "ffn_hidden_size: 80, rope: {theta: 500}");
    REQUIRE(cli({path, "run.dir=" + base.string(), "-q"}).status == 0);
  }
  std::string recipe(const char* name, const std::string& settings) const {
    return scratch.write(name,
                         "model: {type: llama, seq_length: 32, " + settings +
                             "}\ndataset: mock\ntrain: {steps: 1}\nlogger: {tensorboard: false}\n");
  }
};

TEST_CASE_FIXTURE(
    Weights,
    "weights of a run: its model's settings count where the recipe says none, and others are "
    "refused before anything is built") {
  for (const std::string& folder : {base.string(), (base / "checkpoints/step-1").string()}) {
    Outcome taken = cli({"config", "show", "model", bare, "model.init_from=" + folder});
    CHECK_MESSAGE(has(taken.out, "hidden_size: 32"), taken.out, taken.err);
    CHECK_MESSAGE(has(taken.out, "theta: 500"), taken.out);
  }
  Outcome trained = cli({bare, start, "run.dir=" + (scratch / "next").string(), "-q"});
  CHECK_MESSAGE(trained.status == 0, trained.err);
  Outcome from_there = cli({"eval", "--from", (scratch / "next").string(), "--batches", "1"});
  CHECK_MESSAGE(from_there.status == 0, from_there.err);
  // Sizes that no machine has memory for.
  for (const Words& words :
       {Words{"check"}, Words{"train", "run.dir=" + (scratch / "big").string()}}) {
    Words all = words;
    for (const std::string& word :
         {bare, start, std::string("model.hidden_size=1048576"), std::string("model.layers=900")})
      all.push_back(word);
    Outcome big = cli(all);
    CHECK(big.status == 10);
    CHECK_MESSAGE(has(big.err, "model.hidden_size: 1048576 differs from " + base.string() +
                                   ", where model.hidden_size is 32"),
                  big.err);
    CHECK_MESSAGE(has(big.err, "model.layers: 900 differs from"), big.err);
    CHECK_FALSE(has(big.err, "memory"));
  }
  Outcome kind = cli({"check", bare, start, "model.type=gpt2"});
  CHECK(kind.status == 10);
  CHECK_MESSAGE(has(kind.err, "where model.type is llama"), kind.err);
  // Another function of the same weights is trained, with a warning.
  Outcome theta = cli({"check", bare, start, "model.rope.theta=20000"});
  CHECK(theta.status == 0);
  CHECK_MESSAGE(has(theta.err, "model.rope.theta: 20000.0 differs from " + base.string() +
                                   ", whose weights were trained with 500.0"),
                theta.err);
  CHECK_FALSE(has(cli({"check", bare, start, "model.rope.theta=500"}).err, "differs"));
}

TEST_CASE_FIXTURE(Weights, "weights of a run: another tokenizer is warned of, or does not fit") {
  Outcome same = cli({bare, start, "run.dir=" + (scratch / "same").string(), "-q"});
  CHECK_MESSAGE(same.status == 0, same.err);
  CHECK_FALSE(has(same.err, "tokenizer"));
  // A tokenizer with as many ids is used, with a warning.
  Outcome tokens = cli({bare, start, "tokenizer={type: \"null\", vocab_size: 256}",
                        "run.dir=" + (scratch / "tokens").string()});
  CHECK_MESSAGE(tokens.status == 0, tokens.err);
  CHECK_MESSAGE(has(tokens.err, "were trained with another tokenizer"), tokens.err);
  // One with more ids than the table has rows does not fit; the error says which one has changed.
  const std::string more = "tokenizer={type: byte, extra_ids: 100}", step = "checkpoints/step-1";
  for (const Words& words : {Words{bare, start, more, "run.dir=" + (scratch / "more").string()},
                             Words{bare, start, more, "run.dir=" + (scratch / "more").string(),
                                   "dist.nproc=2", "dist.pp=2"},
                             Words{"eval", "--from", base.string(), "--batches", "1", more}}) {
    Outcome rows = cli(words);
    CHECK(rows.status == 12);
    CHECK_MESSAGE(has(rows.err, (base / step).string() +
                                    " was trained with another tokenizer, and embed.weight has "
                                    "another number of rows:\n  then byte: 256 bytes, end of "
                                    "document 256: 320 rows,\n  now byte: 256 bytes, end of "
                                    "document 256, 100 extra: 384 rows"),
                  rows.err);
    CHECK_MESSAGE(has(rows.err, "mtrain config show tokenizer " + (base / step).string()),
                  rows.err);
  }
  Outcome rows =
      cli({bare, start, "model.vocab_size=512", "run.dir=" + (scratch / "rows").string()});
  CHECK(rows.status == 12);
  CHECK_MESSAGE(has(rows.err,
                    "embed.weight has 320 rows, and this model's has 512 rows; the tokenizer is "
                    "the same: byte: 256 bytes"),
                rows.err);
  CHECK_MESSAGE(has(rows.err, "set model.vocab_size and model.vocab_multiple"), rows.err);
  CHECK_FALSE(has(rows.err, "another tokenizer"));
}

TEST_CASE("eval and generate refuse model settings that its weights do not allow") {
  Scratch scratch("mtrain-used-model");
  scratch.write("r.yaml", tiny_recipe());
  REQUIRE(
      cli_in(scratch.path(), "r.yaml -q run.dir=a train.steps=1 scheduler.warmup_steps=0").status ==
      0);
  const Outcome same =
      cli_in(scratch.path(), "eval --from a --batches 1 model.layers=2 model.seq_length=16");
  CHECK_MESSAGE(same.status == 0, same.err);
  CHECK_FALSE(has(same.err, "model."));
  for (const auto& [command, argument] :
       {std::pair{std::string("eval --from a --batches 1 "), "argument 6"},
        {std::string("generate --from a --prompt a --max-tokens 1 "), "argument 8"}}) {
    const Outcome unknown = cli_in(scratch.path(), command + "trian.x=3");
    CHECK_MESSAGE(has(unknown.err, std::string("command line, ") + argument + ": trian.x=3"),
                  unknown.err);
    const std::string layers = std::string("model.layers: 2 -> 1   (command line, ") + argument;
    for (const auto& [words, named] :
         {std::pair{"model.layers=1", layers.c_str()},
          {"model.tie_embeddings=true", "model.tie_embeddings: false -> true"},
          {"model.type=moe", "model.type: llama -> moe"}}) {
      Outcome out = cli_in(scratch.path(), command + words);
      CHECK_MESSAGE(out.status == 12, words, ": ", out.err);
      CHECK_MESSAGE(has(out.err, named), out.err);
    }
    Outcome eps = cli_in(scratch.path(), command + "model.norm_eps=0.5");
    CHECK_MESSAGE(eps.status == 0, eps.err);
    CHECK_MESSAGE(has(eps.err, "another function"), eps.err);
    CHECK_MESSAGE(has(eps.err, "model.norm_eps: 1e-05 -> 0.5"), eps.err);
  }
}

TEST_CASE(
    "a saved run takes another dataset: what the old one alone has is dropped, what the command "
    "line says is checked") {
  Scratch scratch("mtrain-other-plugin");
  write_text_run(scratch);
  REQUIRE(cli_in(scratch.path(), "r.yaml -q run.dir=a").status == 0);
  for (const char* words :
       {"eval --from a --batches 1 dataset=mock", "eval --from a --batches 1 dataset.type=mock",
        "check a dataset=mock", "rerun a -q run.dir=b dataset=mock"}) {
    Outcome other = cli_in(scratch.path(), words);
    CHECK_MESSAGE(other.status == 0, words, ": ", other.err);
  }
  CHECK(has(slurp(scratch / "b/config/resolved.yaml"), "type: mock"));
  Outcome said = cli_in(scratch.path(), "eval --from a --batches 1 dataset=mock dataset.split=1");
  CHECK(said.status == 10);
  CHECK_MESSAGE(has(said.err, "dataset.split: no such setting"), said.err);
  CHECK_MESSAGE(has(said.err, "1 error"), said.err);
  for (const char* words : {"'~dataset' '+dataset=mock'", "'+dataset=mock' '~dataset'"}) {
    Outcome removed = cli_in(scratch.path(), std::string("eval --from a --batches 1 ") + words);
    CHECK(removed.status == 10);
    CHECK_MESSAGE(has(removed.err, "dataset: cannot be removed"), removed.err);
    CHECK_MESSAGE(has(removed.err, "1 error"), removed.err);
  }
}

TEST_CASE(
    "eval says how much it read, of data that repeat or are not the run's, and reads a split once "
    "where that is asked for") {
  Scratch scratch("mtrain-eval-extent");
  write_text_run(scratch);
  REQUIRE(cli_in(scratch.path(), "r.yaml -q run.dir=a").status == 0);
  auto eval = [&](const std::string& words) {
    Outcome out = cli_in(scratch.path(), "eval --from a --split train " + words);
    CHECK_MESSAGE(out.status == 0, out.err);
    return out;
  };
  Outcome once = eval("--batches all --json"), as_many = eval("--batches 8 --json"),
          twice = eval("--batches 16");
  CHECK(once.err.empty());
  CHECK(as_many.err.empty());
  CHECK(json::parse(once.out).at("samples") == 8);
  CHECK(json::parse(once.out).at("tokens") == 128);
  const double loss = json::parse(once.out).at("loss").get<double>();
  CHECK(json::parse(as_many.out).at("loss").get<double>() == doctest::Approx(loss));
  CHECK_MESSAGE(has(twice.err,
                    "the train split has 8 samples, which 16 batches of 1 repeat: --batches all "
                    "evaluates each once"),
                twice.err);
  CHECK_MESSAGE(has(twice.out, "256 tokens of 16 batches of 1 sample in "), twice.out);
  CHECK_MESSAGE(has(eval("--batches all").out, "128 tokens of 8 samples, each once, in "), "all");
  CHECK_MESSAGE(has(eval("").out, "tokens of 1 batch of 1 sample in "), "validation.steps is 0");
  // Training and check --data warn of a validation that repeats samples, too.
  const std::string valid = " dataset.split=0.5,0.5,0 validation.steps=";
  for (const char* command : {"r.yaml -q run.dir=b", "check --data r.yaml"}) {
    Outcome repeats = cli_in(scratch.path(), command + valid + "6");
    CHECK_MESSAGE(repeats.status == 0, repeats.err);
    CHECK_MESSAGE(has(repeats.err,
                      "the valid split has 4 samples, which 6 batches of 1 repeat: reduce "
                      "validation.steps"),
                  repeats.err);
  }
  CHECK_FALSE(has(cli_in(scratch.path(), "check --data r.yaml" + valid + "4").err, "repeat"));
  // The last samples fill no batch.
  Outcome rest = eval("--batches all --json train.global_batch_size=3 train.micro_batch_size=3");
  CHECK(json::parse(rest.out).at("samples") == 8);
  CHECK(json::parse(rest.out).at("loss").get<double>() == doctest::Approx(loss));
  CHECK(eval("--batches 5000 dataset=mock train.micro_batch_size=1").err.empty());  // it has no end
  Outcome wrong = cli_in(scratch.path(), "eval --from a --batches many");
  CHECK(wrong.status == 2);
  CHECK_MESSAGE(has(wrong.err, "wanted a number of batches or 'all', got 'many'"), wrong.err);
  std::string text = slurp(scratch / "text.txt");
  for (char& c : text) c = c == 'a' ? 'z' : c;
  scratch.write("text.txt", text);
  REQUIRE(
      cli_in(scratch.path(),
             "data prepare -f -i text.txt -o data -t byte --append-eod --split-on blank-lines -q")
          .status == 0);
  Outcome changed = eval("");
  CHECK_MESSAGE(
      has(changed.err,
          "the data differ from those on which a was trained:\n  data has different contents "
          "of the same size"),
      changed.err);
  CHECK(eval("dataset.path=data").err.empty());
}
