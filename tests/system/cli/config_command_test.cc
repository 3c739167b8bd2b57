// mtrain config: what is shown is what is meant, says where it comes from, and nothing is written
// by looking.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "shell.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

/// A project with a group, a computed value and a shadowed one.
std::string project(const Scratch& scratch) {
  write_at(scratch / "optimizer/mine.yaml", "# ours\nlr: 1e-3\nbeta2: 0.9\n");
  return scratch.write("r.yaml",
                       "# A small one.\ndefaults: [{optimizer: mine}, _self_]\n"
                       "model: {type: llama, layers: 2, hidden_size: 32, heads: 4, kv_heads: 2, "
                       "ffn_hidden_size: 80, seq_length: 32}\n"
                       "dataset: mock\n"
                       "train: {steps: 40, micro_batch_size: 2, global_batch_size: 4}\n"
                       "optimizer: {lr: 2e-3}\n"
                       "scheduler: {warmup_steps: 4, min_lr: '${= ${optimizer.lr} / 10}'}\n");
}

std::string ok(const std::vector<std::string>& arguments) {
  Outcome outcome = cli(arguments);
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  return outcome.out;
}

size_t files_below(const fs::path& folder) {
  size_t n = 0;
  for (auto it = fs::recursive_directory_iterator(folder); it != fs::recursive_directory_iterator();
       ++it)
    ++n;
  return n;
}

}  // namespace

TEST_CASE("config show: views, formats and the order of words") {
  Scratch scratch("mtrain-show");
  std::string r = project(scratch);
  std::string resolved = ok({"config", "show", r});
  CHECK(resolved == ok({"check", r, "--resolved"}));
  CHECK(has(resolved, "min_lr: 2e-04"));
  std::string raw = ok({"config", "show", r, "--raw"});
  CHECK_MESSAGE(has(raw, "min_lr: \"${= ${optimizer.lr} / 10}\""), raw);
  CHECK_FALSE(has(raw, "clip_grad"));
  CHECK(has(ok({"config", "show", r, "--annotated"}), "r.yaml:6:17: peak learning rate"));

  // What is shown loads to the same configuration, whatever the view and the notation.
  for (std::vector<std::string> view : {std::vector<std::string>{"--minimal"},
                                        {"--minimal", "--json"},
                                        {"--resolved", "--json"},
                                        {"--annotated"}}) {
    std::vector<std::string> arguments = {"config", "show", r, "run.dir=x"};
    arguments.insert(arguments.end(), view.begin(), view.end());
    std::string again = scratch.write("again.yaml", ok(arguments));
    CAPTURE(view[0]);
    CHECK(ok({"config", "show", again}) == ok({"config", "show", r, "run.dir=x"}));
  }
  // Flags given to an empty recipe do the same.
  std::vector<std::string> from_flags = {"config", "show",
                                         scratch.write("empty.yaml", "run: {dir: x}\n")};
  std::stringstream lines(ok({"config", "show", r, "run.dir=x", "--minimal", "--flags"}));
  for (std::string line; std::getline(lines, line);) from_flags.push_back(line);
  CHECK(ok(from_flags) == ok({"config", "show", r, "run.dir=x"}));

  // Line ends in texts, keys with blanks, percentages and units: in flags and in JSON.
  const std::vector<std::string> special = {
      "dataset={type: sft, path: /data/x, prompt: \"a\\n'{instruction}' \\\\n\\t\", roles: {'na "
      "me': "
      "user}}",
      "train.steps=2k", "scheduler.warmup_steps=10%", "run.dir=x"};
  auto shown = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"config", "show"});
    return ok(arguments);
  };
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), special.begin(), special.end());
    return more;
  };
  const std::string whole = shown(with({r}));
  for (const char* view : {"--resolved", "--minimal", "--raw"}) {
    const std::string json = scratch.write("again.json", shown(with({r, view, "--json"})));
    CHECK_MESSAGE(shown({json}) == whole, std::string(view));
  }
  const std::string file = scratch.write("again.flags", shown(with({r, "--minimal", "--flags"})));
  CHECK(shown({(scratch / "empty.yaml").string(), "-f", file}) == whole);

  std::string section = ok({"config", "show", r, "optimizer", "optimizer.lr=5e-3"});
  CHECK(section == ok({"config", "show", "optimizer", r, "optimizer.lr=5e-3"}));
  CHECK(section == ok({"config", "show", "optimizer.lr=5e-3", "optimizer", r}));
  CHECK(section.starts_with("type: adamw\nlr: 0.005\n"));
  CHECK(ok({"config", "show", r, "optimizer.lr"}) == "0.002\n");
  CHECK(ok({"config", "show", r, "optimizer.lr", "--flags"}) == "optimizer.lr=0.002\n");
  CHECK(cli({"config", "show", r, "optimizer.lrr"}).status == 10);
  CHECK(cli({"config", "show", "optimizer", "model"}).status == 2);
  CHECK(cli({"config", "show", r, "--toml"}).status == 2);
}

