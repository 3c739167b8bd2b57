#include "mtrain/train/singular_vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "mtrain/base/error.h"
#include "mtrain/cpu/thread_pool.h"
#include "mtrain/nn/init.h"

namespace mtrain {
namespace {

constexpr int64_t kExtra = 16;   // vectors of the block besides the wanted ones
constexpr int64_t kSlice = 256;  // columns of the matrix that a task adds up
constexpr int64_t kRows = 32;    // rows that it takes at a time
constexpr int kMostSweeps = 60;  // of Jacobi; ten are usual

using Values = std::vector<double>;

/// `count` vectors of one length, one after the other.
struct Vectors {
  int64_t count, length;
  Values values;
  Vectors(int64_t n, int64_t each)
      : count(n), length(each), values(static_cast<size_t>(n * each), 0) {}
  double* operator[](int64_t i) { return values.data() + i * length; }
  const double* operator[](int64_t i) const { return values.data() + i * length; }
};

double dot(const double* a, const double* b, int64_t count) {
  double sums[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    for (int k = 0; k < 4; ++k) sums[k] += a[i + k] * b[i + k];
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/// to += factor * from
void add_multiple(double* to, const double* from, double factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

/// to += Σ_i factors[i * step] * from[i * length …], one after the other: four at a time, so that
/// `to` is read and written less often.
void add_all(double* to, const double* from, const float* factors, int64_t step, int64_t terms,
             int64_t length) {
  int64_t i = 0;
  for (; i + 4 <= terms; i += 4) {
    const auto f0 = static_cast<double>(factors[i * step]),
               f1 = static_cast<double>(factors[(i + 1) * step]),
               f2 = static_cast<double>(factors[(i + 2) * step]),
               f3 = static_cast<double>(factors[(i + 3) * step]);
    const double *a = from + i * length, *b = a + length, *c = b + length, *d = c + length;
    for (int64_t k = 0; k < length; ++k)
      to[k] = (((to[k] + f0 * a[k]) + f1 * b[k]) + f2 * c[k]) + f3 * d[k];
  }
  for (; i < terms; ++i)
    add_multiple(to, from + i * length, static_cast<double>(factors[i * step]), length);
}

void rotate(double* p, double* q, double c, double s, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double x = p[i], y = q[i];
    p[i] = c * x - s * y;
    q[i] = s * x + c * y;
  }
}

/// Makes the vectors orthogonal by rotations of pairs, and applies these to `others`, too.
void make_orthogonal(Vectors& v, Vectors& others) {
  // What rounding leaves of the cosine of orthogonal vectors, as in LAPACK's dgesvj.
  const double small =
      std::numeric_limits<double>::epsilon() * std::sqrt(static_cast<double>(v.length));
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    bool rotated = false;
    for (int64_t p = 0; p < v.count; ++p)
      for (int64_t q = p + 1; q < v.count; ++q) {
        const double pp = dot(v[p], v[p], v.length), qq = dot(v[q], v[q], v.length),
                     pq = dot(v[p], v[q], v.length);
        if (std::abs(pq) <= small * std::sqrt(pp * qq) || pp == 0 || qq == 0) continue;
        rotated = true;
        const double zeta = (qq - pp) / (2 * pq),
                     t = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta)),
                     c = 1 / std::sqrt(1 + t * t);
        rotate(v[p], v[q], c, c * t, v.length);
        rotate(others[p], others[q], c, c * t, others.length);
      }
    if (!rotated) return;
  }
}

/// Orthonormal vectors of the same space (Gram-Schmidt, twice); a vector within the space of those
/// before it becomes zeros.
void orthonormalise(Vectors& v) {
  for (int64_t i = 0; i < v.count; ++i) {
    const double before = std::sqrt(dot(v[i], v[i], v.length));
    for (int again = 0; again < 2; ++again)
      for (int64_t j = 0; j < i; ++j)
        add_multiple(v[i], v[j], -dot(v[i], v[j], v.length), v.length);
    const double norm = std::sqrt(dot(v[i], v[i], v.length));
    const double factor = norm > 1e-14 * before ? 1 / norm : 0;
    for (int64_t c = 0; c < v.length; ++c) v[i][c] *= factor;
  }
}

/// [length, count] of [count, length].
Values transposed(const Vectors& v) {
  Values out(v.values.size());
  for (int64_t i = 0; i < v.count; ++i)
    for (int64_t c = 0; c < v.length; ++c) out[static_cast<size_t>(c * v.count + i)] = v[i][c];
  return out;
}

Vectors from_transposed(const Values& values, int64_t count, int64_t length) {
  Vectors out(count, length);
  for (int64_t c = 0; c < length; ++c)
    for (int64_t i = 0; i < count; ++i) out[i][c] = values[static_cast<size_t>(c * count + i)];
  return out;
}

class Matrix {
 public:
  Matrix(std::span<const float> values, int64_t rows, int64_t cols, cpu::ThreadPool& pool)
      : values_(values.data()), rows_(rows), cols_(cols), pool_(pool) {}
  /// W v of each vector.
  Vectors times(const Vectors& v) const {
    const Values from = transposed(v);
    Values to(static_cast<size_t>(rows_ * v.count), 0);
    pool_.for_even(rows_, [&](int64_t row, int) {
      add_all(to.data() + row * v.count, from.data(), values_ + row * cols_, 1, cols_, v.count);
    });
    return from_transposed(to, v.count, rows_);
  }
  /// Wᵀ v of each vector.
  Vectors transposed_times(const Vectors& v) const {
    const Values from = transposed(v);
    Values to(static_cast<size_t>(cols_ * v.count), 0);
    pool_.for_uneven((cols_ + kSlice - 1) / kSlice, [&](int64_t slice, int) {
      const int64_t begin = slice * kSlice, end = std::min(begin + kSlice, cols_);
      for (int64_t row = 0; row < rows_; row += kRows)
        for (int64_t c = begin; c < end; ++c)
          add_all(to.data() + c * v.count, from.data() + row * v.count, values_ + row * cols_ + c,
                  cols_, std::min(kRows, rows_ - row), v.count);
    });
    return from_transposed(to, v.count, cols_);
  }

