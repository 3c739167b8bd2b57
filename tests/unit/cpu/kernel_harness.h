// What the kernel tests share: buffers with guard words on both sides, every instruction-set level
// and dtype, and comparison with references computed in double.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "mtrain/base/dtype.h"
#include "mtrain/base/rng.h"
#include "mtrain/cpu/isa.h"
#include "mtrain/tensor/backend.h"

namespace mtrain::testing {

/// The same bits, or both NaN.
inline bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

template <class T>
T from_double(double v) {
  if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>)
    return static_cast<T>(v);
  else
    return T(static_cast<float>(v));
}
template <class T>
double to_double(T v) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>)
    return static_cast<double>(static_cast<float>(v));
  else
    return static_cast<double>(v);
}

/// The first `count` normal values of the stream of this key, cached, since tests use the same ones
/// many times.
inline const double* normals(std::string_view key, int64_t count) {
  static std::map<std::string, std::vector<double>, std::less<>> drawn;
  auto& values = drawn.try_emplace(std::string(key)).first->second;
  RngStream rng(7, key);
  for (auto i = static_cast<int64_t>(values.size()); i < count; ++i)
    values.push_back(rng.normal(static_cast<uint64_t>(i)));
  return values.data();
}

/// `count` elements between two guards; the destructor checks that the guards are whole.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t count, double fill = 0)
      : count_(count), bytes_(kGuard * 2 + 64 + sizeof(T) * size(), kPattern) {
    size_t misfit = reinterpret_cast<uintptr_t>(bytes_.data()) % 64;
    start_ = kGuard + (64 - misfit) % 64;
    for (int64_t i = 0; i < count; ++i) data()[i] = from_double<T>(fill);
  }
  /// Normal values scaled; the same for the same key.
  static Buffer random(int64_t count, std::string_view key, double scale = 1) {
    Buffer out(count);
    const double* normal = normals(key, count);
    for (int64_t i = 0; i < count; ++i) out.data()[i] = from_double<T>(scale * normal[i]);
    return out;
  }
  Buffer(const Buffer& other) : Buffer(other.count_) {
    std::copy(other.data(), other.data() + count_, data());
  }
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    bool whole = true;
    for (size_t i = 0; i < bytes_.size(); ++i)
      if (i < start_ || i >= start_ + sizeof(T) * size()) whole = whole && bytes_[i] == kPattern;
    CHECK_MESSAGE(whole, "a kernel wrote outside its buffer");
  }

  T* data() { return reinterpret_cast<T*>(bytes_.data() + start_); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + start_); }
  int64_t count() const { return count_; }
  double operator[](int64_t i) const { return to_double(data()[i]); }
  void set(int64_t i, double v) { data()[i] = from_double<T>(v); }
  bool same_bits(const Buffer& other) const {
    return count_ == other.count_ && std::memcmp(data(), other.data(), sizeof(T) * size()) == 0;
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr unsigned char kPattern = 0xA5;
  size_t size() const { return static_cast<size_t>(count_); }
  int64_t count_;
  std::vector<unsigned char> bytes_;
  size_t start_ = 0;
};

/// Half a unit in the last place of T, relative; for float a few units, since sums are in float as
/// well.
template <class T>
constexpr double kRounding = std::is_same_v<T, bf16>  ? 0x1p-8
                             : std::is_same_v<T, f16> ? 0x1p-10
                                                      : 4e-6;

/// Compares with `want(i)`: relative to it within `factor` roundings, plus the same share of
/// `scale`.
template <class T, class Want>
void check_close(const Buffer<T>& got, Want&& want, std::string_view what, double scale = 0.1,
                 double factor = 1) {
  double worst = 0;
  int64_t at = -1;
  for (int64_t i = 0; i < got.count(); ++i) {
    double w = want(i), allowed = factor * kRounding<T> * (std::fabs(w) + scale);
    double ratio = std::fabs(got[i] - w) / allowed;
    if (std::isnan(ratio)) ratio = INFINITY;  // stays the worst
    if (!(ratio <= worst)) worst = ratio, at = i;
  }
  std::string name(what);
  if (at >= 0)
    CHECK_MESSAGE(worst <= 1, name, " [", at, "]: got ", got[at], " want ", want(at), ", ", worst,
                  " x the tolerance");
}

/// One level of the CPU backend with a separate stream.
struct Level {
  std::string_view isa;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Stream> stream;
  const KernelTable& kernels;
  Level(const cpu::Isa& level, int threads)
      : isa(level.name),
        backend(cpu::make_cpu_backend_at(level, threads)),
        stream(backend->stream({})),
        kernels(backend->kernels()) {}
};

/// Calls f(T{}, level) for every level this CPU runs and every floating dtype.
template <class F>
void each_level_and_dtype(F&& f, int threads = 2) {
  for (const cpu::Isa& isa : cpu::usable_isas()) {
    Level level(isa, threads);
    auto run = [&](auto type) {
      using T = decltype(type);
      INFO("level ", std::string(isa.name), ", ", std::string(name(DTypeOf<T>::value)));
      f(type, level);
    };
    run(float{});
    run(bf16{});
    run(f16{});
  }
}

inline const std::vector<int64_t> kOddSizes = {1, 3, 17, 33, 65, 129, 256};

}  // namespace mtrain::testing