TEST_CASE(
    "config show refuses two views, two formats, and annotations in a format without comments") {
  Scratch scratch("mtrain-show-views");
  const std::string r = project(scratch);
  const std::vector<std::string> views = {"--resolved", "--raw", "--minimal", "--annotated"};
  auto refused = [&](const std::string& one, const std::string& other) {
    CAPTURE(one);
    CAPTURE(other);
    Outcome out = cli({"config", "show", r, one, other});
    CHECK(out.status == 2);
    CHECK(out.out.empty());
    CHECK_MESSAGE(
        (has(out.err, one + " excludes " + other) || has(out.err, other + " excludes " + one)),
        out.err);
  };
  for (const std::string& one : views)
    for (const std::string& other : views)
      if (one != other) refused(one, other);
  refused("--annotated", "--json");
  refused("--annotated", "--flags");
  refused("--json", "--flags");
  for (const char* view : {"--resolved", "--raw", "--minimal"})
    for (const char* format : {"--json", "--flags"}) ok({"config", "show", r, view, format});
}

TEST_CASE("config show of a faulty recipe: what there is, the report, and status 10") {
  Scratch scratch("mtrain-show-bad");
  Outcome outcome =
      cli({"config", "show", project(scratch), "train.steps=many", "optimizer.lrr=1"});
  CHECK(outcome.status == 10);
  CHECK(has(outcome.out, "hidden_size: 32"));
  CHECK(has(outcome.err, "train.steps"));
  CHECK(has(outcome.err, "did you mean optimizer.lr"));
}

TEST_CASE("config why: winner first, inputs, what it shadows") {
  Scratch scratch("mtrain-why");
  std::string r = project(scratch);
  std::string why = ok({"config", "why", "scheduler.min_lr", r, "optimizer.lr=1e-2"});
  CHECK_MESSAGE(why == "scheduler.min_lr = 0.001   computed ${= ${optimizer.lr} / 10}   " + r +
                           ":7:38\n"
                           "  optimizer.lr = 0.01   command line, argument 5\n"
                           "    shadowed 2e-3   " +
                           r +
                           ":6:17\n"
                           "    shadowed 1e-3   " +
                           (scratch / "optimizer/mine.yaml").string() + ":2:5\n",
                why);
  json answer = json::parse(ok({"config", "why", r, "optimizer.lr", "--json"}));
  CHECK(answer.at("value") == 2e-3);
  CHECK(answer.at("kind") == "file");
  CHECK(answer.at("line") == 6);
  CHECK(answer.at("shadowed").size() == 1);
  CHECK(json::parse(ok({"config", "why", r, "--json"})).at("scheduler.min_lr").at("inputs").at(0) ==
        "optimizer.lr");
  Outcome unknown = cli({"config", "why", "optimizer.rl", r});
  CHECK(unknown.status == 10);
  CHECK_MESSAGE(has(unknown.err, "optimizer.rl"), unknown.err);
}

