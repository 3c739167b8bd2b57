#include <cmath>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/yaml_load.h"

namespace mtrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;  // the format version of the schema file of a plugin
constexpr FieldType kTypes[] = {
    FieldType::boolean,      FieldType::integer,     FieldType::number,      FieldType::string,
    FieldType::integer_list, FieldType::number_list, FieldType::string_list, FieldType::tree};
constexpr ResumeClass kResumes[] = {ResumeClass::safe,         ResumeClass::start,
                                    ResumeClass::coming_steps, ResumeClass::changes_result,
                                    ResumeClass::data,         ResumeClass::impossible};
constexpr Fact kFacts[] = {Fact::layers,   Fact::hidden_size,     Fact::heads,   Fact::kv_heads,
                           Fact::head_dim, Fact::ffn_hidden_size, Fact::experts, Fact::mtp_layers};

Json to_json(const FieldSpec& spec) {
  Json out = {{"path", spec.path}, {"type", name(spec.type)}, {"doc", spec.doc}};
  if (!spec.unit.empty()) out["unit"] = spec.unit;
  if (!spec.example.empty()) out["example"] = spec.example;
  if (!spec.required) out["default"] = spec.default_value;
  if (spec.min) out["min"] = *spec.min;
  if (spec.max) out["max"] = *spec.max;
  if (spec.exclusive_min) out["exclusive_min"] = true;
  if (spec.exclusive_max) out["exclusive_max"] = true;
  if (!spec.choices.empty()) out["choices"] = spec.choices;
  if (!spec.renamed_from.empty()) out["renamed_from"] = spec.renamed_from;
  if (!spec.plugin_kind.empty()) out["plugin_kind"] = spec.plugin_kind;
  if (!spec.derived.empty()) out["derived"] = spec.derived;
  if (!spec.share_of.empty()) out["share_of"] = spec.share_of;
  if (!spec.alternative.empty()) out["alternative"] = spec.alternative;
  if (spec.merge.kind != MergeKind::deep) out["merge"] = name(spec.merge);
  if (!spec.needs.empty()) out["needs"] = spec.needs;
  if (!spec.needs_values.empty()) out["needs_values"] = spec.needs_values;
  if (spec.list_size >= 0) out["list_size"] = spec.list_size;
  if (spec.bits != 64) out["bits"] = spec.bits;
  if (spec.nullable) out["nullable"] = true;
  if (spec.secret) out["secret"] = true;
  if (spec.input_path) out["input_path"] = true;
  if (spec.training_only) out["training_only"] = true;
  if (spec.resume != ResumeClass::changes_result) out["resume"] = name(spec.resume);
  if (spec.fact != Fact::none) out["fact"] = name(spec.fact);
  return out;
}

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorClass::plugin, "not a settings schema: " + why);
}

/// Reads an optional member into `out`.
template <class T>
void take(const Json& object, const char* key, T& out) {
  if (auto it = object.find(key); it != object.end()) it->get_to(out);
}

template <class T, size_t N>
T by_name(const Json& object, const char* key, const T (&values)[N]) {
  std::string wanted = object.at(key).get<std::string>();
  for (T value : values)
    if (wanted == name(value)) return value;
  refuse(cat("unknown ", key, " '", printable(wanted), "'"));
}

FieldSpec spec_from_json(const Json& object) {
  FieldSpec spec;
  object.at("path").get_to(spec.path);
  auto parts = parse_path(spec.path);
  if (!parts || parts->empty()) refuse(cat("'", printable(spec.path), "' is not a path"));
  spec.type = by_name(object, "type", kTypes);
  take(object, "doc", spec.doc);
  take(object, "unit", spec.unit);
  take(object, "example", spec.example);
  spec.required = !object.contains("default");
  take(object, "default", spec.default_value);
  if (object.contains("min")) spec.min = object["min"].get<double>();
  if (object.contains("max")) spec.max = object["max"].get<double>();
  take(object, "exclusive_min", spec.exclusive_min);
  take(object, "exclusive_max", spec.exclusive_max);
  take(object, "choices", spec.choices);
  take(object, "renamed_from", spec.renamed_from);
  take(object, "plugin_kind", spec.plugin_kind);
  take(object, "derived", spec.derived);
  take(object, "share_of", spec.share_of);
  take(object, "alternative", spec.alternative);
  if (object.contains("merge")) {
    auto rule = merge_rule(object["merge"].get<std::string>());
    if (!rule) refuse(cat("unknown merge '", printable(object["merge"].get<std::string>()), "'"));
    spec.merge = *rule;
  }
  take(object, "needs", spec.needs);
  take(object, "needs_values", spec.needs_values);
  take(object, "list_size", spec.list_size);
  take(object, "bits", spec.bits);
  take(object, "nullable", spec.nullable);
  take(object, "secret", spec.secret);
  take(object, "input_path", spec.input_path);
  take(object, "training_only", spec.training_only);
  if (object.contains("resume")) spec.resume = by_name(object, "resume", kResumes);
  if (object.contains("fact")) spec.fact = by_name(object, "fact", kFacts);
  if (!spec.required) {
    Report report;
    auto source = std::make_shared<Source>(SourceKind::file, "default", spec.default_value);
    if (!load_yaml(source, report))
      refuse(cat("the default of ", printable(spec.path), " is not YAML"));
  }
  return spec;
}

