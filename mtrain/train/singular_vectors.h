// The largest singular values of a matrix with their vectors, in double. The result depends on the
// matrix alone: not on threads, layout or instruction set. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

struct SingularVectors {
  std::vector<double> values;       // [count], descending
  std::vector<double> left, right;  // [count, rows] and [count, cols], orthonormal; zeros where a
                                    // value is 0
};

/// matrix [rows, cols], stored row by row; 1 <= count <= min(rows, cols). Exact to double's
/// precision (one-sided Jacobi: Hestenes 1958) if rows or cols are at most kExactSingularSize.
/// Larger matrices: subspace iterations with a block of count + 16 vectors (Halko et al. 2011,
/// arXiv:0909.4061, algorithm 4.4), kSubspaceIterations of them; vectors of nearly equal values may
/// be mixed, and then the last ones are not quite those of the largest values. `threads`: of this
/// call.
MT_API SingularVectors largest_singular_vectors(std::span<const float> matrix, int64_t rows,
                                                int64_t cols, int64_t count, int threads);

inline constexpr int64_t kExactSingularSize = 256;
inline constexpr int kSubspaceIterations = 16;

}  // namespace mtrain
