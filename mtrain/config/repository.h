// ConfigRepository: finds and reads recipes and config groups on an ordered search path. A group is
// a folder; an option of it is a .yaml file. The first folder of the path that has the file wins.
// Reads each file once and owns it. Not synchronised: one thread at a time.
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

/// One file of the search path with its content.
struct ConfigFile {
  std::string path;  // in the search path, without .yaml: "model/llama3_8b"
  std::string file;  // the path on disk, or the name of a text
  Node body;         // without its `defaults`
  std::optional<Node> defaults;
  std::string package;  // of the "# @package" comment; empty when there is none
  bool has_package = false;
};

class MT_API ConfigRepository {
 public:
  /// `folders`: the search path; the first match wins.
  explicit ConfigRepository(std::vector<std::filesystem::path> folders)
      : folders_(std::move(folders)) {}

  const std::vector<std::filesystem::path>& folders() const { return folders_; }
  /// The file of a path such as "model/llama3_8b"; nothing when there is none.
  std::optional<std::filesystem::path> find(const std::string& path) const;
  /// True for a folder with options.
  bool is_group(const std::string& group) const;
  /// The options of a group over all folders, sorted. The empty group holds the whole recipes.
  std::vector<std::string> options(const std::string& group) const;
  /// Help for a name or path that is neither a file nor an option: the most similar ones that
  /// exist, and the searched folders.
  std::string help_for_absent(const std::string& request) const;
  /// Reads the file of a path. Null when there is none or when it cannot be read, which is reported
  /// once per file.
  const ConfigFile* load(const std::string& path, Report& report);
  /// Reads a file by its path on disk, or `text` under that name.
  const ConfigFile* load_file(const std::string& file, std::optional<std::string> text,
                              Report& report);
  /// Adds a file as load_yaml() has read it.
  const ConfigFile* add(const std::string& file, Node root, Report& report);

 private:
  std::vector<std::filesystem::path> folders_;
  std::map<std::string, std::unique_ptr<ConfigFile>>
      loaded_;  // by file on disk; null: could not be read
};

}  // namespace mtrain