/// The default of a setting as JSON.
Json json_value(const Node& node) {
  switch (node.kind()) {
    case NodeKind::null:
      return nullptr;
    case NodeKind::boolean:
      return node.as_bool();
    case NodeKind::integer:
      return parse_integer(node.as_text()).value_or(0);
    case NodeKind::number: {
      double value = parse_number(node.as_text()).value_or(0);
      return std::isfinite(value) ? Json(value) : Json(node.as_text());
    }
    case NodeKind::string:
      return node.as_text();
    case NodeKind::list: {
      Json out = Json::array();
      for (const auto& item : node.items()) out.push_back(json_value(item));
      return out;
    }
    case NodeKind::map: {
      Json out = Json::object();
      for (const auto& entry : node.entries()) out[entry.key] = json_value(entry.value);
      return out;
    }
  }
  return nullptr;
}

/// A whole limit is written as an integer, as editors show it.
Json limit(double value) {
  bool whole = std::trunc(value) == value && std::abs(value) < 9e15;
  return whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

Json scalar_schema(const FieldSpec& spec) {
  Json out = Json::object();
  switch (spec.type) {
    case FieldType::boolean:
      out["type"] = "boolean";
      break;
    case FieldType::integer:
    case FieldType::integer_list:
      out["type"] = "integer";
      break;
    case FieldType::number:
    case FieldType::number_list:
      out["type"] = "number";
      break;
    // A string setting accepts any scalar by its text: name: 123.
    case FieldType::string:
    case FieldType::string_list:
      out["type"] = Json::array({"string", "number", "boolean"});
      break;
    case FieldType::tree:
      break;
  }
  if (spec.min) out[spec.exclusive_min ? "exclusiveMinimum" : "minimum"] = limit(*spec.min);
  if (spec.max) out[spec.exclusive_max ? "exclusiveMaximum" : "maximum"] = limit(*spec.max);
  if (!spec.choices.empty() &&
      (spec.type == FieldType::string || spec.type == FieldType::string_list))
    out = {{"enum", spec.choices}};
  return out;
}

/// A string that is accepted for a value of another type: an expression, ??? , or, for a number, a
/// text with a unit (4k, 500steps) or a percentage (5%).
Json text_schema(bool numeric, bool share = false) {
  std::string pattern = "\\$\\{|^\\?\\?\\?$";
  if (numeric) pattern += "|^[-+]?[0-9.]+[ _]?[A-Za-z][A-Za-z_]*$";
  if (share) pattern += "|^[0-9.]+ ?%$";
  return {{"type", "string"}, {"pattern", pattern}};
}

std::string description(const FieldSpec& spec) {
  std::string doc = spec.doc;
  if (!spec.unit.empty()) doc += " (" + spec.unit + ")";
  if (!spec.share_of.empty()) doc += cat("; or a share of ", spec.share_of, ", such as 5%");
  if (!spec.alternative.empty()) doc += cat("; instead of ", spec.alternative);
  if (!spec.derived.empty()) doc += cat("; computed from ", spec.derived, ", cannot be set");
  if (spec.merge.kind == MergeKind::append) doc += "; lists of later files are added";
  if (spec.merge.kind == MergeKind::by_key)
    doc += cat("; items of later files change those of the same ", spec.merge.key);
  if (spec.merge.kind == MergeKind::replace) doc += "; a later file's value replaces it whole";
  if (!spec.needs.empty()) {
    std::string values = spec.needs_values.empty() ? "" : join(spec.needs_values, ", ") + ": ";
    doc += cat("; ", values, "not implemented yet, needs ", spec.needs);
  }
  return doc;
}

Json value_schema(const FieldSpec& spec) {
  bool numeric = spec.type == FieldType::integer || spec.type == FieldType::number;
  bool numbers = spec.type == FieldType::integer_list || spec.type == FieldType::number_list;
  bool list = spec.type == FieldType::integer_list || spec.type == FieldType::number_list ||
              spec.type == FieldType::string_list;
  Json value = scalar_schema(spec);
  if (list && numbers) value = {{"anyOf", Json::array({value, text_schema(true)})}};
  if (list) value = {{"type", "array"}, {"items", value}};
  if (list && spec.list_size >= 0) value["minItems"] = value["maxItems"] = spec.list_size;
  Json out = Json::object();
  if (std::string doc = description(spec); !doc.empty()) out["description"] = doc;
  if (!spec.derived.empty()) {
    out["readOnly"] = true;
    out["not"] = Json::object();  // any value is invalid here
    return out;
  }
  if (!spec.required && !spec.secret && !spec.default_value.empty())
    out["default"] = json_value(parse_yaml(spec.default_value, "default of " + spec.path));
  if (!spec.example.empty()) out["examples"] = Json::array({json_value(Node::plain(spec.example))});
  if (spec.type == FieldType::tree) {
    if (spec.example.starts_with('['))  // a list, whose items the schema does not describe
      out["anyOf"] = Json::array({{{"type", "array"}}, {{"type", "null"}}, text_schema(false)});
    return out;
  }
  out["anyOf"] = Json::array({value});
  if (spec.nullable) out["anyOf"].push_back({{"type", "null"}});
  out["anyOf"].push_back(text_schema(numeric, !spec.share_of.empty()));
  return out;
}

/// The object that contains a setting's leaf; creates the sections on the way.
Json& section_of(Json& root, const std::vector<std::string>& parts) {
  Json* at = &root;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    Json& next = (*at)["properties"][parts[i]];
    if (!next.contains("properties"))
      next = {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
    at = &next;
  }
  return *at;
}

/// Accepts a former name where validation accepts it: relative to the root and, for a nested
/// setting, next to it.
void add_former(Json& root, const FieldSpec& spec, const std::string& old) {
  Json former = value_schema(spec);
  former["deprecated"] = true;
  former["description"] = "another name for " + spec.path;
  size_t dot = spec.path.rfind('.');
  std::vector<std::string> paths = {old};
  if (dot != std::string::npos) paths.push_back(spec.path.substr(0, dot + 1) + old);
  for (const auto& path : paths) {
    auto parts = parse_path(path);
    if (!parts || parts->empty()) continue;
    Json* at = &root;
    for (size_t i = 0; i + 1 < parts->size() && at; ++i) {
      Json& next = (*at)["properties"][(*parts)[i]];
      if (next.is_null())
        next = {
            {"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
      at = next.contains("properties")
               ? &next
               : nullptr;  // a current setting takes precedence over a former section
    }
    if (at && !(*at)["properties"].contains(parts->back()))
      (*at)["properties"][parts->back()] = former;
  }
}

}  // namespace

std::string schema_to_json(const Schema& schema) {
  Json fields = Json::array();
  for (const auto& spec : schema.fields) fields.push_back(to_json(spec));
  Json root = {{"format", kFormat}, {"name", schema.name}, {"doc", schema.doc}};
  if (!schema.needs.empty()) root["needs"] = schema.needs;
  if (!schema.objective.empty()) root["objective"] = schema.objective;
  if (schema.device_memory) root["device_memory"] = true;
  if (schema.reuses_norm_outputs) root["keeps_norms"] = true;
  root["fields"] = std::move(fields);
  return root.dump(2) + "\n";
}

Schema schema_from_json(std::string_view text) {
  try {
    Json root = Json::parse(text);
    if (root.at("format") != kFormat) refuse("an unknown format");
    Schema schema;
    root.at("name").get_to(schema.name);
    take(root, "doc", schema.doc);
    take(root, "needs", schema.needs);
    take(root, "objective", schema.objective);
    take(root, "device_memory", schema.device_memory);
    take(root, "keeps_norms", schema.reuses_norm_outputs);
    for (const auto& object : root.at("fields")) schema.fields.push_back(spec_from_json(object));
    return schema;
  } catch (const nlohmann::json::exception& fault) {
    refuse(printable(fault.what()));
  }
}

std::string json_schema_of(const Schema& schema) {
  Json root = {{"$schema", "http://json-schema.org/draft-07/schema#"},
               {"title", schema.name},
               {"description", schema.doc},
               {"type", "object"},
               {"additionalProperties", false},
               {"properties", Json::object()}};
  for (const auto& spec : schema.fields) {
    auto parts = parse_path(spec.path).value_or(std::vector<std::string>{spec.path});
    Json& section = section_of(root, parts);
    section["properties"][parts.back()] = value_schema(spec);
  }
  for (const auto& spec : schema.fields)
    for (const auto& old : spec.renamed_from) add_former(root, spec, old);
  return root.dump(2) + "\n";
}

}  // namespace mtrain
