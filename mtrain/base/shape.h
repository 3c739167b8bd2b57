// Shape: up to eight dimensions, stored inline (no allocation). A value type.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>

#include "mtrain/base/checked.h"
#include "mtrain/base/error.h"

namespace mtrain {

class Shape;
/// Throws Error(config): the shape has more elements than Shape::kMostElements.
[[noreturn]] MT_API void throw_too_many_elements(const Shape& shape);

class Shape {
 public:
  static constexpr int kMaxRank = 8;
  /// With this many elements of any type, the size in bytes still fits in 64 bits.
  static constexpr int64_t kMostElements = int64_t{1} << 59;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims)
      : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) {
    MT_CHECK(dims.size() <= kMaxRank, "rank ", dims.size());
    for (int64_t d : dims) dims_[rank_++] = d;
  }

  int rank() const { return rank_; }
  /// The size of dimension `i`; a negative `i` counts from the end. Error(bug) if out of range.
  int64_t operator[](int i) const { return dims_[index(i)]; }
  int64_t& operator[](int i) { return dims_[index(i)]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  /// Product of the dimensions; 1 for rank 0. Throws Error(config) above kMostElements. Zero
  /// dimensions are ignored for this check, since strides are products of the other dimensions.
  int64_t numel() const {
    int64_t n = 1;
    bool none = false;
    for (int64_t d : *this) {
      none |= d == 0;
      auto next = checked_mul(n, d == 0 ? 1 : d);
      if (!next || *next < 0 || *next > kMostElements) throw_too_many_elements(*this);
      n = *next;
    }
    return none ? 0 : n;
  }
  bool operator==(const Shape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }
  /// Appends a dimension.
  void push_back(int64_t d) {
    MT_CHECK(rank_ < kMaxRank, "rank ", rank_);
    dims_[rank_++] = d;
  }

 private:
  size_t index(int i) const {
    int at = i < 0 ? i + rank_ : i;
    MT_CHECK(at >= 0 && at < rank_, "dimension ", i, " of rank ", rank_);
    return static_cast<size_t>(at);
  }
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int i = 0; i < shape.rank(); ++i) out << (i ? ", " : "") << shape[i];
  return out << ']';
}

}  // namespace mtrain
