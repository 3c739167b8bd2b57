// Converts between the nodes of a recipe and the values of expressions. Stateless functions over
// values; safe from any thread.
#pragma once
#include "mtrain/config/expression.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// Converts a scalar or a list of scalars. Throws ExpressionError at `offset` for anything else.
MT_API ExpressionValue expression_value(const Node& node, size_t offset = 0);
/// Converts the value of an expression to a node without a location.
MT_API Node expression_node(const ExpressionValue& value);

}  // namespace mtrain
