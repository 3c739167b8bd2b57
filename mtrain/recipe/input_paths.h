// Input paths: settings that name files to read (Field::input_path). A relative path is resolved
// where its value was written: on the command line against the current folder, in a file against
// the folder of the file. In an installed recipe (is_installed), which cannot know where the data
// are, it is resolved against the current folder and then against share/mtrain, which has a text
// for the quickstart. Values; thread-safe.
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
    "Relative paths of input files are resolved against the current folder if they are on the "
    "command line or in an installed recipe\n"
    "(of mtrain, a plugin, the user or the machine), and against the file's folder if they are in "
    "any other file; run.dir and\n"
    "checkpoint.dir are always resolved against the current folder.";

/// The absolute path, without ".." unless a symbolic link changes its meaning.
MT_API fs::path plain_path(const fs::path& path);

/// True if a path is a file or folder, or the prefix of a prepared pair of files.
MT_API bool input_exists(const fs::path& path);

/// The value of such a setting, or of one item of a list.
struct MT_API InputPath {
  std::string setting;  // "dataset.path"
  std::string given;    // as it is written
  Location where;
  fs::path base;        // the folder to which it is relative; empty for an absolute path
  fs::path result;      // the absolute path
  bool shared = false;  // it is in share/mtrain
  /// "dataset.path is 'x' (a.yaml:3:9), relative to that file's folder /home/me/proj:
  /// /home/me/proj/x".
  std::string text() const;
  /// True if the file or folder exists, or a prepared pair with this prefix.
  bool is_there() const;
};

/// The folders to which relative paths of one recipe are relative.
class MT_API PathBases {
 public:
  /// `recipe_file`: the name of the recipe's own source, whose paths are relative to `directory`.
  PathBases(std::string recipe_file, fs::path directory, std::vector<SearchFolder> folders);
  /// The absolute folder for a value at this location.
  fs::path of(const Location& where) const;
  const fs::path& directory() const { return directory_; }
  /// True if a value at this location may name a file in share/mtrain.
  bool may_be_shared(const Location& where) const;

 private:
  std::string recipe_file_;
  fs::path directory_;
  std::vector<SearchFolder> folders_;
};

/// All input paths that a recipe sets. Paths that are not relative to the recipe's directory become
/// absolute in `config`, so that their readers need only that directory.
MT_API std::vector<InputPath> resolve_input_paths(ConfigContainer& config,
                                                  const SchemaCatalog& catalog,
                                                  const PathBases& bases);

/// Makes every input path of a checked recipe absolute, for a text that is read from any folder.
/// `bases`: those of resolve_input_paths(), which ran before.
MT_API void make_input_paths_absolute(ConfigContainer& config, const SchemaCatalog& catalog,
                                      const PathBases& bases);
/// The same for a tree of settings that were saved with a run. `directory`: the folder against
/// which their relative paths are resolved.
MT_API void make_input_paths_absolute(Node& root, const SchemaCatalog& catalog,
                                      const fs::path& directory);

/// True if both lists have the same files for a setting, regardless of notation.
MT_API bool same_input(const std::vector<InputPath>& a, const std::vector<InputPath>& b,
                       std::string_view setting);

/// Rethrows the Error with a clause that says where the path in its message comes from. `section`:
/// of several settings with that path, the one in this section of the recipe is named.
[[noreturn]] MT_API void rethrow_with_origin(const Error& error,
                                             const std::vector<InputPath>& paths,
                                             std::string_view section = {});

/// Calls `read`, which reads files of this section of the recipe; its Errors then also name the
/// setting of the file.
template <class Read>
auto with_path_origins(const std::vector<InputPath>& paths, Read&& read,
                       std::string_view section = {}) -> decltype(read()) {
  try {
    return read();
  } catch (const Error& error) {
    rethrow_with_origin(error, paths, section);
  }
}

}  // namespace mtrain