 private:
  const float* values_;
  int64_t rows_, cols_;
  cpu::ThreadPool& pool_;
};

/// The unit vectors.
Vectors identity(int64_t count) {
  Vectors out(count, count);
  for (int64_t i = 0; i < count; ++i) out[i][i] = 1;
  return out;
}

/// The first `count` of these orthogonal vectors by length, as values and unit vectors, with the
/// vectors of the other side.
SingularVectors sorted(const Vectors& scaled, const Vectors& unit, int64_t count, bool swapped) {
  Values norms;
  for (int64_t i = 0; i < scaled.count; ++i)
    norms.push_back(std::sqrt(dot(scaled[i], scaled[i], scaled.length)));
  std::vector<size_t> order(norms.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return norms[a] > norms[b]; });
  SingularVectors out;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<int64_t>(order[static_cast<size_t>(i)]);
    const double norm = norms[static_cast<size_t>(at)];
    out.values.push_back(norm);
    Values& of_scaled = swapped ? out.right : out.left;
    Values& of_unit = swapped ? out.left : out.right;
    for (int64_t c = 0; c < scaled.length; ++c)
      of_scaled.push_back(norm > 0 ? scaled[at][c] / norm : 0);
    for (int64_t c = 0; c < unit.length; ++c) of_unit.push_back(norm > 0 ? unit[at][c] : 0);
  }
  return out;
}

}  // namespace

SingularVectors largest_singular_vectors(std::span<const float> matrix, int64_t rows, int64_t cols,
                                         int64_t count, int threads) {
  MT_CHECK(static_cast<int64_t>(matrix.size()) == rows * cols && count >= 1 &&
               count <= std::min(rows, cols),
           count, " of a matrix [", rows, ", ", cols, "] of ", matrix.size());
  const int64_t small = std::min(rows, cols);
  if (small <= kExactSingularSize) {  // the rows or the columns, whichever are fewer
    const bool by_row = rows <= cols;
    Vectors v(small, std::max(rows, cols));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        v[by_row ? r : c][by_row ? c : r] =
            static_cast<double>(matrix[static_cast<size_t>(r * cols + c)]);
    Vectors rotations = identity(small);
    make_orthogonal(v, rotations);
    // v = rotations · W, so that rotated units are the vectors of the other side.
    return sorted(v, rotations, count, by_row);
  }
  cpu::ThreadPool pool(threads);
  const Matrix w(matrix, rows, cols, pool);
  Vectors v(std::min(small, count + kExtra), cols);
  std::vector<float> start(v.values.size());
  fill(Init::normal(1), 0, "singular_vectors", start, 0);
  std::ranges::copy(start, v.values.begin());
  orthonormalise(v);
  for (int i = 0; i < kSubspaceIterations; ++i) {
    v = w.transposed_times(w.times(v));
    orthonormalise(v);
  }
  Vectors images = w.times(v);
  make_orthogonal(images, v);
  return sorted(images, v, count, false);
}

}  // namespace mtrain
