#include "mtrain/plugin/trust.h"

#include <sys/stat.h>

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

void require_sound_folder(const fs::path& folder) {
  if (status_of(folder).st_mode & S_IWOTH)
    throw Error(ErrorClass::plugin,
                cat(folder.string(), ": anybody may write to this plugin folder, so it is not used"),
                cat("chmod o-w ", folder.string()));
  for (fs::path above = folder.parent_path(); !above.empty(); above = above.parent_path()) {
    mode_t mode = status_of(above).st_mode;
    if ((mode & S_IWOTH) && !(mode & S_ISVTX))
      throw Error(ErrorClass::plugin,
                  cat(above.string(), ": anybody may rename folders in it, so the plugin folder ",
                      folder.string(), " is not used"),
                  cat("chmod o-w ", above.string()));
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
  if (status_of(target).st_mode & S_IWOTH)
    throw Error(ErrorClass::plugin,
                cat(target.string(), ": anybody may write to this file, so it is not loaded"),
                cat("chmod o-w ", target.string()));
  require_sound_folder(fs::canonical(absolute.parent_path()));
  if (target.parent_path() != absolute.parent_path()) require_sound_folder(target.parent_path());
}

}  // namespace mtrain
