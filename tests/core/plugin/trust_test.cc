#include "mtrain/plugin/trust.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

using namespace mtrain;

namespace {

/// root/outer/inner/file, all sound.
struct Tree {
  fs::path root = fs::temp_directory_path() / cat("mtrain_trust_", ::getpid());
  fs::path outer = root / "outer", inner = outer / "inner", file = inner / "widget_a.so";
  Tree() {
    fs::create_directories(inner);
    std::ofstream(file) << "x";
    for (const auto& folder : {root, outer, inner}) mode(folder, 0755);
    mode(file, 0644);
  }
  ~Tree() { fs::remove_all(root); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  static void mode(const fs::path& path, mode_t bits) { REQUIRE(::chmod(path.c_str(), bits) == 0); }
};

std::string refusal(const fs::path& file) {
  try {
    require_trusted(file);
    return {};
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::plugin);
    return error.message();
  }
}

std::string help(const fs::path& file) {
  try {
    require_trusted(file);
    return {};
  } catch (const Error& error) {
    return error.hint();
  }
}

}  // namespace

TEST_CASE("a file that only its owner may change is trusted") {
  Tree tree;
  CHECK(refusal(tree.file) == "");
}

TEST_CASE("what a group may write to is trusted when the group is the user alone") {
  Tree tree;
  constexpr gid_t kShared = 54321;  // whose members nobody knows
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root gives files to other groups and users");
    return;
  }
  SUBCASE("the user's own group") {
    Tree::mode(tree.file, 0664);
    Tree::mode(tree.inner, 0775);
    Tree::mode(tree.outer, 0775);
    CHECK(refusal(tree.file) == "");
  }
  SUBCASE("another group, of the file") {
    Tree::mode(tree.file, 0664);
    REQUIRE(::chown(tree.file.c_str(), 0, kShared) == 0);
    Tree::mode(tree.file, 0664);
    CHECK(refusal(tree.file).find("its group may write to this file") != std::string::npos);
    CHECK(help(tree.file) == "chmod g-w " + tree.file.string());
    Tree::mode(tree.file, 0644);
    CHECK(refusal(tree.file) == "");
  }
  SUBCASE("another group, of the folder") {
    REQUIRE(::chown(tree.inner.c_str(), 0, kShared) == 0);
    Tree::mode(tree.inner, 0775);
    CHECK(refusal(tree.file).find("its group may write to this plugin folder") != std::string::npos);
  }
  SUBCASE("another group, of a folder above") {
    REQUIRE(::chown(tree.outer.c_str(), 0, kShared) == 0);
    Tree::mode(tree.outer, 0775);
    CHECK(refusal(tree.file).find("its group may rename folders") != std::string::npos);
  }
}

TEST_CASE("what belongs to another user is refused") {
  Tree tree;
  constexpr uid_t kStranger = 54321;
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root gives files to other groups and users");
    return;
  }
  for (const fs::path& path : {tree.file, tree.inner, tree.outer}) {
    CAPTURE(path.string());
    REQUIRE(::chown(path.c_str(), kStranger, 0) == 0);
    CHECK(refusal(tree.file).find("belongs to another user (number 54321)") != std::string::npos);
    CHECK(help(tree.file).find("copy the plugin into a folder of your own") != std::string::npos);
    REQUIRE(::chown(path.c_str(), 0, 0) == 0);
  }
  CHECK(refusal(tree.file) == "");
}

TEST_CASE("world-writable files and folders are refused") {
  Tree tree;
  SUBCASE("file") {
    Tree::mode(tree.file, 0646);
    CHECK(refusal(tree.file).find("anybody may write to this file") != std::string::npos);
  }
  SUBCASE("folder") {
    Tree::mode(tree.inner, 0757);
    CHECK(refusal(tree.file).find("anybody may write to this plugin folder") != std::string::npos);
  }
  SUBCASE("folder with the sticky bit: a new file may still be planted") {
    Tree::mode(tree.inner, 01777);
    CHECK(refusal(tree.file).find("anybody may write to this plugin folder") != std::string::npos);
  }
  SUBCASE("folder above") {
    Tree::mode(tree.outer, 0777);
    CHECK(refusal(tree.file).find("anybody may rename folders") != std::string::npos);
  }
  SUBCASE("folder above with the sticky bit, as /tmp has") {
    Tree::mode(tree.outer, 01777);
    CHECK(refusal(tree.file) == "");
  }
}

TEST_CASE("a link is judged by both of its ends") {
  Tree tree;
  fs::path links = tree.root / "links", link = links / "widget_b.so";
  fs::create_directories(links);
  Tree::mode(links, 0755);
  fs::create_symlink(tree.file, link);
  CHECK(refusal(link) == "");
  SUBCASE("the target's folder") {
    Tree::mode(tree.inner, 0777);
  }
  SUBCASE("the target") {
    Tree::mode(tree.file, 0666);
  }
  SUBCASE("the link's folder") {
    Tree::mode(links, 0777);
  }
  CHECK(refusal(link) != "");
}

TEST_CASE("a missing file and a dangling link are refused") {
  Tree tree;
  CHECK(refusal(tree.inner / "absent.so").find("No such file") != std::string::npos);
  fs::create_symlink("nowhere.so", tree.inner / "widget_c.so");
  CHECK(refusal(tree.inner / "widget_c.so").find("No such file") != std::string::npos);
}
