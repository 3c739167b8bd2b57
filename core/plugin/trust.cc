#include "mtrain/plugin/trust.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

struct stat status_of(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    throw Error(ErrorClass::plugin, cat(path.string(), ": cannot be opened: ", std::strerror(errno)),
                "check the name and its permissions");
  return info;
}

/// A group that the system made for the user alone, as many do: its name is the user's and nobody else is in it.
bool own_group(gid_t id) {
  std::array<char, 16384> user_text, group_text;
  passwd user{}, *found = nullptr;
  if (::getpwuid_r(::geteuid(), &user, user_text.data(), user_text.size(), &found) != 0 || !found || user.pw_gid != id) return false;
  group entry{}, *known = nullptr;
  if (::getgrgid_r(id, &entry, group_text.data(), group_text.size(), &known) != 0 || !known) return false;
  for (char** member = entry.gr_mem; *member; ++member)
    if (std::strcmp(*member, user.pw_name) != 0) return false;
  return std::strcmp(entry.gr_name, user.pw_name) == 0;
}

bool trusted_owner(uid_t id) {
  if (id == 0 || id == ::geteuid()) return true;
  struct stat program {};
  return ::stat("/proc/self/exe", &program) == 0 && program.st_uid == id;
}

/// Who besides its owner may write there: "", "its group" or "anybody"; `bits`: what takes that right from them.
const char* others(const struct stat& info, const char*& bits) {
  if (info.st_mode & S_IWOTH) return bits = "o-w", "anybody";
  if ((info.st_mode & S_IWGRP) && !own_group(info.st_gid)) return bits = "g-w", "its group";
  return "";
}

void require_owner(const struct stat& info, const fs::path& path, const char* what) {
  if (trusted_owner(info.st_uid)) return;
  throw Error(ErrorClass::plugin,
              cat(path.string(), ": this ", what, " belongs to another user (number ", info.st_uid, "), who may change it, so it is not used"),
              cat("copy the plugin into a folder of your own, or, if you trust them: chown ", ::geteuid(), " ", path.string()));
}

/// Whoever may rename what lies in such a folder may change the program itself.
bool above_program(const fs::path& folder) {
  const fs::path program = program_directory();
  return std::mismatch(folder.begin(), folder.end(), program.begin(), program.end()).first == folder.end();
}

void require_sound_folder(const fs::path& folder) {
  const char* bits = "";
  struct stat info = status_of(folder);
  require_owner(info, folder, "plugin folder");
  if (const char* who = others(info, bits); *who)
    throw Error(ErrorClass::plugin, cat(folder.string(), ": ", who, " may write to this plugin folder, so it is not used"),
                cat("chmod ", bits, " ", folder.string()));
  for (fs::path above = folder.parent_path(); !above.empty(); above = above.parent_path()) {
    info = status_of(above);
    require_owner(info, above, "folder");
    if ((info.st_mode & S_ISVTX) || (!(info.st_mode & S_IWOTH) && above_program(above))) info.st_mode = 0;
    if (const char* who = others(info, bits); *who)
      throw Error(ErrorClass::plugin,
                  cat(above.string(), ": ", who, " may rename folders in it, so the plugin folder ", folder.string(), " is not used"),
                  cat("chmod ", bits, " ", above.string()));
    if (above == above.root_path()) break;
  }
}

}  // namespace

void require_trusted(const fs::path& file) {
  fs::path absolute = fs::absolute(file).lexically_normal();
  std::error_code error;
  fs::path target = fs::canonical(absolute, error);
  if (error)
    throw Error(ErrorClass::plugin, cat(absolute.string(), ": cannot be opened: ", error.message()),
                "check the name and its permissions");
  const char* bits = "";
  struct stat info = status_of(target);
  require_owner(info, target, "file");
  if (const char* who = others(info, bits); *who)
    throw Error(ErrorClass::plugin, cat(target.string(), ": ", who, " may write to this file, so it is not loaded"),
                cat("chmod ", bits, " ", target.string()));
  require_sound_folder(fs::canonical(absolute.parent_path()));
  if (target.parent_path() != absolute.parent_path()) require_sound_folder(target.parent_path());
}

}  // namespace mtrain
