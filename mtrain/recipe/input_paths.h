// Input paths: settings that name files to read (Field::input_path). A relative one starts where
// its value was written: on the command line at the current folder, in a file at that file's
// folder, in an installed recipe (is_installed) at the current folder, as such a recipe cannot know
// where the data are; what is not there is looked for in share/mtrain, which has a text for the
// quickstart. Values; thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/config/container.h"
#include "mtrain/recipe/search_path.h"

namespace mtrain {

/// The rule in one sentence, for help texts.
inline constexpr std::string_view kPathRule =
    "Relative paths of input files start at the current folder on the command line, at a file's "
    "own folder in that file, and at the\n"
    "current folder in a recipe that came with mtrain; run.dir and checkpoint.dir always start at "
    "the current folder.";

/// Whether a path names a file or folder, or is the prefix of a prepared pair.
MT_API bool input_exists(const fs::path& path);

/// The value of such a setting; of a list, of one item.
struct MT_API InputPath {
  std::string setting;  // "dataset.path"
  std::string given;    // as it is written
  Location where;
  fs::path base;        // where it starts; empty when it is absolute
  fs::path result;      // absolute: what base/given names
  bool shared = false;  // it came with the program
  /// "dataset.path is 'x' (a.yaml:3:9), relative to that file's folder /home/me/proj:
  /// /home/me/proj/x".
  std::string text() const;
  /// Whether there is such a file or folder, or a prepared pair of this prefix.
  bool is_there() const;
};

/// Where relative paths of one recipe start.
class MT_API PathBases {
 public:
  /// `recipe_file`: the name of the recipe's own source, whose paths start at `directory`.
  PathBases(std::string recipe_file, fs::path directory, std::vector<SearchFolder> folders);
  /// Absolute.
  fs::path of(const Location& where) const;
  const fs::path& directory() const { return directory_; }
  /// Whether a value written there may mean a file that came with the program.
  bool may_be_shared(const Location& where) const;

 private:
  std::string recipe_file_;
  fs::path directory_;
  std::vector<SearchFolder> folders_;
};

/// All input paths that a recipe sets. Those that do not start at the recipe's directory become
/// absolute in `config`, so that whoever reads them needs to know but that directory.
MT_API std::vector<InputPath> resolve_input_paths(ConfigContainer& config,
                                                  const SchemaCatalog& catalog,
                                                  const PathBases& bases);

/// Whether both lists have the same files for a setting, however they are written.
MT_API bool same_input(const std::vector<InputPath>& a, const std::vector<InputPath>& b,
                       std::string_view setting);

/// Throws the Error that is being handled, with a clause that says where the path in its message
/// comes from.
[[noreturn]] MT_API void rethrow_with_origin(const Error& error,
                                             const std::vector<InputPath>& paths);

/// Calls `read`, whose Errors then say which setting named the file.
template <class Read>
auto with_path_origins(const std::vector<InputPath>& paths, Read&& read) -> decltype(read()) {
  try {
    return read();
  } catch (const Error& error) {
    rethrow_with_origin(error, paths);
  }
}

}  // namespace mtrain
