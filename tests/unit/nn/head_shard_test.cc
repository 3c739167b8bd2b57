#include "mtrain/nn/head_shard.h"

#include <doctest/doctest.h>

namespace mtrain {
namespace {

TEST_CASE("heads: their width is an even part of the hidden size, or given") {
  HeadLayout even = layout_of_heads(64, 8);
  CHECK((even.heads == 8 && even.groups == 8 && even.head_dim == 8));
  HeadLayout grouped = layout_of_heads(63, 8, 2, 16);
  CHECK((grouped.heads == 8 && grouped.groups == 2 && grouped.head_dim == 16));
  CHECK_THROWS_AS(layout_of_heads(63, 8), Error);
  CHECK_THROWS_AS(layout_of_heads(64, 8, 3), Error);
}

}  // namespace
}  // namespace mtrain
