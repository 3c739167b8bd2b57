#include "mtrain/plugin/trust.h"

#include <doctest/doctest.h>
#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

std::string distrust(const fs::path& file, const fs::path& program = "/proc/self/exe") {
  try {
    require_trusted(file, program);
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

/// root/bin/mtrain with its built-in plugin root/lib/mtrain/plugins/widget_a.so, and
/// root/other/widget_b.so.
struct Install {
  fs::path root = fs::temp_directory_path() / cat("mtrain_trust_install_", ::getpid());
  fs::path program = root / "bin/mtrain", folder = root / "lib/mtrain/plugins",
           plugin = folder / "widget_a.so", other = root / "other/widget_b.so";
  Install() {
    for (const auto& file : {program, plugin, other}) {
      fs::create_directories(file.parent_path());
      std::ofstream(file) << "x";
    }
    each([](const fs::path& path) { Tree::mode(path, fs::is_directory(path) ? 0755 : 0644); });
  }
  ~Install() { fs::remove_all(root); }
  Install(const Install&) = delete;
  Install& operator=(const Install&) = delete;
  template <class Act>
  void each(Act act) const {
    act(root);
    for (const auto& entry : fs::recursive_directory_iterator(root)) act(entry.path());
  }
};

/// The exit status of a child that runs `act`: 0 for true, 1 for false, 77 for what this machine
/// does not permit.
template <class Act>
int in_child(Act act) {
  pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(act());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool write_text(const char* path, const char* text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

/// What require_trusted() says as the user 1000 of a namespace that maps that user alone; as
/// `in_child`.
int judged_unmapped(const fs::path& file, const fs::path& program) {
  return in_child([&] {
    if (::setgroups(0, nullptr) != 0 || ::setresgid(1000, 1000, 1000) != 0 ||
        ::setresuid(1000, 1000, 1000) != 0)
      return 77;
    ::prctl(PR_SET_DUMPABLE,
            1);  // a process that changed its user may not write its own maps otherwise
    if (::unshare(CLONE_NEWUSER) != 0 || !write_text("/proc/self/setgroups", "deny")) return 77;
    if (!write_text("/proc/self/uid_map", "1000 1000 1") ||
        !write_text("/proc/self/gid_map", "1000 1000 1"))
      return 77;
    try {
      require_trusted(file, program);
      return 0;
    } catch (const Error&) {
      return 1;
    }
  });
}

}  // namespace

TEST_CASE("the owner of a folder above the program may also own one above a plugin") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root gives files to other groups and users");
    return;
  }
  Install install;
  REQUIRE(::chown(install.root.c_str(), 54321, 54321) == 0);
  CHECK(distrust(install.plugin, install.program) == "");
  CHECK(distrust(install.other, install.program) == "");
  CHECK(distrust(install.plugin).find("belongs to another user") !=
        std::string::npos);  // another program
  REQUIRE(::chown(install.folder.parent_path().c_str(), 54321, 54321) ==
          0);  // which is not above the program
  CHECK(distrust(install.plugin, install.program).find("belongs to another user") !=
        std::string::npos);
}

TEST_CASE("a group that may write to the program may write to plugins") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root gives files to other groups and users");
    return;
  }
  Install install;
  constexpr gid_t kShared = 54321;
  install.each([](const fs::path& path) {  // umask 002 in a folder of a project
    REQUIRE(::chown(path.c_str(), 0, kShared) == 0);
    Tree::mode(path, fs::is_directory(path) ? 0775 : 0664);
  });
  CHECK(distrust(install.plugin, install.program) == "");
  SUBCASE("not to its file, but to its folder") {
    Tree::mode(install.program, 0755);
    CHECK(distrust(install.plugin, install.program) == "");
    Tree::mode(install.program.parent_path(), 0755);
    CHECK(distrust(install.plugin, install.program).find("its group may write to this file") !=
          std::string::npos);
  }
  SUBCASE("another group") {
    REQUIRE(::chown(install.plugin.c_str(), 0, kShared + 1) == 0);
    CHECK(distrust(install.plugin, install.program).find("its group may write to this file") !=
          std::string::npos);
  }
  SUBCASE("root's group, as in containers that run as any user") {
    REQUIRE(::chown(install.plugin.c_str(), 0, 0) == 0);
    CHECK(distrust(install.plugin, install.program) == "");
  }
}

TEST_CASE("a user without an entry has the group of the same number") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root gives files to other groups and users");
    return;
  }
  Tree tree;
  constexpr uid_t kNameless = 54321;
  for (gid_t group : {gid_t{kNameless}, gid_t{kNameless + 1}}) {
    REQUIRE(::chown(tree.file.c_str(), kNameless, group) == 0);
    Tree::mode(tree.file, 0664);
    CHECK(in_child([&] {
            if (::setgroups(0, nullptr) != 0 || ::setresgid(group, group, group) != 0 ||
                ::setresuid(kNameless, kNameless, kNameless) != 0)
              return 77;
            return distrust(tree.file).empty() ? 0 : 1;
          }) == (group == kNameless ? 0 : 1));
  }
}

