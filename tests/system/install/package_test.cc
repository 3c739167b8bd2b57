// What cpack makes is unpacked and used as a user would: it finds its parts, trains in an empty
// folder and serves plugin projects. The build tree serves those, too.
#include <doctest/doctest.h>
#include <unistd.h>

#include "../process.h"
#include "mtrain/base/text.h"
#include "roots.h"

using namespace mtrain;
namespace fs = std::filesystem;
using testing::Outcome;
using testing::Scratch;

namespace {

Outcome must(const std::vector<std::string>& arguments) {
  Outcome out = testing::run({.arguments = arguments});
  INFO(join(arguments, " ") << "\n" << out.out << out.err);
  REQUIRE(out.status == 0);
  return out;
}

bool has_program(const std::string& name) {
  return testing::run({.arguments = {"/bin/sh", "-c", "command -v " + name}}).status == 0;
}

/// The one package of a kind that cpack makes of the build.
fs::path packed(const Scratch& scratch, const std::string& kind, const std::string& extension) {
  must({MT_CPACK, "--config", (testing::build_root() / "CPackConfig.cmake").string(), "-G", kind,
        "-B", (scratch / "packages").string()});
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(scratch / "packages"))
    if (entry.path().string().ends_with(extension)) found.push_back(entry.path());
  REQUIRE(found.size() == 1);
  return found[0];
}

/// Markdown without its fenced blocks of code, in which "](" is C++.
std::string prose_of(const std::string& text) {
  std::string out;
  for (size_t at = 0, fence = 0; at < text.size(); at = text.find("```", fence + 3)) {
    if (at != 0) at += 3;  // after the fence that closes a block
    fence = text.find("```", at);
    out += text.substr(at, fence - at);
    if (fence == std::string::npos) break;
  }
  return out;
}

/// Every link of the installed documentation leads to a file or folder of the installation, and its
/// README is the project's.
void check_links(const fs::path& folder) {
  int links = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".md") continue;
    const std::string text = prose_of(testing::slurp(entry.path()));
    for (size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1)) {
      const std::string whole = text.substr(at + 2, text.find(')', at) - at - 2),
                        target = whole.substr(0, whole.find('#'));
      if (target.empty() || target.starts_with("http")) continue;
      ++links;
      const fs::path file = entry.path().parent_path() / target;
      CHECK_MESSAGE(fs::exists(file), entry.path().string(), ": ", target);
      CHECK_MESSAGE(file.lexically_normal().string().starts_with(folder.string()),
                    entry.path().string(), ": ", target);
    }
  }
  CHECK(links > 50);
  CHECK(testing::slurp(folder / "README.md") ==
        testing::slurp(testing::source_root() / "README.md"));
}

/// An installed tree has what users of the program and of the library need, and works in an empty
/// folder.
void check_tree(const fs::path& prefix, const Scratch& scratch) {
  for (const char* part :
       {"bin/mtrain", "lib/libmtrain_core.so", "lib/mtrain/plugins/model_llama.so",
        "lib/mtrain/plugins/model_llama.json", "include/mtrain/plugin/plugin.h",
        "include/mtrain/plugin/abi_hash.h", "lib/cmake/mtrain/mtrainConfig.cmake",
        "share/mtrain/recipes/quickstart.yaml", "share/mtrain/schemas/recipe.schema.json",
        "share/mtrain/data/quickstart/corpus.idx", "share/doc/mtrain/docs/data.md",
        "share/doc/mtrain/docs/man/mtrain-recipe.5", "share/doc/mtrain/examples/slurm.sh",
        "share/man/man5/mtrain-recipe.5"})
    CHECK_MESSAGE(fs::exists(prefix / part), part);
  check_links(prefix / "share/doc/mtrain");
  const std::string mtrain = (prefix / "bin/mtrain").string();
  CHECK(must({mtrain, "plugins", "ls"}).out.find("unusable") == std::string::npos);
  fs::create_directories(scratch / "empty");
  must({"/bin/sh", "-c",
        "cd " + (scratch / "empty").string() + " && exec " + mtrain +
            " quickstart train.steps=3 model.layers=1 scheduler.warmup_steps=0 "
            "validation.interval=0"});
  CHECK(fs::exists(scratch / "empty/runs/quickstart/checkpoints/step-3"));
}

}  // namespace

TEST_CASE("the .tar.gz is unpacked anywhere and used") {
  Scratch scratch("mtrain-tgz");
  const fs::path package = packed(scratch, "TGZ", ".tar.gz");
  fs::create_directories(scratch / "there");
  must({"/bin/sh", "-c",
        "cd " + (scratch / "there").string() + " && exec " MT_CMAKE " -E tar xzf " +
            package.string()});
  check_tree(scratch / "there" / fs::path(package).stem().stem().filename(), scratch);
}

TEST_CASE("the .deb holds the same below /usr, and names what it needs") {
  if (!has_program("dpkg-deb") || !has_program("dpkg-shlibdeps")) {
    MESSAGE("skipped: no dpkg-deb or dpkg-shlibdeps");
    return;
  }
  Scratch scratch("mtrain-deb");
  const fs::path package = packed(scratch, "DEB", ".deb");
  CHECK(must({"/bin/sh", "-c", "dpkg-deb -f " + package.string() + " Depends"}).out.find("libc6") !=
        std::string::npos);
  must({"/bin/sh", "-c", "dpkg-deb -x " + package.string() + " " + (scratch / "root").string()});
  check_tree(scratch / "root/usr", scratch);
}

TEST_CASE("find_package finds the build tree, and a plugin built against it trains") {
  Scratch scratch("mtrain-build-package");
  const std::string lion = (scratch / "lion").string(),
                    source = (testing::source_root() / "tests/fixtures/plugins/out_of_tree/lion")
                                 .string();
  must({MT_CMAKE, "-G", MT_GENERATOR, "-S", source, "-B", lion, "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_CXX_COMPILER=" MT_CXX, "-Dmtrain_DIR=" + testing::build_root().string()});
  must({MT_CMAKE, "--build", lion});
  const std::string recipe = scratch.write("tiny.yaml", testing::tiny_recipe());
  must({testing::mtrain_binary(), "--plugin-path", lion, recipe, "optimizer.type=my_lion",
        "train.steps=5", "run.dir=" + (scratch / "run").string(), "-q"});
}
