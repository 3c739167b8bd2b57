// The sizes of a transformer block, estimated from the facts that a model's settings publish. Pure
// functions; thread-safe.
#pragma once

namespace mtrain {

struct Recipe;

/// Numbers of elements of the matrices of one block, without norms and biases.
struct BlockSizes {
  double hidden = 0;     // width of the residual stream
  double attention = 0;  // on one rank: projections of queries, keys, values, and of the output;
                         // and those between the stream and the space of experts
  double mlp = 0;        // three matrices, as a gated MLP has: on one rank; or of one whole expert
  double experts = 0;    // experts of the block on all ranks; 0: none
  double chosen = 1;     // experts that each token selects
  double sent = 0;       // width of what is sent to an expert
};

BlockSizes block_sizes(const Recipe& recipe);

}  // namespace mtrain
