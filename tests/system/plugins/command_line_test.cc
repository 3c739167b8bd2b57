// The program's frame as a user meets it: help, usage errors, exit statuses, `plugins` and
// `doctor`.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "../process.h"
#include "mtrain/base/text.h"
#include "roots.h"
#include "scratch_folder.h"

using namespace mtrain;
using testing::cli;
using testing::has;
using testing::Outcome;

namespace {}  // namespace

TEST_CASE("help and version go to standard output and exit with 0") {
  for (std::vector<std::string> words : {std::vector<std::string>{"--help"},
                                         {"-h"},
                                         {"plugins", "--help"},
                                         {"plugins", "ls", "--help"},
                                         {"plugins", "inspect", "--help"},
                                         {"doctor", "--help"}}) {
    Outcome out = cli(words);
    INFO(join(words, " ") << "\n" << out.err);
    CHECK(out.status == 0);
    CHECK(out.err.empty());
    CHECK(has(out.out, "Example"));
    CHECK(has(out.out, "--help"));
  }
  CHECK(has(cli({"plugins", "--help"}).out, "export-schema"));
  CHECK(cli({"--version"}).out.starts_with("mtrain "));
}

TEST_CASE("usage errors exit with 2, say what is wrong once, and name the nearest command") {
  struct Case {
    std::vector<std::string> words;
    const char* expected;
  };
  const Case cases[] = {{{}, "--help"},
                        {{"plugns"}, "did you mean `mtrain plugins`"},
                        {{"doctr", "--json"}, "did you mean `mtrain doctor`"},
                        {{"--nonsense"}, "--nonsense"},
                        {{"--plugin-pth=x", "doctor"}, "did you mean --plugin-path?"},
                        {{"plugins"}, "mtrain plugins --help"},
                        {{"plugins", "lss"}, "did you mean `mtrain plugins ls`?"},
                        {{"plugins", "zzzzzzzz"}, "it has: ls, inspect"},
                        {{"plugins", "ls", "extra"}, "does not take 'extra'"},
                        {{"plugins", "ls", "--jsn"}, "has no option --jsn"},
                        {{"--plugin-path=/x", "plgins", "ls"}, "did you mean `mtrain plugins`"},
                        {{"plugins", "inspect"}, "mtrain plugins inspect --help"},
                        {{"--plugin-path"}, "--plugin-path"}};
  for (const auto& test : cases) {
    Outcome out = cli(test.words);
    INFO(join(test.words, " ") << " | " << out.err);
    CHECK(out.status == 2);
    CHECK(out.err.starts_with("mtrain: error[usage]: "));
    CHECK(has(out.err, test.expected));
    CHECK(out.out.empty());
    CHECK(std::count(out.err.begin(), out.err.end(), '\n') <= 2);
  }
}

TEST_CASE("plugins ls") {
  Outcome out = cli({"--plugin-path", testing::kFixtures.string(), "plugins", "ls"});
  CHECK(out.status == 0);
  CHECK(has(out.out, "a widget that works"));
  CHECK(has(out.out, "unusable: " + (testing::kFixtures / "widget_wrong_abi.so").string()));
  CHECK(has(out.out, "searched: " + testing::kFixtures.string()));
  Outcome after = cli({"plugins", "ls", "--json", "--plugin-path", testing::kFixtures.string()});
  CHECK(after.status == 0);
  CHECK(after.out.starts_with("["));
  CHECK(has(after.out, "\"name\": \"gadget\""));
}

TEST_CASE("plugins inspect and export-schema") {
  ScratchFolder folder;
  fs::copy_file(testing::kFixtures / "widget_gadget.so", folder / "widget_gadget.so");
  std::string file = (folder / "widget_gadget.so").string();
  Outcome written = cli({"plugins", "export-schema", file});
  CHECK(written.status == 0);
  CHECK(written.out == (folder / "widget_gadget.json").string() + "\n");
  for (const std::string& word : {file, std::string("gadget"), std::string("widget_gadget")}) {
    Outcome out = cli({"--plugin-path", folder.path().string(), "plugins", "inspect", word});
    INFO(out.err);
    CHECK(out.status == 0);
    CHECK(has(out.out, "widget gadget: a widget that works"));
    CHECK(has(out.out, "build-id:"));
    CHECK(has(out.out, "size: integer >= 1"));
  }
}

TEST_CASE("a faulty plugin is one line and status 13") {
  for (const char* name :
       {"wrong_abi", "wrong_sanitizer", "no_entry", "unresolved", "needs_absent", "throws_std",
        "throws_int", "static_throws", "static_exits", "static_aborts", "twice", "plain"}) {
    Outcome out = cli(
        {"plugins", "export-schema", (testing::kFixtures / cat("widget_", name, ".so")).string()});
    INFO(name << " | " << out.err);
    CHECK(out.status == 13);
    CHECK(out.err.starts_with("mtrain: error[plugin]: "));
    auto lines = split(out.err, '\n');
    CHECK(lines.size() == 3);  // the error, its help, the end
    CHECK(has(lines[1], "  help: "));
  }
}

