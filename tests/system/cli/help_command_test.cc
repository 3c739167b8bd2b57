// mtrain help, manual pages, commands that look at a run, and an environment that says nonsense.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "roots.h"
#include "shell.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

TEST_CASE("mtrain help shows what --help shows") {
  CHECK(cli({"help"}).out == cli({"--help"}).out);
  CHECK(cli({"help", "train"}).out == cli({"train", "--help"}).out);
  CHECK(cli({"help", "data", "prepare"}).out == cli({"data", "prepare", "--help"}).out);
  Outcome none = cli({"help", "chek"});
  CHECK(none.status == 2);
  CHECK(has(none.err, "did you mean `mtrain check`?"));
  CHECK(has(cli({"help", "data", "prepar"}).err, "`mtrain data prepare`"));
  CHECK(has(cli({"rerun", "--help"}).out, "a run's folder"));
  CHECK_FALSE(has(cli({"rerun", "--help"}).out, "a YAML file"));
}

TEST_CASE("help pages say in words what an option takes") {
  const std::string page = cli({"generate", "--help"}).out;
  for (const char* part :
       {"--top-p NUMBER", "(0 to 1, default ", "--max-tokens N", "(1 to 1048576, default "})
    CHECK_MESSAGE(has(page, part), page);
  CHECK(has(cli({"check", "--help"}).out, "--world-size N"));
  CHECK(has(cli({"eval", "--help"}).out, "--split {train,valid,test}"));
  CHECK(has(page, "--add-special,--no-add-special"));
  const std::string manual = cli({"help", "--man", "generate"}).out;
  CHECK(has(manual, "(0 to 1, default "));
  CHECK_FALSE(has(manual, "{false}"));
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"generate"}, {"bench"}, {"verify", "layouts"}, {"data", "prepare"}, {"check"}}) {
    std::vector<std::string> asked = words;
    asked.emplace_back("--help");
    const std::string help = cli(asked).out;
    for (const char* notation :
         {" in [", "POSITIVE", "NONNEGATIVE", "FLOAT", "UINT", ":{", "{false}"})
      CHECK_MESSAGE(!has(help, notation), help);
  }
}

TEST_CASE("manual pages: one for each command, which roff reads without a complaint") {
  Scratch scratch("mtrain-man");
  Outcome made = cli({"help", "--man", "-o", (scratch / "man1").string()});
  REQUIRE_MESSAGE(made.status == 0, made.err);
  int pages = 0;
  for (const auto& file : fs::directory_iterator(scratch / "man1")) {
    ++pages;
    const std::string page = slurp(file.path());
    CHECK_MESSAGE(page.starts_with(".TH \"MTRAIN"), file.path().string());
    for (const char* part : {".SH NAME\n", ".SH SYNOPSIS\n", ".SH OPTIONS\n"})
      CHECK_MESSAGE(has(page, part), file.path().string(), part);
  }
  CHECK(pages > 30);
  const std::string page = slurp(scratch / "man1/mtrain-data-prepare.1");
  CHECK(page == cli({"help", "--man", "data", "prepare"}).out);
  for (const char* part : {"mtrain\\-data\\-prepare \\- ", "\\fB\\-\\-tokenizer\\fR \\fINAME\\fR",
                           ".SH EXAMPLES\n.nf\n"})
    CHECK_MESSAGE(has(page, part), page);
  CHECK(has(slurp(scratch / "man1/mtrain.1"), ".BR mtrain\\-train (1)"));
  CHECK(has(slurp(scratch / "man1/mtrain.1"),
            ".SH NAME\nmtrain \\- train language models from YAML recipes\n"));
  if (!fs::exists("/usr/bin/groff")) {
    MESSAGE("groff is not here: pages are not rendered");
    return;
  }
  for (const auto& file : fs::directory_iterator(scratch / "man1")) {
    Outcome roff = run({.arguments = {"/usr/bin/groff", "-ww", "-Wbreak", "-Kutf8", "-man",
                                      "-Tutf8", file.path().string()}});
    CHECK_MESSAGE(roff.status == 0, roff.err);
    CHECK_MESSAGE(roff.err.empty(), roff.err);
  }
}

