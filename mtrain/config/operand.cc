#include "mtrain/config/operand.h"

#include <algorithm>
#include <cmath>

#include "mtrain/base/text.h"
#include "mtrain/config/resolvers.h"
#include "mtrain/config/share.h"
#include "mtrain/config/value.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

bool was_named(const FieldSpec& spec, std::string_view setting) {
  const std::string parent = spec.path.substr(0, spec.path.rfind('.') + 1);
  return std::any_of(
      spec.renamed_from.begin(), spec.renamed_from.end(),
      [&](const std::string& old) { return old == setting || parent + old == setting; });
}

/// The description of the items of a list; nothing for any other setting.
std::optional<FieldSpec> item_of(const FieldSpec& list) {
  FieldSpec item = list;
  item.list_size = -1;
  item.nullable = false;
  if (list.type == FieldType::integer_list)
    item.type = FieldType::integer;
  else if (list.type == FieldType::number_list)
    item.type = FieldType::number;
  else if (list.type == FieldType::string_list)
    item.type = FieldType::string;
  else
    return std::nullopt;
  return item;
}

/// A number as it is written. A number with a unit is an integer where it is whole, like 120 for
/// 2h: integers are exact.
Node number_operand(const Node& written, double value) {
  Node plain = Node::plain(written.as_text());
  if (plain.is(NodeKind::number) || parse_integer(plain.as_text())) return plain;
  const bool whole = std::trunc(value) == value && std::abs(value) < 0x1p53;
  return whole ? Node::integer(static_cast<int64_t>(value)) : Node::number(value);
}

Node operand(const Node& written, const FieldValue& value, const FieldSpec& spec) {
  if (const auto* number = std::get_if<double>(&value)) return number_operand(written, *number);
  const auto* numbers = std::get_if<std::vector<double>>(&value);
  if (!numbers) return write_value(value, spec);
  Node out = Node::list();
  for (size_t i = 0; i < numbers->size(); ++i)
    out.push(number_operand(written.items()[i], (*numbers)[i]));
  return out;
}

void refuse_share(const Node& value, const FieldSpec& spec, const std::string& path) {
  const bool text = value.is(NodeKind::string) && (!value.quoted() || value.is_verbatim());
  if (spec.share_of.empty() || !text || !parse_share(value.as_text())) return;
  throw InterpolationFault{
      cat(path, " is ", visible(value.as_text(), 60), ", a share of ", spec.share_of,
          ": an expression cannot compute with a share"),
      cat("compute with ${", spec.share_of, "}, or give ", path, " as a number")};
}

std::optional<Node> read_as(const FieldSpec& spec, const Node& value, const std::string& path,
                            Report& report) {
  // A null may be the name of a plugin or choice (null_names.h).
  const bool perhaps_name = value.is_null() && spec.type == FieldType::string;
  if (spec.type == FieldType::tree || perhaps_name) return value;
  refuse_share(value, spec, path);
  auto read = read_value(value, spec, path, report);
  if (!read) return std::nullopt;
  return operand(value, *read, spec);
}

}  // namespace

const FieldSpec* setting_named(std::string_view setting, const std::vector<const Schema*>& owners) {
  for (const bool now : {true, false})
    for (auto owner = owners.rbegin(); owner != owners.rend(); ++owner)
      for (const FieldSpec& spec : (*owner)->fields)
        if (now ? spec.path == setting : was_named(spec, setting)) return &spec;
  return nullptr;
}

std::optional<Node> read_operand(const Node& value, const std::string& path,
                                 const std::vector<const Schema*>& owners, Report& report) {
  const size_t first = path.find('.'), last = path.rfind('.');
  if (first == std::string::npos) return value;
  if (const FieldSpec* spec = setting_named(std::string_view(path).substr(first + 1), owners))
    return read_as(*spec, value, path, report);
  const std::string index = path.substr(last + 1);
  if (last == first || !parse_integer(index)) return value;
  const FieldSpec* list =
      setting_named(std::string_view(path).substr(first + 1, last - first - 1), owners);
  const auto item = list ? item_of(*list) : std::nullopt;
  return item ? read_as(*item, value, cat(path.substr(0, last), "[", index, "]"), report) : value;
}

}  // namespace mtrain
