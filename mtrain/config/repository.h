// ConfigRepository: the recipes and config groups that can be named, over an ordered search path. A
// group is a folder, an option of it a .yaml file; the first folder of the path that has a file
// wins. Reads each file once. For one thread.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// One file of the search path, read.
struct ConfigFile {
  std::string path;  // in the search path, without .yaml: "model/llama3_8b"
  std::string file;  // on disk; or the name of a text
  Node body;         // without its `defaults`
  std::optional<Node> defaults;
  std::string package;  // of the "# @package" comment; empty when there is none
  bool has_package = false;
};

class MT_API ConfigRepository {
 public:
  /// `folders`: first wins.
  explicit ConfigRepository(std::vector<std::filesystem::path> folders)
      : folders_(std::move(folders)) {}

  const std::vector<std::filesystem::path>& folders() const { return folders_; }
  /// The file of a path such as "model/llama3_8b"; nothing when there is none.
  std::optional<std::filesystem::path> find(const std::string& path) const;
  /// True for a folder with options.
  bool is_group(const std::string& group) const;
  /// The options of a group over all folders, sorted. The empty group holds the whole recipes.
  std::vector<std::string> options(const std::string& group) const;
  /// What helps where neither a file nor an option has this name or path: the likeliest that exist,
  /// and where was looked.
  std::string help_for_absent(const std::string& said) const;
  /// Reads the file of a path. Null when there is none, or when the report got an error (which is
  /// told once per file).
  const ConfigFile* load(const std::string& path, Report& report);
  /// Reads a file by its place on disk, or the given text under that name.
  const ConfigFile* load_file(const std::string& file, std::optional<std::string> text,
                              Report& report);

 private:
  std::vector<std::filesystem::path> folders_;
  std::map<std::string, std::unique_ptr<ConfigFile>>
      loaded_;  // by file on disk; null: could not be read
};

}  // namespace mtrain
