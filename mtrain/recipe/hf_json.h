// JSON of config.json as nodes and texts, for the readers and writers of this folder. Stateless
// functions; safe from any thread.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "mtrain/recipe/hf_families.h"

namespace mtrain::hf {

using Json = nlohmann::json;

/// Throws Error(checkpoint) if the text is not a JSON object.
Json parse(const std::string& config_json, const std::string& file_name);
/// The same for the config.json of the folder from which a run started; {} if there is none.
Json parse_source(const std::string& config_json);
/// The text of a file: indented, with a line end.
std::string config_text(const Json& config);
/// Whether an id, or one of a list, has no row in the embedding: the vocabulary has shrunk.
bool is_beyond(const Json& ids, int64_t rows);
/// A scalar; a list for a list setting, of which a single value becomes the one item.
Node to_node(const Json& value, FieldType type);
/// A scalar, a list of them, or an empty map.
Json to_json(const Node& node);
std::string shown(const Json& value);
/// The text at a key; empty if there is none.
std::string text_of(const Json& config, const char* key);
/// The first of `architectures`.
std::string architecture_of(const Json& config);

/// Whether the value is a single one, or a list for a setting that is a list.
bool fits(const FieldSpec& field, const Json& value);
/// The setting at a path below model; null: none.
const FieldSpec* field_of(const std::string& path, const std::vector<const Schema*>& schemas);

}  // namespace mtrain::hf