TEST_CASE("config explain") {
  std::string text = ok({"config", "explain", "optimizer.lr"});
  CHECK_MESSAGE(has(text, "peak learning rate"), text);
  CHECK_MESSAGE(has(text, "number >= 0"), text);
  std::string old = ok({"config", "explain", "train.train_iters"});
  CHECK_MESSAGE(has(old, "train.train_iters is another name for train.steps"), old);
  CHECK_MESSAGE(has(ok({"config", "explain", "scheduler.min_lr"}), "rule        min-lr: "), text);
  json answer = json::parse(ok({"config", "explain", "model.seq_length", "--json"}));
  CHECK(answer.at("settings").at(0).at("resume") == "data");
  for (const auto& [setting, words] : std::map<std::string, std::string>{
           {"rng.seed", "cannot be changed when a run continues if that changes the samples"},
           {"dataset.path", "cannot be changed when a run continues if that changes the samples"},
           {"dataset.order", "cannot be changed when a run continues if that changes the samples"},
           {"dataset.eod_mask_loss",
            "cannot be changed when a run continues if that changes the samples"},
           {"dataset.drop_last", "may be changed when a run continues"},
           {"model.hidden_size", "cannot be changed when a run continues\n"},
           {"model.init_from", "used only when a run begins"},
           {"train.skip_steps", "affects the remaining steps"},
           {"optimizer.lr", "affects the result from then on"}}) {
    const std::string output = ok({"config", "explain", setting});
    CHECK_MESSAGE(has(output, words), output);
  }
  CHECK(answer.at("recipes").at(0).contains("value"));
  CHECK(json::parse(ok({"config", "explain", "optimizer", "--json"})).at("sections").size() >= 2);
  Outcome typo = cli({"config", "explain", "optimzer.lr"});
  CHECK(typo.status == 10);
  CHECK(has(typo.err, "did you mean optimizer.lr"));
  CHECK(has(cli({"config", "explain", "micro_batch_size"}).err, "train.micro_batch_size"));
  const std::string ruled = ok({"config", "explain", "train.micro_batch_size"});
  CHECK_MESSAGE(!has(ruled, " \n"), ruled);
  CHECK_FALSE(has(ruled, "{"));
  Scratch scratch("mtrain-why-hint");
  const std::string r = project(scratch);
  for (const char* command : {"why", "show"}) {
    CHECK(has(cli({"config", command, "lr", r}).err, "use optimizer.lr"));
    CHECK(has(cli({"config", command, "optimizer.l", r}).err, "did you mean optimizer.lr"));
    CHECK(has(cli({"config", command, "dataset.columns", r}).err, "it belongs to dataset/"));
  }
}

TEST_CASE("config tree and searchpath") {
  Scratch scratch("mtrain-tree");
  std::string r = project(scratch);
  std::string text = ok({"config", "tree", r});
  CHECK_MESSAGE(has(text, "optimizer: mine   " + (scratch / "optimizer/mine.yaml").string() +
                              " at optimizer"),
                text);
  CHECK_MESSAGE(has(text, "1 setting, 1 shadowed: optimizer.lr by " + r), text);
  json answer = json::parse(ok({"config", "tree", r, "optimizer.beta2=0.5", "--json"}));
  CHECK(answer.at("files").at(0).at("unused") == true);
  CHECK(answer.at("tree").size() == 3);
  // The setting's other name, and its alternative, replace it as well.
  for (const char* later : {"optimizer.learning_rate=7e-4", "optimizer.lr=7e-4"})
    CHECK_MESSAGE(has(ok({"config", "tree", r, later}), "optimizer.lr by command line"), later);
  const std::string epochs = ok({"config", "tree", r, "train.epochs=2"});
  CHECK_MESSAGE(has(epochs, "train.steps by command line"), epochs);
  write_at(scratch / "work/recipes/quickstart.yaml", "# mine\n");
  Outcome path = cli_in(scratch / "work", "config searchpath");
  CHECK_MESSAGE(has(path.out, "project               recipes   1 file"), path.out);
  CHECK_MESSAGE(has(path.out, "shadowed by folders above: quickstart"), path.out);
  // The recipe's own folder is the project's: it shadows nothing of itself.
  const std::string own = cli_in(scratch / "work", "config searchpath recipes/quickstart.yaml").out;
  CHECK_MESSAGE(!has(own.substr(0, own.find("built-in")), "shadowed"), own);
  CHECK(json::parse(ok({"config", "searchpath", r, "--json"})).at(0).at("kind") == "recipe's own");
}

