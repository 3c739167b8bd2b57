// Reads YAML 1.2 into a tree: one document of maps, lists and scalars. Refuses, with the location:
// duplicate keys, merge keys, tags outside the core schema, several documents, deceptive
// characters, and input that would need unbounded time or memory. The content of a file never
// causes an exception. Stateless functions; safe from any thread.
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
  size_t copied_bytes = size_t{4} << 20;  // of the strings that aliases repeat
  size_t nodes = 100000;                  // after aliases are expanded
  size_t depth = 64;
  size_t key_bytes = 1024;
};

/// Parses a text. On failure, reports an error and returns nothing. An empty text gives a null
/// node.
MT_API std::optional<Node> load_yaml(SourcePtr source, Report& report,
                                     const YamlLimits& limits = {});
/// The same for a file; reports an error when the file cannot be read.
MT_API std::optional<Node> load_yaml_file(const std::filesystem::path& path, Report& report,
                                          const YamlLimits& limits = {});
/// For texts that the program itself generates: throws Error(config) with the whole report.
MT_API Node parse_yaml(std::string text, std::string name = "text");

}  // namespace mtrain
