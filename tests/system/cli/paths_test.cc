// Where relative paths of input files start, however they are given, and what an error says of
// them.
#include <doctest/doctest.h>

#include "shell.h"
#include "small_tokenizer.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

/// Trains on prepared bytes; `path`: the text after "path: ".
std::string text_recipe(const std::string& path) {
  std::string out = tiny_recipe();
  const std::string mock = "dataset: mock\n";
  return out.replace(
      out.find(mock), mock.size(),
      "tokenizer: byte\ndataset: {type: gpt, path: " + path + ", split: '100,0,0'}\n");
}

/// Prepares a text as <folder>/<name>.bin and .idx.
void prepare(const fs::path& folder, const std::string& name) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "And line " + std::to_string(i) + " of " + name + " was written.\n\n";
  write_at(folder / (name + ".txt"), text);
  Outcome done = cli_in(folder, "data prepare -q --input " + name + ".txt --output " + name +
                                    " --tokenizer byte --append-eod --split-on blank-lines");
  REQUIRE_MESSAGE(done.status == 0, done.err);
}

const std::string kShort =
    " -q train.steps=2 scheduler.warmup_steps=0 validation.interval=0 validation.steps=0 ";

/// The start of a setting's value in the resolved text of a run.
std::string path_of(const fs::path& run) {
  std::istringstream lines(slurp(run / "config/resolved.yaml"));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("  path: ")) return line.substr(8);
  return {};
}

}  // namespace

TEST_CASE(
    "a path on the command line is resolved against the current folder, one in a file against the "
    "folder") {
  Scratch scratch("mtrain-paths");
  prepare(scratch / "mydata", "frank");
  prepare(scratch / "proj/own", "frank");
  write_at(scratch / "proj/mine.yaml", text_recipe("own/frank"));
  Outcome file = cli_in(scratch.path(), "proj/mine.yaml run.dir=a" + kShort);
  CHECK_MESSAGE(file.status == 0, file.err);
  CHECK(path_of(scratch / "a") == "own/frank");
  Outcome argument =
      cli_in(scratch.path(), "proj/mine.yaml dataset.path=mydata/frank run.dir=b" + kShort);
  CHECK_MESSAGE(argument.status == 0, argument.err);
  CHECK(path_of(scratch / "b") == (scratch / "mydata/frank").string());
  Outcome several = cli_in(
      scratch.path(),
      "proj/mine.yaml dataset.path='' 'dataset.paths=[mydata/frank, proj/own/frank]' run.dir=c" +
          kShort);
  CHECK_MESSAGE(several.status == 0, several.err);
  // A file of overrides is a file; so is an option of a group.
  write_at(scratch / "proj/settings/over.txt", "dataset.path=../own/frank\n");
  Outcome overrides =
      cli_in(scratch.path(), "proj/mine.yaml -f proj/settings/over.txt run.dir=d" + kShort);
  CHECK_MESSAGE(overrides.status == 0, overrides.err);
  write_at(scratch / "proj/dataset/frank.yaml", "path: ../../mydata/frank\n");
  Outcome option = cli_in(scratch.path(), "proj/mine.yaml +dataset=frank run.dir=e" + kShort);
  CHECK_MESSAGE(option.status == 0, option.err);
  CHECK(path_of(scratch / "e") == (scratch / "mydata/frank").string());
  Outcome input =
      cli_in(scratch.path(), "- dataset.path=mydata/frank run.dir=f" + kShort + "< proj/mine.yaml");
  CHECK_MESSAGE(input.status == 0, input.err);
}

TEST_CASE("a path that begins with ~ is refused, with the path that was meant") {
  Scratch scratch("mtrain-home-path");
  scratch.write("r.yaml", text_recipe("data"));
  for (const char* setting : {"run.dir", "checkpoint.dir", "dataset.path", "model.init_from"})
    for (const char* command : {"check r.yaml ", "r.yaml "}) {
      Outcome out =
          run({.arguments = {"/bin/sh", "-c",
                             "cd '" + scratch.path().string() + "' && HOME=/home/me '" +
                                 mtrain_binary() + "' " + command + setting + "='~/runs/a'"}});
      CHECK(out.status == 10);
      CHECK_MESSAGE(has(out.err, "'~/runs/a' is a folder called ~, not the home folder"), out.err);
      CHECK_MESSAGE(has(out.err, std::string(setting) + "=/home/me/runs/a"), out.err);
    }
  CHECK_FALSE(fs::exists(scratch / "~"));
}