TEST_CASE("config diff: recipes, overrides, runs and checkpoints") {
  Scratch scratch("mtrain-diff");
  std::string r = project(scratch), run_dir = "run.dir=" + (scratch / "run").string();
  CHECK(ok({"config", "diff", r, r}) == "no difference\n");
  std::string text = ok({"config", "diff", r, "optimizer.lr=1e-2"});
  CHECK_MESSAGE(
      has(text, "optimizer.lr\n  - 0.002   " + r + ":6:17\n  + 0.01   command line, argument 4\n"),
      text);
  CHECK_MESSAGE(has(text, "scheduler.min_lr\n"), text);
  REQUIRE(cli({r, run_dir, "train.steps=2", "scheduler.warmup_steps=0", "-q"}).status == 0);
  for (const char* saved : {"run", "run/checkpoints/step-2"}) {
    json answer = json::parse(ok({"config", "diff", (scratch / saved).string(), r, "--json"}));
    bool found = false;
    for (const auto& d : answer)
      if (d.at("path") == "train.steps") {
        found = true;
        CHECK(d.at("a").at("value") == 2);
        CHECK(d.at("a").at("where") == "command line, argument 3");
        CHECK(d.at("b").at("value") == 40);
      }
    CHECK(found);
  }
  CHECK(cli({"config", "diff", r}).status == 2);
}

TEST_CASE("config migrate changes names and nothing else") {
  Scratch scratch("mtrain-migrate");
  std::string before =
      "# my recipe\r\nmodel:   # big\n  type: llama\n  \"num_layers\": 2   # few\n  hidden_size : "
      "32\n"
      "dataset: mock\ntrain: {train_iters: 5, global_batch_size: 4}\n\n# end";
  std::string after =
      "# my recipe\r\nmodel:   # big\n  type: llama\n  layers: 2   # few\n  hidden_size : 32\n"
      "dataset: mock\ntrain: {steps: 5, global_batch_size: 4}\n\n# end";
  std::string file = scratch.write("old.yaml", before);
  Outcome shown = cli({"config", "migrate", file});
  CHECK_MESSAGE(shown.out == after, shown.out);
  CHECK(has(shown.err, "old.yaml:4:3: model.num_layers -> model.layers"));
  CHECK(slurp(file) == before);
  CHECK(cli({"config", "migrate", "--write", file}).status == 0);
  CHECK(slurp(file) == after);
  CHECK(has(cli({"config", "migrate", file}).err, "nothing to change"));
  write_at(scratch / "train/short.yaml", "train_iters: 5\n");
  CHECK(ok({"config", "migrate", (scratch / "train/short.yaml").string()}) == "steps: 5\n");
  std::string both = scratch.write("both.yaml", "train: {train_iters: 5, steps: 6}\n");
  Outcome hand = cli({"config", "migrate", both});
  CHECK(hand.status == 10);
  CHECK(has(hand.err, "to be moved by hand"));
}

TEST_CASE(
    "config migrate reports names of other trainers, which no rename fixes, with their places") {
  Scratch scratch("mtrain-migrate-foreign");
  const std::string text =
      "model: {type: llama, rope: {theta: 1e4}}\ntrain: {gradient_accumulation_steps: "
      "2}\noptimizer: {betas: [0.9, 0.95]}\n"
      "learning_rate: 1e-3\ndataset: {type: sft, columns: {batch_size: question}}\n";
  Outcome found = cli({"config", "migrate", scratch.write("r.yaml", text)});
  CHECK(found.status == 10);
  CHECK(found.out == text);
  for (const char* part : {"train.gradient_accumulation_steps: no such setting", "r.yaml:2:9",
                           "use train.global_batch_size", "optimizer.betas", "r.yaml:3:13",
                           "error[unknown-key] learning_rate", "use optimizer.lr", "3 errors"})
    CHECK_MESSAGE(has(found.err, part), part, found.err);
  CHECK_FALSE(has(found.err, "nothing to change"));
}

TEST_CASE("Hydra's names for looking") {
  Scratch scratch("mtrain-hydra");
  std::string r = project(scratch);
  CHECK(ok({"train", r, "--cfg", "job"}) == ok({"config", "show", r, "--raw"}));
  CHECK(ok({r, "--cfg", "all", "--resolve"}) == ok({"config", "show", r}));
  CHECK(ok({r, "-c", "job", "--resolve", "-p", "optimizer"}) ==
        ok({"config", "show", r, "optimizer"}));
  CHECK(ok({r, "--info", "defaults-tree"}) == ok({"config", "tree", r}));
  CHECK(has(cli_in(scratch.path(), r + " --info searchpath").out, "built-in"));
  CHECK(has(ok({r, "--info", "plugins"}), "adamw"));
  CHECK(has(ok({r, "--info", "defaults"}), "mine.yaml   at optimizer"));
  std::string all = cli_in(scratch.path(), r + " --info all").out;
  for (const char* part : {"built-in", "adamw", "optimizer: mine", "hidden_size"})
    CHECK(has(all, part));
}

