// The program's frame as a user meets it: help, usage errors, exit statuses, `plugins` and `doctor`.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "mtrain/base/text.h"
#include "run_program.h"
#include "scratch_folder.h"

using namespace mtrain;

namespace {

const fs::path kBuild = MT_BINARY_DIR;
const fs::path kFixtures = kBuild / "tests/plugins";

Outcome mtrain_run(std::vector<std::string> arguments, const std::string& output = {}) {
  return run_program((kBuild / "bin/mtrain").string(), std::move(arguments), output);
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("help and version go to standard output and exit with 0") {
  for (std::vector<std::string> words : {std::vector<std::string>{"--help"}, {"-h"}, {"plugins", "--help"}, {"plugins", "ls", "--help"},
                                         {"plugins", "inspect", "--help"}, {"doctor", "--help"}}) {
    Outcome out = mtrain_run(words);
    INFO(join(words, " ") << "\n" << out.err);
    CHECK(out.status == 0);
    CHECK(out.err.empty());
    CHECK(has(out.out, "Example"));
    CHECK(has(out.out, "--help"));
  }
  CHECK_FALSE(has(mtrain_run({"plugins", "--help"}).out, "export-schema"));
  CHECK(mtrain_run({"--version"}).out.starts_with("mtrain "));
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
    Outcome out = mtrain_run(test.words);
    INFO(join(test.words, " ") << " | " << out.err);
    CHECK(out.status == 2);
    CHECK(out.err.starts_with("mtrain: error[usage]: "));
    CHECK(has(out.err, test.expected));
    CHECK(out.out.empty());
    CHECK(std::count(out.err.begin(), out.err.end(), '\n') <= 2);
  }
}

TEST_CASE("plugins ls") {
  Outcome out = mtrain_run({"--plugin-path", kFixtures.string(), "plugins", "ls"});
  CHECK(out.status == 0);
  CHECK(has(out.out, "a widget that works"));
  CHECK(has(out.out, "unusable: " + (kFixtures / "widget_wrong_abi.so").string()));
  CHECK(has(out.out, "searched: " + kFixtures.string()));
  Outcome after = mtrain_run({"plugins", "ls", "--json", "--plugin-path", kFixtures.string()});
  CHECK(after.status == 0);
  CHECK(after.out.starts_with("["));
  CHECK(has(after.out, "\"name\": \"gadget\""));
}

TEST_CASE("plugins inspect and export-schema") {
  ScratchFolder folder;
  fs::copy_file(kFixtures / "widget_gadget.so", folder / "widget_gadget.so");
  std::string file = (folder / "widget_gadget.so").string();
  Outcome written = mtrain_run({"plugins", "export-schema", file});
  CHECK(written.status == 0);
  CHECK(written.out == (folder / "widget_gadget.json").string() + "\n");
  for (const std::string& word : {file, std::string("gadget"), std::string("widget_gadget")}) {
    Outcome out = mtrain_run({"--plugin-path", folder.path().string(), "plugins", "inspect", word});
    INFO(out.err);
    CHECK(out.status == 0);
    CHECK(has(out.out, "widget gadget: a widget that works"));
    CHECK(has(out.out, "build-id:"));
    CHECK(has(out.out, "size: integer >= 1"));
  }
}

TEST_CASE("a faulty plugin is one line and status 13") {
  for (const char* name : {"wrong_abi", "wrong_sanitizer", "no_entry", "unresolved", "needs_absent", "throws_std", "throws_int",
                           "static_throws", "twice", "plain"}) {
    Outcome out = mtrain_run({"plugins", "export-schema", (kFixtures / cat("widget_", name, ".so")).string()});
    INFO(name << " | " << out.err);
    CHECK(out.status == 13);
    CHECK(out.err.starts_with("mtrain: error[plugin]: "));
    auto lines = split(out.err, '\n');
    CHECK(lines.size() == 3);  // the error, its help, the end
    CHECK(has(lines[1], "  help: "));
  }
}

TEST_CASE("inspect of what is not there") {
  Outcome out = mtrain_run({"--plugin-path", kFixtures.string(), "plugins", "inspect", "gadjet"});
  CHECK(out.status == 13);
  CHECK(has(out.err, "no plugin named 'gadjet'"));
  CHECK(mtrain_run({"plugins", "inspect", "/nowhere/model_x.so"}).status == 13);
  CHECK(mtrain_run({"plugins", "inspect", "/etc/passwd"}).status == 13);
}

TEST_CASE("doctor names every part and mends what it can") {
  ScratchFolder empty;
  Outcome out = mtrain_run({"--plugin-path", empty.path().string(), "doctor"});
  for (const char* part : {"versions", "cpu", "cores", "memory", "limits", "folder", "plugins"}) CHECK(has(out.out, part));
  Outcome bad = mtrain_run({"--plugin-path", kFixtures.string(), "doctor"});
  CHECK(bad.status == 13);
  CHECK(has(bad.out, "-> mtrain plugins inspect"));
  CHECK(mtrain_run({"doctor", "--json"}).out.starts_with("{"));
}

TEST_CASE("output that cannot be written is a failure") {
  if (!fs::exists("/dev/full")) return;
  CHECK(mtrain_run({"plugins", "ls"}, "/dev/full").status == 18);
}

TEST_CASE("help is quick") {
  using clock = std::chrono::steady_clock;
  double best_ms = 1e9;
  for (int i = 0; i < 5; ++i) {
    auto begin = clock::now();
    mtrain_run({"--help"});
    best_ms = std::min(best_ms, std::chrono::duration<double, std::milli>(clock::now() - begin).count());
  }
  MESSAGE("mtrain --help takes " << best_ms << " ms");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(best_ms < 50);
#endif
}