TEST_CASE("a recipe that names a faulty plugin ends with status 13, in the check and in the run") {
  ScratchFolder folder;
  std::string recipe = (folder / "tiny.yaml").string();
  std::ofstream(recipe) << testing::tiny_recipe();
  auto copy = [&](const fs::path& from, const char* to) { fs::copy_file(from, folder / to); };
  copy(testing::kFixtures / "widget_wrong_abi.so", "optimizer_wrong_abi.so");
  copy(testing::kFixtures / "widget_unresolved.so",
       "optimizer_unresolved.so");  // good stamp, no sidecar
  copy(testing::kFixtures / "optimizer_throws.so", "optimizer_throws.so");
  copy(testing::kFixtures / "optimizer_throws.json", "optimizer_throws.json");
  struct Case {
    const char *command, *name, *expected;
    int status;
  };
  for (const auto& test :
       {Case{"check", "wrong_abi", "plugin interface number", 13},
        Case{"train", "wrong_abi", "interface", 13},
        Case{"check", "unresolved", "optimizer_unresolved.json: is missing", 13},
        Case{"check", "throws", "", 0}, Case{"train", "throws", "the bearing is worn", 13},
        Case{"check", "nowhere", "no optimizer 'nowhere'", 10}}) {
    Outcome out =
        cli({"--plugin-path", folder.path().string(), test.command, recipe,
             cat("optimizer.type=", test.name), cat("run.dir=", (folder / "run").string())});
    INFO(test.command << " " << test.name << " | " << out.err);
    CHECK(out.status == test.status);
    CHECK(has(out.err, test.expected));
    if (test.status == 13) {
      size_t at = out.err.find("mtrain: error[plugin]:");
      REQUIRE(at != std::string::npos);
      CHECK(split(out.err.substr(at), '\n').size() <=
            7);  // the headline and one fault, or one line and its help
    }
  }
  Outcome both = cli({"--plugin-path", folder.path().string(), "check", recipe,
                      "optimizer.type=wrong_abi", "train.steps=many"});
  CHECK(both.status == 10);  // its other faults come with it
  CHECK(has(both.err, "plugin interface number"));
  CHECK(has(both.err, "train.steps"));
}

TEST_CASE("a plugin that ends or blocks the process that opens it does not end or block a run") {
  ScratchFolder folder;
  std::string recipe = (folder / "tiny.yaml").string();
  std::ofstream(recipe) << testing::tiny_recipe();
  for (const auto& [act, expected] :
       {std::pair{"exit", "a static initialiser ended the process with status 0"},
        {"hang", "a static initialiser did not end within 20 s"}}) {
    Outcome out = cli({"--plugin-path", testing::kFixtures.string(), "train", recipe,
                       "optimizer.type=throws", cat("run.dir=", (folder / "run").string())},
                      {cat("MTRAIN_TEST_AT_LOAD=", act)});
    INFO(act << " | " << out.err);
    CHECK(out.status == 13);
    CHECK(has(out.err, cat("optimizer_throws.so: ", expected)));
    CHECK(has(out.err, "help: this is a fault of the plugin"));
  }
}

TEST_CASE("a file that is replaced between the check and the loading is not used") {
  ScratchFolder folder;
  fs::path file = folder / "widget_gadget.so";
  fs::copy_file(testing::kFixtures / "widget_gadget.so", file);
  fs::copy_file(testing::kFixtures / "widget_constructor.so", folder / "other");
  Outcome out = testing::run(
      {.arguments = {testing::mtrain_binary(), "plugins", "export-schema", file.string()},
       .environment = {"MTRAIN_FAULT=plugin.open:1:stop"},
       .while_stopped = [&](pid_t) { fs::rename(folder / "other", file); }});
  INFO(out.err);
  CHECK(out.status == 13);
  CHECK(has(out.err, "was replaced while it was being loaded"));
  CHECK_FALSE(fs::exists(folder / "widget_gadget.json"));
}

TEST_CASE("inspect of what is not there") {
  Outcome out = cli({"--plugin-path", testing::kFixtures.string(), "plugins", "inspect", "gadjet"});
  CHECK(out.status == 13);
  CHECK(has(out.err, "no plugin named 'gadjet'"));
  CHECK(cli({"plugins", "inspect", "/nowhere/model_x.so"}).status == 13);
  CHECK(cli({"plugins", "inspect", "/etc/passwd"}).status == 13);
}

TEST_CASE("doctor names every part and repairs what it can") {
  ScratchFolder empty;
  Outcome out = cli({"--plugin-path", empty.path().string(), "doctor"});
  for (const char* part : {"versions", "cpu", "cores", "memory", "limits", "folder", "plugins"})
    CHECK(has(out.out, part));
  for (const char* said : {"kernels of level ", "mixed_precision.dtype=auto uses "})
    CHECK_MESSAGE(has(out.out, said), out.out);
  Outcome bad = cli({"--plugin-path", testing::kFixtures.string(), "doctor"});
  CHECK(bad.status == 13);
  CHECK(has(bad.out,
            "a walled device; mixed_precision.dtype=auto uses bf16: walled devices have bf16 "
            "arithmetic"));
  CHECK(has(bad.out, "-> build the plugin again against this mtrain"));
  CHECK(cli({"doctor", "--json"}).out.starts_with("{"));
}

TEST_CASE("output that cannot be written is a failure") {
  if (!fs::exists("/dev/full")) return;
  Outcome out = testing::run(
      {.arguments = {"/bin/sh", "-c", testing::mtrain_binary() + " plugins ls >/dev/full"}});
  CHECK(out.status == 18);
  CHECK(has(out.err, "error[io]"));
}

TEST_CASE("help opens no plugin: it is quick however many there are") {
  for (std::vector<std::string> words :
       {std::vector<std::string>{"--help"}, {"--version"}, {"train", "--help"}}) {
    Outcome out = cli(words, {"MTRAIN_FAULT=plugin.open:1:kill"});
    CHECK(out.status == 0);
    CHECK_FALSE(out.out.empty());
  }
  CHECK(cli({"plugins", "export-schema", (testing::kFixtures / "widget_gadget.so").string()},
            {"MTRAIN_FAULT=plugin.open:1:kill"})
            .status == 128 + SIGKILL);
}