TEST_CASE("a recipe that came with the program reads data of the current folder") {
  Scratch scratch("mtrain-shipped");
  prepare(scratch / "data/quickstart", "corpus");
  Outcome named = cli_in(
      scratch.path(), "quickstart run.dir=a dataset.split=\"'100,0,0'\" model.layers=1" + kShort);
  CHECK_MESSAGE(named.status == 0, named.err);
  CHECK_FALSE(has(named.err, "came with mtrain"));
  Outcome absent = cli_in(scratch / "data", "quickstart_sft run.dir=b" + kShort);
  CHECK(absent.status == 18);
  CHECK_MESSAGE(has(absent.err, "dataset.path is 'data/quickstart/chats.jsonl' ("), absent.err);
  CHECK_MESSAGE(has(absent.err, "relative to the current folder " + (scratch / "data").string() +
                                    ": " + (scratch / "data/data/quickstart/chats.jsonl").string()),
                absent.err);
}

TEST_CASE("the quickstart trains in an empty folder, on the text that came with the program") {
  Scratch scratch("mtrain-empty");
  Outcome trained = cli_in(scratch.path(),
                           "quickstart run.dir=a model.layers=1 train.steps=2 "
                           "scheduler.warmup_steps=0 validation.interval=0");
  CHECK_MESSAGE(trained.status == 0, trained.err);
  CHECK_MESSAGE(has(trained.err,
                    "there is no data/quickstart/corpus here; training reads the text that comes "
                    "with mtrain"),
                trained.err);
  CHECK(path_of(scratch / "a") == (build_root() / "share/mtrain/data/quickstart/corpus").string());
}

TEST_CASE(
    "an error names the setting, the path as it was given, where it starts and what comes of it; "
    "no folder stays") {
  Scratch scratch("mtrain-path-errors");
  write_at(scratch / "proj/mine.yaml", text_recipe("../gone/corpus"));
  const std::string base = scratch.path().string();
  Outcome file = cli_in(scratch.path(), "proj/mine.yaml run.dir=runs/a" + kShort);
  CHECK(file.status == 11);
  CHECK_MESSAGE(has(file.err, "dataset.path is '../gone/corpus' (proj/mine.yaml:"), file.err);
  CHECK_MESSAGE(has(file.err, "relative to the folder of that file, " + base + "/proj: " + base +
                                  "/gone/corpus"),
                file.err);
  // The help names the tokenizer's folder, too; the error is about the data.
  write_at(scratch / "proj/a.jsonl", "{\"text\": \"a\"}\n");
  write_at(scratch / "proj/a_tokenizer_folder/tokenizer.json", small_tokenizer());
  const Outcome text = cli_in(scratch.path(),
                              "proj/mine.yaml dataset.path=proj/a.jsonl "
                              "'tokenizer={type: hf, path: "
                              "proj/a_tokenizer_folder}' run.dir=runs/c" +
                                  kShort);
  CHECK_MESSAGE(has(text.err, "training reads prepared tokens; dataset.path is 'proj/a.jsonl'"),
                text.err);
  Outcome argument =
      cli_in(scratch.path(), "proj/mine.yaml dataset.path=gone/frank run.dir=runs/b" + kShort);
  CHECK_MESSAGE(has(argument.err, "dataset.path is 'gone/frank' (command line, argument 2"),
                argument.err);
  CHECK_MESSAGE(
      has(argument.err, "relative to the current folder " + base + ": " + base + "/gone/frank"),
      argument.err);
  for (const char* setting : {"model.init_from=gone", "tokenizer.type=hf +tokenizer.path=gone"}) {
    Outcome other = cli_in(scratch.path(),
                           "proj/mine.yaml " + std::string(setting) + " run.dir=runs/c" + kShort);
    CHECK(other.status != 0);
    CHECK_MESSAGE(has(other.err, " is 'gone' (command line, argument "), other.err);
  }
  CHECK_FALSE(fs::exists(scratch / "runs"));  // nothing of these runs is left
  // What was there before stays, and so does a run that has begun.
  prepare(scratch / "gone", "corpus");
  fs::create_directories(scratch / "kept");
  CHECK(
      cli_in(scratch.path(), "proj/mine.yaml dataset.path=nowhere run.dir=kept" + kShort).status ==
      11);
  CHECK(fs::is_empty(scratch / "kept"));
  CHECK(cli_in(scratch.path(), "proj/mine.yaml run.dir=runs/d" + kShort).status == 0);
  CHECK(cli_in(scratch.path(), "proj/mine.yaml dataset.path=nowhere run.dir=runs/d" + kShort)
            .status == 11);
  CHECK(fs::exists(scratch / "runs/d/checkpoints/step-2"));
  CHECK_FALSE(fs::exists(fs::symlink_status(scratch / "runs/a")));
}