TEST_CASE("train refuses options without effect, and names the option that they need") {
  Scratch scratch("mtrain-train-options");
  const std::string r = project(scratch), dir = "run.dir=" + (scratch / "run").string();
  using Words = std::vector<std::string>;
  for (const auto& [words, message] : std::vector<std::pair<Words, std::string>>{
           {{"--info", "defaults", "-p", "optimizer"}, "--package requires --cfg"},
           {{"-p", "optimizer"}, "--package requires --cfg"},
           {{"--resolve"}, "--resolve requires --cfg"},
           {{"--info", "config", "--resolve"}, "--resolve requires --cfg"},
           {{"--keep-going"}, "--keep-going requires --multirun"},
           {{"-m", "--cfg", "job"}, "--cfg shows one configuration, but -m makes several"},
           {{"-m", "--cfg", "job", "optimizer.lr=1e-2,2e-2"}, "mtrain check RECIPE -m --list"},
           {{"--nproc", "2", "--cfg", "job"}, "--nproc has no effect with --cfg"},
           {{"-m", "--info", "config"}, "--info shows one configuration, but -m makes several"}}) {
    Words all = {"train", r, dir};
    all.insert(all.end(), words.begin(), words.end());
    Outcome out = cli(all);
    CHECK_MESSAGE(out.status == 2, message, out.err);
    CHECK_MESSAGE(has(out.err, message), out.err);
    CHECK(out.out.empty());
  }
  Outcome both = cli({"train", r, dir, "--cfg", "job", "--info", "defaults"});
  CHECK(both.status == 2);
  CHECK_MESSAGE((has(both.err, "--info excludes --cfg") || has(both.err, "--cfg excludes --info")),
                both.err);
  CHECK_FALSE(fs::exists(scratch / "run"));
}

TEST_CASE("check counts micro-batches for the ranks that it is asked about") {
  Scratch scratch("mtrain-check-ranks");
  const std::string r = project(scratch), batch = "train.global_batch_size=64";
  for (const std::vector<std::string>& ranks :
       {std::vector<std::string>{"--world-size", "16"}, {"dist.nproc=16"}}) {
    auto check = [&](std::vector<std::string> words) {
      words.insert(words.begin(), {"check", r, batch});
      words.insert(words.end(), ranks.begin(), ranks.end());
      return ok(words);
    };
    CHECK(has(check({"dist.tp=2"}), ", 4 micro-batches per step"));
    const std::string pipeline = check({"dist.pp=2", "dist.tp=2", "--schedule", "text"});
    CHECK_MESSAGE(has(pipeline, ", 8 micro-batches per step"), pipeline);
    CHECK_MESSAGE(has(pipeline, "8 micro-batches: bubble"), pipeline);
  }
  // 4 query and 2 key/value heads of 8: (2 x 32 x 8 x (4 + 2) + 3 x 32 x 80) x 4 bytes.
  const std::string steps = ok({"check", r, "dist.nproc=2", "dist.zero=2", "--schedule", "steps"});
  CHECK_MESSAGE(has(steps, "Reduce(1): reduce-scatter of 42.0 KiB over the 2 ranks"), steps);
  // Without a number, the ranks that the layout needs at least.
  CHECK(has(ok({"check", r, batch, "dist.tp=2"}), ", 32 micro-batches per step"));
}

TEST_CASE("check in JSON; looking writes nothing") {
  Scratch scratch("mtrain-look");
  std::string r = project(scratch);
  Outcome bad =
      cli({"check", r, "train.steps=many", "--json", "--world-size", "8", "--gpu", "h100"});
  CHECK(bad.status == 10);
  std::vector<std::string> paths;
  json report = json::parse(bad.out);
  for (const auto& d : report.at("diagnostics")) paths.push_back(d.at("path"));
  for (const char* path : {"train.steps", "train.global_batch_size"})  // 2 x 8 ranks > 4
    CHECK_MESSAGE(std::count(paths.begin(), paths.end(), path) == 1, bad.out);
  CHECK(bad.err.empty());
  CHECK(json::parse(ok({"check", r, "--json"})).at("errors") == 0);
  size_t before = files_below(scratch.path());
  for (const char* words :
       {"config show r.yaml", "config why r.yaml optimizer", "config tree r.yaml",
        "config diff r.yaml optimizer.lr=1", "config explain model", "config searchpath",
        "config migrate r.yaml", "recipes ls", "recipes cat r.yaml", "recipes verify r.yaml",
        "r.yaml --cfg job", "check r.yaml", "config schema", "__complete r.yaml optimizer."})
    CHECK_MESSAGE(cli_in(scratch.path(), words).status == 0, words);
  CHECK(files_below(scratch.path()) == before);
}

