// Integer arithmetic that detects overflow. Every size or offset that comes from a file uses these
// functions. Stateless; thread-safe.
#pragma once
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace mtrain {

template <std::integral T>
[[nodiscard]] std::optional<T> checked_add(T a, T b) {
  T out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

template <std::integral T>
[[nodiscard]] std::optional<T> checked_mul(T a, T b) {
  T out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

/// Converts `value` if it fits the target type; otherwise returns nothing.
template <std::integral To, std::integral From>
[[nodiscard]] std::optional<To> checked_cast(From value) {
  if (!std::in_range<To>(value)) return std::nullopt;
  return static_cast<To>(value);
}

/// A chain of checked operations: once one of them overflows, the whole chain has no value.
/// `Checked<uint64_t>(n) * 12 + 34` holds a value only if no step overflowed. A value type.
template <std::integral T>
class Checked {
 public:
  Checked(T value)
      : value_(value) {}  // NOLINT(google-explicit-constructor): arithmetic reads naturally
  Checked operator+(Checked other) const {
    return combine(other, [](T a, T b) { return checked_add(a, b); });
  }
  Checked operator*(Checked other) const {
    return combine(other, [](T a, T b) { return checked_mul(a, b); });
  }
  [[nodiscard]] bool valid() const { return valid_; }
  /// REQUIRES: valid()
  [[nodiscard]] T value() const {
    if (!valid_) throw std::bad_optional_access();
    return value_;
  }
  /// True when valid and equal to `other`.
  [[nodiscard]] bool equals(T other) const { return valid_ && value_ == other; }

 private:
  template <class Op>
  Checked combine(Checked other, Op op) const {
    Checked out(0);
    auto result = op(value_, other.value_);
    out.valid_ = valid_ && other.valid_ && result.has_value();
    out.value_ = out.valid_ ? *result : T{0};
    return out;
  }
  T value_;  // not a std::optional: GCC 12 reports a false "uninitialised" warning for one
  bool valid_ = true;
};

}  // namespace mtrain
