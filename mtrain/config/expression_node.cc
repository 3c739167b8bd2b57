#include "mtrain/config/expression_node.h"

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

ExpressionScalar scalar_value(const Node& node, size_t offset) try {
  switch (node.kind()) {
    case NodeKind::null:
      return std::monostate();
    case NodeKind::boolean:
      return node.as_bool();
    case NodeKind::integer:
      return node.as_int();
    case NodeKind::number:
      return node.as_double();
    case NodeKind::string:
      return node.as_text();
    default:
      throw ExpressionError(cat("cannot compute with ", describe(node.kind())), offset);
  }
} catch (const Error& error) {
  throw ExpressionError(error.message(), offset);  // the number is out of range
}

Node scalar_node(const ExpressionScalar& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return Node::string(*text);
  return Node::plain(std::visit([](const auto& v) { return to_text(ExpressionValue(v)); }, value));
}

}  // namespace

ExpressionValue expression_value(const Node& node, size_t offset) {
  if (!node.is_list())
    return std::visit([](auto&& value) { return ExpressionValue(std::move(value)); },
                      scalar_value(node, offset));
  ExpressionList items;
  for (const auto& item : node.items()) items.push_back(scalar_value(item, offset));
  return items;
}

Node expression_node(const ExpressionValue& value) {
  const auto* items = std::get_if<ExpressionList>(&value);
  if (!items) {
    if (const auto* text = std::get_if<std::string>(&value)) return Node::string(*text);
    return Node::plain(to_text(value));
  }
  Node list = Node::list();
  for (const auto& item : *items) list.push(scalar_node(item));
  return list;
}

}  // namespace mtrain
