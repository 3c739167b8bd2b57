// The largest singular values and vectors of a matrix.
#include "mtrain/train/singular_vectors.h"

#include <doctest/doctest.h>

#include <cmath>

#include "mtrain/nn/init.h"

namespace mtrain {
namespace {

std::vector<float> random_matrix(int64_t rows, int64_t cols) {
  std::vector<float> out(static_cast<size_t>(rows * cols));
  fill(Init::normal(1), 7, "matrix", out, 0);
  return out;
}

double dot(const std::vector<double>& of, int64_t i, int64_t j, int64_t length) {
  double sum = 0;
  for (int64_t c = 0; c < length; ++c)
    sum += of[static_cast<size_t>(i * length + c)] * of[static_cast<size_t>(j * length + c)];
  return sum;
}

/// W v = σ u and Wᵀ u = σ v for each triple, and both sides are orthonormal.
void check_triples(const std::vector<float>& w, int64_t rows, int64_t cols,
                   const SingularVectors& s, double precision) {
  const auto count = static_cast<int64_t>(s.values.size());
  for (int64_t k = 0; k < count; ++k) {
    CAPTURE(k);
    const double value = s.values[static_cast<size_t>(k)];
    for (int64_t j = 0; j < count; ++j) {
      CHECK(std::fabs(dot(s.left, k, j, rows) - (k == j)) < 1e-12);
      CHECK(std::fabs(dot(s.right, k, j, cols) - (k == j)) < 1e-12);
    }
    if (k > 0) CHECK(value <= s.values[static_cast<size_t>(k - 1)]);
    double worst = 0;
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < cols; ++c)
        sum += static_cast<double>(w[static_cast<size_t>(r * cols + c)]) *
               s.right[static_cast<size_t>(k * cols + c)];
      worst = std::max(worst, std::fabs(sum - value * s.left[static_cast<size_t>(k * rows + r)]));
    }
    for (int64_t c = 0; c < cols; ++c) {
      double sum = 0;
      for (int64_t r = 0; r < rows; ++r)
        sum += static_cast<double>(w[static_cast<size_t>(r * cols + c)]) *
               s.left[static_cast<size_t>(k * rows + r)];
      worst = std::max(worst, std::fabs(sum - value * s.right[static_cast<size_t>(k * cols + c)]));
    }
    CHECK(worst < precision * s.values[0]);
  }
}

TEST_CASE("small matrices: singular values and vectors to double's precision") {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{12, 40}, {40, 12}, {9, 9}, {1, 5}}) {
    CAPTURE(rows);
    const std::vector<float> w = random_matrix(rows, cols);
    const int64_t count = std::min<int64_t>(std::min(rows, cols), 9);
    check_triples(w, rows, cols, largest_singular_vectors(w, rows, cols, count, 1), 1e-13);
  }
  // The singular values of a diagonal matrix are its elements.
  const std::vector<float> diagonal = {0, 3, 0, 0, 0, -5, 2, 0, 0};
  const SingularVectors s = largest_singular_vectors(diagonal, 3, 3, 3, 1);
  CHECK(s.values == std::vector<double>{5, 3, 2});
}

TEST_CASE("a matrix of lower rank has zeros after its singular values") {
  std::vector<float> w(6 * 8);
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = static_cast<float>((i / 8 + 1) * (i % 8 + 1));  // rank 1
  const SingularVectors s = largest_singular_vectors(w, 6, 8, 2, 1);
  CHECK(s.values[0] > 100);
  CHECK(s.values[1] < 1e-12);
  const SingularVectors none = largest_singular_vectors(std::vector<float>(12), 3, 4, 2, 1);
  CHECK(none.values == std::vector<double>{0, 0});
  CHECK(none.left == std::vector<double>(6, 0));
}

/// A matrix whose singular values fall by `ratio`, of sums of products of random vectors.
std::vector<float> falling_matrix(int64_t rows, int64_t cols, double ratio, int64_t terms) {
  std::vector<double> sum(static_cast<size_t>(rows * cols));
  double factor = 100;
  for (int64_t k = 0; k < terms; ++k, factor *= ratio) {
    std::vector<float> u(static_cast<size_t>(rows)), v(static_cast<size_t>(cols));
    fill(Init::normal(1), 1, "left", u, static_cast<uint64_t>(k * rows));
    fill(Init::normal(1), 1, "right", v, static_cast<uint64_t>(k * cols));
    for (size_t r = 0; r < u.size(); ++r)
      for (size_t c = 0; c < v.size(); ++c)
        sum[r * v.size() + c] += factor * static_cast<double>(u[r]) * static_cast<double>(v[c]);
  }
  return {sum.begin(), sum.end()};
}

TEST_CASE("large matrices: the iterations find the largest values, with any number of threads") {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{320, 500}, {500, 320}}) {
    CAPTURE(rows);
    const std::vector<float> w = falling_matrix(rows, cols, 0.8, 40);
    const SingularVectors one = largest_singular_vectors(w, rows, cols, 8, 1),
                          three = largest_singular_vectors(w, rows, cols, 8, 3);
    check_triples(w, rows, cols, one, 1e-7);
    CHECK(one.values == three.values);
    CHECK(one.left == three.left);
    CHECK(one.right == three.right);
  }
  // Even where the values hardly fall, most of the largest part is found.
  const std::vector<float> noise = random_matrix(400, 300);
  const SingularVectors some = largest_singular_vectors(noise, 400, 300, 4, 2);
  CHECK(some.values[0] > 0.99 * (std::sqrt(400.0) + std::sqrt(300.0)) * 0.97);
}

}  // namespace
}  // namespace mtrain