TEST_CASE("a setting that is a text keeps its letters, whatever they look like") {
  Scratch scratch("mtrain-texts");
  for (const char* text : {"nan", "NaN", ".nan", "inf", "-INF", ".inf", "1e3", "0x10", "1_000",
                           "+5", "007", "yes", "True", "off"}) {
    CAPTURE(text);
    const std::string shown = cli({"config", "show", scratch.write("plain.yaml", tiny_recipe()),
                                   "run.dir", std::string("run.dir=") + text})
                                  .out;
    const std::string yaml = tiny_recipe() + "run: {dir: " + text + "}\n",
                      path = scratch.write("r.yaml", yaml);
    CHECK(cli({"config", "show", path, "run.dir"}).out == shown);
    CHECK(has(cli({"check", path}).out, std::string("run folder ") + text + "\n"));
    CHECK(has(cli({"check", scratch / "plain.yaml", std::string("run.dir=") + text}).out,
              std::string("run folder ") + text + "\n"));
    // What is shown is read back as the same.
    const std::string again =
        scratch.write("again.yaml", cli({"config", "show", path, "--resolved"}).out);
    CHECK(has(cli({"check", again}).out, std::string("run folder ") + text + "\n"));
  }
  CHECK(cli({"check", scratch / "plain.yaml", "run.dir=null"}).status == 10);
}

TEST_CASE(
    "group=value without an entry of a defaults list sets the section's type, or is refused") {
  Scratch scratch("mtrain-no-entry");
  const std::string r = scratch.write("tiny.yaml", tiny_recipe());
  const std::string before = ok({"config", "show", r, "scheduler.warmup_steps"});
  CHECK(ok({"config", "show", "scheduler.type", r, "scheduler=linear"}) == "linear\n");
  CHECK(ok({"config", "show", "scheduler.warmup_steps", r, "scheduler=linear"}) == before);
  CHECK(ok({"config", "show", "profiling.type", r, "profiling=trace"}) == "trace\n");
  CHECK(ok({"config", "show", "scheduler.type", "quickstart", "scheduler=wsd"}) == "wsd\n");
  CHECK(ok({"config", "show", "scheduler.warmup_steps", "quickstart", "scheduler=wsd"}) == "5%\n");
  for (const auto& [word, help] :
       {std::pair{"model=llama3_8b",
                  "write +model=llama3_8b to add it after the recipe: what it "
                  "sets replaces the recipe's own model"},
        {"logger=quiet", "write +logger=quiet to add it"}}) {
    Outcome refused = cli({"check", r, word});
    CHECK(refused.status == 10);
    CHECK_MESSAGE(has(refused.err, help), refused.err);
  }
}

TEST_CASE("config show and why of one setting: its error alone, where it is invalid") {
  Scratch scratch("mtrain-show-invalid");
  const std::string r = scratch.write("tiny.yaml", tiny_recipe());
  for (const auto& [key, value] : {std::pair<std::string, std::string>{"train.steps", "1.5"},
                                   {"scheduler.type", "x"},
                                   {"optimizer.weight_decay", "many"},
                                   {"model.layers", "0.5"}})
    for (const char* command : {"show", "why"}) {
      Outcome outcome = cli({"config", command, key, r, key + "=" + value});
      CHECK(outcome.status == 10);
      CHECK_MESSAGE(has(outcome.err, key), outcome.err);
      CHECK_MESSAGE(!has(outcome.err, "no setting"), outcome.err);
    }
  Outcome missing = cli({"config", "show", "train.steps", r, "~train.steps"});
  CHECK_MESSAGE(has(missing.err, "is required"), missing.err);
  CHECK_MESSAGE(!has(missing.err, "no setting"), missing.err);
  CHECK(has(cli({"config", "show", "train.stepz", r, "train.steps=1.5"}).err,
            "no setting train.stepz"));
}
