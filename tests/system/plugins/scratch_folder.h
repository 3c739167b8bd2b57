// A temporary folder for one test, removed at its end. Not world-writable, so that plugins in it
// are trusted.
#pragma once
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "roots.h"

namespace mtrain {

namespace testing {
/// The plugins of tests/fixtures.
inline const fs::path kFixtures = build_root() / "tests/plugins";
}  // namespace testing

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (fs::temp_directory_path() / "mtrain_plugins_XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw Error(ErrorClass::io, "no temporary folder");
    path_ = fs::canonical(pattern);
    ::chmod(path_.c_str(), 0755);
  }
  ~ScratchFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }
  fs::path operator/(const fs::path& name) const { return path_ / name; }

 private:
  fs::path path_;
};

}  // namespace mtrain
