// Reads YAML 1.2 into a tree: one document of maps, lists and scalars. Refused, each with its
// place: duplicate keys, merge keys, tags beyond the core ones, several documents, text that is not
// what it looks like, and anything that would take unbounded time or memory. Never throws for what
// a file holds. Stateless.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

struct YamlLimits {
  size_t bytes = size_t{1} << 20;
  size_t aliases = 100;
  size_t copied_bytes = size_t{4} << 20;  // of the texts that aliases repeat
  size_t nodes = 100000;                  // after aliases are expanded
  size_t depth = 64;
  size_t key_bytes = 1024;
};

/// The tree of a text, or nothing when the report got an error. An empty text is a null node.
MT_API std::optional<Node> load_yaml(SourcePtr source, Report& report,
                                     const YamlLimits& limits = {});
/// As above for a file; a file that cannot be read is an error of the report.
MT_API std::optional<Node> load_yaml_file(const std::filesystem::path& path, Report& report,
                                          const YamlLimits& limits = {});
/// For texts the program itself made: throws Error(config) with the whole report.
MT_API Node parse_yaml(std::string text, std::string name = "text");

}  // namespace mtrain