TEST_CASE("check, config show and config why look at a run's folder and at its checkpoints") {
  Scratch scratch("mtrain-look-at-run");
  const std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  REQUIRE(
      cli_in(scratch.path(),
             "tiny.yaml -q train.steps=2 checkpoint.interval=2 optimizer.lr=0.25 run.dir=runs/a")
          .status == 0);
  auto in = [&](const std::string& words) { return cli_in(scratch.path(), words); };
  for (const std::string run : {"runs/a", "runs/a/", "runs/a/checkpoints/step-2", "runs/latest"}) {
    CAPTURE(run);
    Outcome checked = in("check " + run);
    CHECK_MESSAGE(checked.status == 0, checked.err);
    CHECK(has(checked.out, "2 steps of"));
    CHECK(in("config show optimizer.lr " + run).out == "0.25\n");
    CHECK(in("config show " + run + " optimizer.lr").out == "0.25\n");
  }
  CHECK(has(in("check runs/a").out, "run folder runs/a"));
  Outcome why = in("config why optimizer.lr runs/a");
  CHECK_MESSAGE(why.status == 0, why.err);
  CHECK(has(why.out, "optimizer.lr = 0.25"));
  CHECK(has(why.out, "when the run started: optimizer.lr was set by command line, argument"));
  CHECK(has(in("check runs/a optimizer.lr=many").err, "argument"));
  // A folder that is none, and a run where a recipe is wanted.
  CHECK(in("check runs").status == 12);
  Outcome train = in("runs/a");
  CHECK(train.status == 2);
  CHECK(has(train.err, "mtrain rerun runs/a"));
}

TEST_CASE("a level of messages that is none is refused") {
  Outcome bogus = cli({"recipes", "ls"}, {"MTRAIN_LOG=bogus"});
  CHECK(bogus.status == 2);
  CHECK(has(bogus.err, "MTRAIN_LOG is 'bogus'"));
  for (const char* level : {"debug", "info", "warn", "error", "off"})
    CHECK(cli({"--version"}, {std::string("MTRAIN_LOG=") + level}).status == 0);
}

namespace {

/// The examples on a help page: lines `  mtrain …` below "Example", without what explains them.
std::vector<std::string> examples_of(const std::string& page) {
  std::vector<std::string> out;
  const std::string start = "  mtrain ";
  std::istringstream lines(page.substr(std::min(page.find("\nExample"), page.size())));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(start)) out.push_back(line.substr(2, line.find("   ", 2) - 2));
  return out;
}

/// True for an example that needs neither files or runs of the user, nor long training.
bool runs_after_the_quickstart(const std::string& example) {
  for (const char* part :
       {"web",       "book",     "crawl",     "chats",   "talks",           "texts",
        "data/part", "models/",  "first",     "answers", "other-seed",      "of-two",
        "sweeps/",   "old.yaml", "./",        "build/",  "prompts",         " man ",
        "man -l",    "jq",       "~/",        "bench",   "mtrain adapters", "verify layouts",
        "--nproc",   "rerun",    "step-",     "--step ", "doctor",          "lion",
        "--deep",    "tokenize", "completion"})
    if (has(example, part)) return false;
  const bool trains = example.starts_with("mtrain recipes/") ||
                      example.starts_with("mtrain train") || example.starts_with("mtrain quick");
  return !trains || has(example, "--cfg") || has(example, "--info");
}

}  // namespace

TEST_CASE("every example of a help page that needs only the quickstart's files runs") {
  Scratch scratch("mtrain-examples");
  // As in a checkout, ./recipes has the recipes that come with mtrain.
  fs::create_directory_symlink(source_root() / "recipes", scratch / "recipes");
  for (const char* folder : {"mine", "schemas", "docs"}) fs::create_directory(scratch / folder);
  REQUIRE(cli_in(scratch.path(),
                 "recipes/quickstart.yaml -q train.steps=2 model.layers=1 scheduler.warmup_steps=0 "
                 "validation.steps=1")
              .status == 0);
  REQUIRE(cli_in(scratch.path(), "help --man -o man1").status == 0);
  int ran = 0;
  for (const auto& file : fs::directory_iterator(scratch / "man1")) {
    std::string words = file.path().stem().string() + "-";
    std::replace(words.begin(), words.end(), '-', ' ');
    const Outcome page = cli_in(scratch.path(), words.substr(words.find(' ') + 1) + "--help");
    if (page.status != 0) continue;  // export-schema has a dash of its own
    for (std::string example : examples_of(page.out)) {
      if (!runs_after_the_quickstart(example)) continue;
      if (const size_t at = example.find("recipes/mine"); at != std::string::npos) {
        const std::string new_file = example.find(" verify") != std::string::npos
                                         ? "recipes/quickstart.yaml"
                                         : "mine/" + std::to_string(ran) + ".yaml";
        example.replace(at, std::string("recipes/mine.yaml").size(), new_file);
      }
      CAPTURE(example);
      const Outcome outcome = cli_in(scratch.path(), example.substr(std::string("mtrain ").size()));
      CHECK_MESSAGE(outcome.status == 0, outcome.out, outcome.err);
      CHECK_MESSAGE(!has(outcome.err, "warning["), outcome.err);
      ++ran;
    }
  }
  CHECK(ran >= 25);
}
