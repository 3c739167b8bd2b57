#include "mtrain/recipe/hf_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain::hf {
namespace {

Node scalar_node(const Json& value) {
  if (value.is_boolean()) return Node::boolean(value.get<bool>());
  if (value.is_number_integer()) return Node::integer(value.get<int64_t>());
  if (value.is_number()) return Node::number(value.get<double>());
  return Node::string(value.get<std::string>());
}

}  // namespace

Json parse(const std::string& config_json, const std::string& file_name) {
  constexpr int kDeepest = 64;  // deeper values are attacks on whoever walks through them
  Json config;
  try {
    config = Json::parse(config_json, [&](int depth, Json::parse_event_t, Json&) {
      MT_USER_CHECK(depth <= kDeepest, ErrorClass::checkpoint,
                    cat(file_name, " is nested more than ", kDeepest, " levels deep"),
                    "no model's file is: get it from elsewhere");
      return true;
    });
  } catch (const Json::exception& e) {
    throw Error(ErrorClass::checkpoint, cat(file_name, ": ", e.what()),
                "the file is damaged: fetch it again");
  }
  MT_USER_CHECK(config.is_object(), ErrorClass::checkpoint, cat(file_name, " is not a JSON object"),
                "");
  return config;
}

Json parse_source(const std::string& text) {
  return text.empty() ? Json::object() : parse(text, "config.json");
}

std::string config_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

bool is_beyond(const Json& ids, int64_t rows) {
  if (ids.is_array())
    return std::any_of(ids.begin(), ids.end(), [&](const Json& id) { return is_beyond(id, rows); });
  return ids.is_number_integer() && ids.get<int64_t>() >= rows;
}

Node to_node(const Json& value, FieldType type) {
  if (type != FieldType::number_list && type != FieldType::integer_list &&
      type != FieldType::string_list)
    return scalar_node(value);
  Node out = Node::list();
  if (value.is_array())
    for (const Json& item : value) out.push(scalar_node(item));
  else
    out.push(scalar_node(value));
  return out;
}

bool fits(const FieldSpec& field, const Json& value) {
  const bool list = field.type == FieldType::number_list || field.type == FieldType::integer_list ||
                    field.type == FieldType::string_list;
  return value.is_primitive() ||
         (list && value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& item) {
            return item.is_primitive() && !item.is_null();
          }));
}

const FieldSpec* field_of(const std::string& path, const std::vector<const Schema*>& schemas) {
  for (const auto* schema : schemas)
    for (const auto& field : schema->fields)
      if (field.path == path) return &field;
  return nullptr;
}

Json to_json(const Node& node) {
  switch (node.kind()) {
    case NodeKind::boolean:
      return node.as_bool();
    case NodeKind::integer:
      return node.as_int();
    case NodeKind::number:
      return node.as_double();
    case NodeKind::string:
      return node.as_text();
    case NodeKind::list: {
      Json out = Json::array();
      for (const Node& item : node.items()) out.push_back(to_json(item));
      return out;
    }
    case NodeKind::map:
      return Json::object();
    case NodeKind::null:
      break;
  }
  return nullptr;
}

std::string shown(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80);
}

std::string text_of(const Json& config, const char* key) {
  auto found = config.find(key);
  return found != config.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string architecture_of(const Json& config) {
  auto found = config.find("architectures");
  const bool named =
      found != config.end() && found->is_array() && !found->empty() && found->front().is_string();
  return named ? found->front().get<std::string>() : "";
}

}  // namespace mtrain::hf