TEST_CASE("a run goes on however its data are named, and is repeated from anywhere") {
  Scratch scratch("mtrain-path-resume");
  prepare(scratch / "proj/own", "frank");
  write_at(scratch / "proj/mine.yaml", text_recipe("own/frank"));
  const std::string rest =
      " -q scheduler.warmup_steps=0 validation.interval=0 validation.steps=0 run.dir=a";
  REQUIRE(cli_in(scratch.path(), "proj/mine.yaml train.steps=2" + rest).status == 0);
  Outcome other =
      cli_in(scratch.path(), "proj/mine.yaml dataset.path=proj/own/frank train.steps=2" + rest);
  CHECK_MESSAGE(other.status == 0, other.err);
  CHECK_FALSE(has(other.err, "dataset.path"));
  fs::create_directories(scratch / "elsewhere");
  Outcome again = cli_in(scratch / "elsewhere", "rerun ../a -q run.dir=b");
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK(digest(scratch / "elsewhere/b") == digest(scratch / "a"));
  Outcome eval =
      cli_in(scratch / "elsewhere",
             "eval --from ../a --split train --batches 1 dataset.path=../proj/own/frank");
  CHECK_MESSAGE(eval.status == 0, eval.err);
  // Sizes and checksums identify data, not names.
  for (const char* end : {".bin", ".idx", ".tokenizer.json"})
    fs::rename(scratch / ("proj/own/frank" + std::string(end)),
               scratch / ("elsewhere/moved" + std::string(end)));
  Outcome moved =
      cli_in(scratch.path(), "proj/mine.yaml dataset.path=elsewhere/moved train.steps=3" + rest);
  CHECK_MESSAGE(moved.status == 0, moved.err);
  CHECK_FALSE(has(moved.err, "dataset.path"));
  CHECK(fs::exists(scratch / "a/checkpoints/step-3"));
  for (const char* end : {".bin", ".idx"})
    fs::remove(scratch / ("elsewhere/moved" + std::string(end)));
  prepare(scratch / "elsewhere", "moved");
  Outcome changed =
      cli_in(scratch.path(), "proj/mine.yaml dataset.path=elsewhere/moved train.steps=4" + rest);
  CHECK(changed.status == 12);
  CHECK_MESSAGE(has(changed.err, "moved has different contents"), changed.err);
}

