// The test suite for communicators in this folder runs once per kind of communicator. Each kind
// provides a CommFixture.
#pragma once
#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "has.h"
#include "mtrain/comm/communicator.h"

namespace mtrain::contract {

using testing::has;

class CommFixture {
 public:
  virtual ~CommFixture() = default;
  /// The available group sizes.
  virtual std::vector<int> sizes() const = 0;
  /// Runs fn on that many ranks, each with a communicator of all of them. An exception on a rank
  /// fails the test.
  virtual void run(int size, const std::function<void(Communicator&)>& fn) = 0;
  /// The same with a separate job, which fn makes fail, and with the given time limit of calls.
  virtual void run_failing(int size, std::chrono::milliseconds timeout,
                           const std::function<void(Communicator&)>& fn) = 0;
};

/// Defined by the executable.
CommFixture& comm_fixture();

/// The input of rank `rank` at index i: a pure function. Floats of several magnitudes, so that sums
/// depend on their order; integers of all sizes, so that sums wrap around.
template <class T>
T value(int rank, int64_t i, uint64_t salt) {
  uint64_t h = (static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u) ^
               (static_cast<uint64_t>(rank + 1) * 0xBF58476D1CE4E5B9u) ^
               (salt * 0x94D049BB133111EBu);
  h = (h ^ (h >> 29)) * 0xD6E8FEB86659FD93u;
  h ^= h >> 32;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(h);
  } else {
    double scale = static_cast<double>(1u << (h & 7));
    double x = (static_cast<double>(h >> 20) * 0x1p-43 - 1) * scale;
    if constexpr (std::is_same_v<T, double>)
      return x;
    else
      return T(static_cast<float>(x));
  }
}

template <class T>
std::vector<T> values(int rank, int64_t count, uint64_t salt) {
  std::vector<T> v(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) v[static_cast<size_t>(i)] = value<T>(rank, i, salt);
  return v;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
struct Element {
  using type = T;
};

/// Calls fn(Element<T>) for each type that can be reduced.
template <class Fn>
void for_reducible_types(Fn&& fn) {
  fn(Element<float>());
  fn(Element<bf16>());
  fn(Element<f16>());
  fn(Element<double>());
  fn(Element<int32_t>());
  fn(Element<int64_t>());
}

#if defined(__SANITIZE_THREAD__)
inline constexpr int64_t kLargeCount = 100003;
#else
inline constexpr int64_t kLargeCount = 1000003;
#endif
inline const std::vector<int64_t> kCounts = {0, 1, 7, 4099, kLargeCount};

/// The message of the mtrain::Error of class `wanted` that fn throws; "" when it throws none.
template <class Fn>
std::string message_of(ErrorClass wanted, Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    CHECK(e.error_class() == wanted);
    return e.message();
  }
  return "";
}
}  // namespace mtrain::contract
