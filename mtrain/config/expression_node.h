// Between the nodes of a recipe and the values of expressions. Stateless functions over values.
#pragma once
#include "mtrain/config/expression.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// A scalar, or a list of scalars, as expressions see it. Throws ExpressionError at `offset` for
/// anything else.
MT_API ExpressionValue expression_value(const Node& node, size_t offset = 0);
/// What an expression gave, as a node without a place.
MT_API Node expression_node(const ExpressionValue& value);

}  // namespace mtrain