TEST_CASE("recipes cp: the copy reads the same files") {
  Scratch scratch("mtrain-path-copies");
  prepare(scratch / "proj/own", "frank");
  write_at(scratch / "proj/mine.yaml",
           "# first\n" + text_recipe("'own/frank'") + "patch: []   # nothing\n");
  REQUIRE(cli_in(scratch.path(), "recipes cp proj/mine.yaml other/place/copy.yaml").status == 0);
  const std::string copy = slurp(scratch / "other/place/copy.yaml");
  CHECK_MESSAGE(has(copy, "path: ../../proj/own/frank, split: '100,0,0'}\n"), copy);
  CHECK_MESSAGE(has(copy, "# first\n"), copy);
  CHECK_MESSAGE(has(copy, "\npatch: []   # nothing\n"), copy);
  Outcome trained = cli_in(scratch.path(), "other/place/copy.yaml run.dir=a" + kShort);
  CHECK_MESSAGE(trained.status == 0, trained.err);
  write_at(scratch / "data/quickstart/corpus.idx", "");
  REQUIRE(cli_in(scratch.path(), "recipes cp quickstart other/start.yaml").status == 0);
  CHECK(has(slurp(scratch / "other/start.yaml"), "path: ../data/quickstart/corpus    #"));
  write_at(scratch / "list.yaml",
           "dataset:\n  type: gpt\n  paths:\n  - a/b\n  - \"/abs/c\"\n  - ${oc.env:HOME}/d\n");
  // A path that is another setting's is adapted with it.
  const Outcome adapters = cli_in(scratch.path(), "recipes cp llama3_8b_lora other/lora.yaml");
  CHECK_MESSAGE(adapters.status == 0, adapters.err);
  CHECK_MESSAGE(adapters.err.find("copied unchanged") == std::string::npos, adapters.err);
  Outcome listed = cli_in(scratch.path(), "recipes cp list.yaml sub/list.yaml");
  CHECK(listed.status == 0);
  CHECK(
      has(slurp(scratch / "sub/list.yaml"), "  - ../a/b\n  - \"/abs/c\"\n  - ${oc.env:HOME}/d\n"));
  CHECK_MESSAGE(has(listed.err, "list.yaml:6:5"), listed.err);
}

TEST_CASE(
    "recipes cp: the copy of a recipe that reads the text that comes with mtrain reads it too") {
  Scratch scratch("mtrain-path-shared-copy");
  REQUIRE(cli_in(scratch.path(), "recipes cp quickstart mine/my.yaml").status == 0);
  // Absolute, or relative where the build lies under the same top folder as the copy.
  const std::string copy = slurp(scratch / "mine/my.yaml"), key = "path: ";
  const size_t begin = copy.find(key) + key.size();
  const fs::path written = copy.substr(begin, copy.find("    #", begin) - begin);
  CHECK_MESSAGE(fs::weakly_canonical(scratch / "mine" / written) ==
                    fs::canonical(build_root()) / "share/mtrain/data/quickstart/corpus",
                copy);
  Outcome trained = cli_in(scratch.path(),
                           "mine/my.yaml -q run.dir=a model.layers=1 train.steps=1 "
                           "scheduler.warmup_steps=0 validation.interval=0 validation.steps=0");
  CHECK_MESSAGE(trained.status == 0, trained.err);
}

TEST_CASE(
    "config diff compares the files that paths name, and what config show prints names them") {
  Scratch scratch("mtrain-path-diff");
  const std::string text = text_recipe("own/frank");
  write_at(scratch / "a/r.yaml", text);
  write_at(scratch / "b/r.yaml", text);
  write_at(scratch / "c/r.yaml", text_recipe("../a/own/frank"));
  auto in = [&](const std::string& words) { return cli_in(scratch.path(), words); };
  const std::string other = in("config diff a/r.yaml b/r.yaml").out;
  CHECK_MESSAGE(has(other, "dataset.path\n  - " + (scratch / "a/own/frank").string()), other);
  CHECK_MESSAGE(has(other, "  + " + (scratch / "b/own/frank").string()), other);
  CHECK(in("config diff a/r.yaml c/r.yaml").out == "no difference\n");
  CHECK(in("config diff a/r.yaml dataset.path=a/own/frank").out == "no difference\n");
  for (const char* view : {"", " --minimal", " --json", " --annotated"}) {
    CAPTURE(view);
    write_at(scratch / "shown/again.yaml", in(std::string("config show a/r.yaml") + view).out);
    CHECK(in("config diff a/r.yaml shown/again.yaml").out == "no difference\n");
  }
  CHECK(has(in("config show a/r.yaml --raw").out, "own/frank"));
  CHECK_FALSE(has(in("config show a/r.yaml --raw").out, "a/own/frank"));
  CHECK(in("check a/r.yaml --resolved").out == in("config show a/r.yaml").out);
  // A run names its files relative to the folder of its recipe.
  prepare(scratch / "a/own", "frank");
  prepare(scratch / "b/own", "frank");
  REQUIRE(in("a/r.yaml run.dir=runs/a" + kShort).status == 0);
  CHECK_FALSE(has(in("config diff runs/a a/r.yaml").out, "dataset.path"));
  CHECK(has(in("config diff runs/a b/r.yaml").out, "dataset.path"));
}

