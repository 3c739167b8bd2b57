#include "mtrain/plugin/trust.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "mtrain/base/error.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

struct stat status_of(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    throw Error(ErrorClass::plugin,
                cat(path.string(), ": cannot be opened: ", std::strerror(errno)),
                "check the name and its permissions");
  return info;
}

/// The overflow number, which stands for everybody whom the user namespace does not map, including
/// root; nothing if root is mapped.
std::optional<uint32_t> unmapped_root(const char* map, const char* number) {
  std::ifstream lines(map), overflow(number);
  uint64_t inside = 0, outside = 0, count = 0;
  bool any = false;
  for (; lines >> inside >> outside >> count; any = true)
    if (outside == 0) return std::nullopt;
  uint32_t id = 0;
  return any && overflow >> id ? std::optional(id) : std::nullopt;
}

/// A group that the system created for the user alone: it has the user's name and no other member.
/// A user without an entry (docker run --user) has the group of the same number.
bool own_group(gid_t id) {
  std::array<char, 16384> user_text, group_text;
  passwd user{}, *found = nullptr;
  if (::getpwuid_r(::geteuid(), &user, user_text.data(), user_text.size(), &found) != 0)
    return false;
  if (id != (found ? user.pw_gid : ::getegid()) || (!found && id != ::geteuid())) return false;
  group entry{}, *known = nullptr;
  if (::getgrgid_r(id, &entry, group_text.data(), group_text.size(), &known) != 0) return false;
  if (!known) return !found;
  for (char** member = entry.gr_mem; *member; ++member)
    if (!found || std::strcmp(*member, user.pw_name) != 0) return false;
  return !found || std::strcmp(entry.gr_name, user.pw_name) == 0;
}

bool below(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

/// The relation of a path to the plugin file that is checked.
enum class Part { file, folder, above };

/// Users and groups whom the user trusts by running the program: root, the user, and users who can
/// replace the program.
class Trusted {
 public:
  explicit Trusted(const fs::path& program) : program_(program), file_(status_of(program)) {
    // Not canonical(): a program that was replaced while it runs has no path any more.
    std::error_code no_link;
    if (fs::path target = fs::read_symlink(program, no_link); !no_link) program_ = target;
    folder_ = status_of(program_.parent_path());
    const fs::path prefix = program_.parent_path().parent_path();
    // If everybody may add to the folder above both, the plugins there may have another author than
    // the program.
    if (!(status_of(prefix).st_mode & S_IWOTH)) plugins_ = prefix / "lib/mtrain/plugins";
  }

  bool owner(uid_t id, const fs::path& path, Part part) const {
    if (id == 0 || id == ::geteuid()) return true;
    if (part == Part::above && (id == unmapped_user_ || above_program(path))) return true;
    return id == file_.st_uid && (id != unmapped_user_ || built_in(path));
  }
  bool group(gid_t id, const fs::path& path) const {
    if (id == 0 || own_group(id)) return true;
    auto writes = [&](const struct stat& info) {
      return (info.st_mode & S_IWGRP) && info.st_gid == id;
    };
    return (writes(file_) || writes(folder_)) && (id != unmapped_group_ || built_in(path));
  }
  /// A user who may rename entries in such a folder can replace the program itself.
  bool above_program(const fs::path& folder) const { return below(program_, folder); }

 private:
  bool built_in(const fs::path& path) const { return !plugins_.empty() && below(path, plugins_); }

  fs::path program_, plugins_;
  struct stat file_ {
  }, folder_{};
  std::optional<uid_t> unmapped_user_ =
      unmapped_root("/proc/self/uid_map", "/proc/sys/kernel/overflowuid");
  std::optional<gid_t> unmapped_group_ =
      unmapped_root("/proc/self/gid_map", "/proc/sys/kernel/overflowgid");
};

void require_owner(const Trusted& trusted, const struct stat& info, const fs::path& path,
                   Part part) {
  if (trusted.owner(info.st_uid, path, part)) return;
  const char* what = part == Part::file     ? "file"
                     : part == Part::folder ? "plugin folder"
                                            : "folder";
  throw Error(ErrorClass::plugin,
              cat(path.string(), ": this ", what, " belongs to another user (number ", info.st_uid,
                  "), who may change it, so it is not used"),
              cat("copy the plugin into a folder of your own, or, if you trust them: chown ",
                  ::geteuid(), " ", path.string()));
}

/// Throws if anyone but trusted users may write there; `right` says what they may do, `result` what
/// follows.
void require_writers(const Trusted& trusted, const struct stat& info, const fs::path& path,
                     const std::string& right, const std::string& result) {
  const bool anybody = info.st_mode & S_IWOTH;
  if (!anybody && (!(info.st_mode & S_IWGRP) || trusted.group(info.st_gid, path))) return;
  throw Error(
      ErrorClass::plugin,
      cat(path.string(), ": ", anybody ? "anybody" : "its group", " may ", right, ", so ", result),
      cat("chmod ", anybody ? "o-w" : "g-w", " ", shell_word(path.string())));
}

void require_sound_folder(const Trusted& trusted, const fs::path& folder) {
  struct stat info = status_of(folder);
  require_owner(trusted, info, folder, Part::folder);
  require_writers(trusted, info, folder, "write to this plugin folder", "it is not used");
  for (fs::path above = folder.parent_path(); !above.empty(); above = above.parent_path()) {
    info = status_of(above);
    require_owner(trusted, info, above, Part::above);
    if (!(info.st_mode & S_ISVTX) && ((info.st_mode & S_IWOTH) || !trusted.above_program(above)))
      require_writers(trusted, info, above, "rename folders in it",
                      cat("the plugin folder ", folder.string(), " is not used"));
    if (above == above.root_path()) break;
  }
}

}  // namespace

void require_trusted(const fs::path& file, const fs::path& program) {
  fs::path absolute = fs::absolute(file).lexically_normal();
  std::error_code error;
  fs::path target = fs::canonical(absolute, error);
  if (error)
    throw Error(ErrorClass::plugin, cat(absolute.string(), ": cannot be opened: ", error.message()),
                "check the name and its permissions");
  const Trusted trusted(program);
  const struct stat info = status_of(target);
  require_owner(trusted, info, target, Part::file);
  require_writers(trusted, info, target, "write to this file", "it is not loaded");
  require_sound_folder(trusted, fs::canonical(absolute.parent_path()));
  if (target.parent_path() != absolute.parent_path())
    require_sound_folder(trusted, target.parent_path());
}

}  // namespace mtrain