TEST_CASE(
    "in a user namespace without root, its number is trusted for folders above and for what is "
    "built in") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root gives files to other groups and users");
    return;
  }
  Install install;
  auto own = [&](const fs::path& path, uid_t user) {
    REQUIRE(::chown(path.c_str(), user, user) == 0);
  };
  const int root_installed = judged_unmapped(install.plugin, install.program);
  if (root_installed == 77) {
    MESSAGE("skipped: this machine does not permit user namespaces");
    return;
  }
  CHECK(root_installed == 0);
  CHECK(judged_unmapped(install.other, install.program) ==
        1);  // whose file that is cannot be known
  SUBCASE("the user's own plugin below folders of root") {
    own(install.other, 1000);
    CHECK(judged_unmapped(install.other, install.program) ==
          1);  // its folder is not known to be root's
    own(install.other.parent_path(), 1000);
    CHECK(judged_unmapped(install.other, install.program) == 0);
  }
  SUBCASE("a folder to which everybody may add a lib") {
    Tree::mode(install.root, 01777);
    CHECK(judged_unmapped(install.plugin, install.program) == 1);
  }
  SUBCASE("the user's own program") {
    install.each([&](const fs::path& path) { own(path, 1000); });
    CHECK(judged_unmapped(install.plugin, install.program) == 0);
    own(install.plugin, 54321);
    CHECK(judged_unmapped(install.plugin, install.program) == 1);
  }
}

TEST_CASE("a file that only its owner may change is trusted") {
  Tree tree;
  CHECK(distrust(tree.file) == "");
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
    CHECK(distrust(tree.file) == "");
  }
  SUBCASE("another group, of the file") {
    Tree::mode(tree.file, 0664);
    REQUIRE(::chown(tree.file.c_str(), 0, kShared) == 0);
    Tree::mode(tree.file, 0664);
    CHECK(distrust(tree.file).find("its group may write to this file") != std::string::npos);
    CHECK(help(tree.file) == "chmod g-w " + tree.file.string());
    Tree::mode(tree.file, 0644);
    CHECK(distrust(tree.file) == "");
  }
  SUBCASE("another group, of the folder") {
    REQUIRE(::chown(tree.inner.c_str(), 0, kShared) == 0);
    Tree::mode(tree.inner, 0775);
    CHECK(distrust(tree.file).find("its group may write to this plugin folder") !=
          std::string::npos);
  }
  SUBCASE("another group, of a folder above") {
    REQUIRE(::chown(tree.outer.c_str(), 0, kShared) == 0);
    Tree::mode(tree.outer, 0775);
    CHECK(distrust(tree.file).find("its group may rename folders") != std::string::npos);
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
    CHECK(distrust(tree.file).find("belongs to another user (number 54321)") != std::string::npos);
    CHECK(help(tree.file).find("copy the plugin into a folder of your own") != std::string::npos);
    REQUIRE(::chown(path.c_str(), 0, 0) == 0);
  }
  CHECK(distrust(tree.file) == "");
}

TEST_CASE("world-writable files and folders are refused") {
  Tree tree;
  SUBCASE("file") {
    Tree::mode(tree.file, 0646);
    CHECK(distrust(tree.file).find("anybody may write to this file") != std::string::npos);
  }
  SUBCASE("folder") {
    Tree::mode(tree.inner, 0757);
    CHECK(distrust(tree.file).find("anybody may write to this plugin folder") != std::string::npos);
  }
  SUBCASE("folder with the sticky bit: a new file may still be planted") {
    Tree::mode(tree.inner, 01777);
    CHECK(distrust(tree.file).find("anybody may write to this plugin folder") != std::string::npos);
  }
  SUBCASE("folder above") {
    Tree::mode(tree.outer, 0777);
    CHECK(distrust(tree.file).find("anybody may rename folders") != std::string::npos);
  }
  SUBCASE("folder above with the sticky bit, as /tmp has") {
    Tree::mode(tree.outer, 01777);
    CHECK(distrust(tree.file) == "");
  }
}

TEST_CASE("a link is judged by both of its ends") {
  Tree tree;
  fs::path links = tree.root / "links", link = links / "widget_b.so";
  fs::create_directories(links);
  Tree::mode(links, 0755);
  fs::create_symlink(tree.file, link);
  CHECK(distrust(link) == "");
  SUBCASE("the target's folder") { Tree::mode(tree.inner, 0777); }
  SUBCASE("the target") { Tree::mode(tree.file, 0666); }
  SUBCASE("the link's folder") { Tree::mode(links, 0777); }
  CHECK(distrust(link) != "");
}

TEST_CASE("a missing file and a dangling link are refused") {
  Tree tree;
  CHECK(distrust(tree.inner / "absent.so").find("No such file") != std::string::npos);
  fs::create_symlink("nowhere.so", tree.inner / "widget_c.so");
  CHECK(distrust(tree.inner / "widget_c.so").find("No such file") != std::string::npos);
}