TEST_CASE("a path that is taken from another setting starts where that one was given") {
  Scratch scratch("mtrain-paths-taken");
  prepare(scratch / "data", "frank");
  prepare(scratch / "proj/data", "frank");
  write_at(scratch / "proj/r.yaml",
           text_recipe("data/frank, valid_path: '${dataset.path}', test_path: '${.valid_path}'"));
  auto paths = [&](const std::string& words) {
    Outcome shown = cli_in(scratch.path(), "config show proj/r.yaml --flags " + words);
    CHECK_MESSAGE(shown.status == 0, shown.err);
    std::vector<std::string> out;
    for (const char* name : {"path", "valid_path", "test_path"}) {
      const std::string key = std::string("dataset.") + name + "=";
      const size_t at = shown.out.find("\n" + key);
      REQUIRE_MESSAGE(at != std::string::npos, shown.out);
      const size_t begin = at + 1 + key.size();
      out.push_back(shown.out.substr(begin, shown.out.find('\n', begin) - begin));
    }
    return out;
  };
  const std::string own = (scratch / "proj/data/frank").string(),
                    here = (scratch / "data/frank").string();
  using Paths = std::vector<std::string>;
  CHECK(paths("") == Paths{own, own, own});
  CHECK(paths("dataset.path=data/frank") == Paths{here, here, here});
  CHECK(paths("dataset.valid_path=data/frank") == Paths{own, here, here});
  CHECK(paths("dataset.path=data 'dataset.valid_path=${dataset.path}/frank'") ==
        Paths{(scratch / "data").string(), here, here});
}

TEST_CASE("suggested commands can be pasted, whatever the paths are") {
  const Scratch scratch("mtrain-paths-pasted");
  std::string text;
  for (int i = 0; i < 400; ++i) text += "And line " + std::to_string(i) + " was written.\n\n";
  write_at(scratch / "my data/my text.txt", text);
  scratch.write("r.yaml", text_recipe("my data/my text.txt"));
  const Outcome refused = cli_in(scratch.path(), "r.yaml -q run.dir=a");
  CHECK(refused.status == 11);
  const std::string start = "run: mtrain ";
  const size_t at = refused.err.find(start);
  REQUIRE_MESSAGE(at != std::string::npos, refused.err);
  const size_t begin = at + start.size(), end = refused.err.find('\n', begin);
  const Outcome pasted = cli_in(scratch.path(), refused.err.substr(begin, end - begin));
  CHECK_MESSAGE(pasted.status == 0, refused.err, pasted.err);
  const size_t set = refused.err.find("set '", end);
  REQUIRE_MESSAGE(set != std::string::npos, refused.err);
  const std::string setting = refused.err.substr(set + 4, refused.err.find('\n', set) - set - 4);
  const Outcome trained = cli_in(scratch.path(), "r.yaml run.dir=a" + kShort + setting);
  CHECK_MESSAGE(trained.status == 0, setting, trained.err);
}

TEST_CASE("an absent path with a comma: the help says how several are written") {
  const Scratch scratch("mtrain-paths-comma");
  scratch.write("r.yaml", text_recipe("x"));
  const Outcome pairs = cli_in(scratch.path(), "r.yaml -q run.dir=a dataset.path=my,fr");
  CHECK(pairs.status == 11);
  CHECK_MESSAGE(has(pairs.err, "dataset.paths=[A, B]"), pairs.err);
  CHECK_MESSAGE(has(pairs.err, "use -m"), pairs.err);
  const Outcome plain = cli_in(scratch.path(), "r.yaml -q run.dir=a dataset.path=my");
  CHECK_FALSE(has(plain.err, "with a comma"));
  const Outcome records =
      cli_in(scratch.path(), "r.yaml -q run.dir=a dataset.type=sft dataset.path=a.jsonl,b.jsonl");
  CHECK_MESSAGE(has(records.err, "join the records of several files in one"), records.err);
}
