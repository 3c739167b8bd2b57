#include "mtrain/train/peak_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "mtrain/base/elapsed.h"
#include "mtrain/base/rng.h"
#include "mtrain/recipe/cluster.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {
namespace {

/// Random values, since some devices compute faster on zeros. A block is uploaded and then repeated
/// on the device.
Tensor random_matrix(ExecutionContext& ctx, int64_t size, DType dtype) {
  constexpr int64_t kPiece = 1 << 16;
  std::vector<float> values(kPiece);
  RngStream rng(1, "roof");
  for (size_t i = 0; i < values.size(); ++i) values[i] = rng.uniform(i) - 0.5f;
  Tensor piece = ctx.from_host<float>(values, {kPiece}), out = ctx.empty({size * size}, dtype);
  for (int64_t i = 0; i < size * size; i += kPiece) ctx.copy(out.slice(0, i, i + kPiece), piece);
  return out;
}

double product_flops(int64_t size) {
  return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
}

/// The best of several measurements of `each` products of square matrices.
double best_rate(Backend& backend, Device device, DType dtype, int64_t size, int each) {
  constexpr int kRounds = 4;
  ExecutionContext ctx(backend, device);  // frees its memory at the end
  Tensor a = random_matrix(ctx, size, dtype), b = random_matrix(ctx, size, dtype),
         c = ctx.empty({size, size}, dtype);
  double best = 0;
  for (int i = 0; i <= kRounds; ++i) {  // the first is not counted
    ctx.stream().synchronize();
    auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < each; ++k)
      ctx.kernels().gemm(ctx.stream(), {.a = a.raw(),
                                        .b = b.raw(),
                                        .c = c.raw(),
                                        .transpose_b = true,
                                        .m = size,
                                        .n = size,
                                        .k = size,
                                        .lda = size,
                                        .ldb = size,
                                        .ldc = size,
                                        .dtype = dtype,
                                        .c_dtype = dtype});
    ctx.stream().synchronize();
    const double seconds = seconds_since(start);
    if (i > 0) best = std::max(best, product_flops(size) * each / seconds);
  }
  return best;
}

}  // namespace

double measured_peak_flops(Backend& backend, Device device, DType dtype) {
  if (backend.name() == "cpu") {
    // The size grows until a product takes long enough to be measured. A large product at once
    // would take longer than a short run on few or slow cores.
    constexpr int64_t kSmallest = 256, kLargest = 4096;
    constexpr double kEnough = 2e-3;  // seconds
    for (int64_t size = kSmallest;; size *= 2) {
      const double flops = product_flops(size), rate = best_rate(backend, device, dtype, size, 1);
      if (flops / rate >= kEnough || size == kLargest) return rate;
    }
  }
  constexpr size_t kRoom = size_t{4} << 30;
  constexpr int kEach = 4;  // with several launches in a queue, their launch overhead is hidden
  return best_rate(backend, device, dtype, backend.free_memory(device) > kRoom ? 8192 : 2048,
                   kEach);
}

PeakRate peak_rate(const Settings& s, const std::string& device, Backend& backend, Device where) {
  auto rate = [](double tflops, const std::string& who) {
    return PeakRate{1e12 * tflops, cat(tflops, " TFLOP/s, ", who)};
  };
  if (s.profiling.peak_tflops > 0)
    return rate(s.profiling.peak_tflops, "from profiling.peak_tflops");
  const MixedPrecisionSection& p = s.mixed_precision;
  const GpuType* type = p.dtype == "fp32" ? nullptr : gpu_type_of(device);
  bool fp8 = type && p.fp8 != "none" && type->fp8_tflops > 0;
  if (type)
    return rate(fp8 ? type->fp8_tflops : type->tflops,
                cat("data sheet of the ", type->name, " (", fp8 ? "fp8" : p.dtype, ")"));
  double measured = measured_peak_flops(backend, where, p.compute_type());
  return {measured, cat(fmt::format("{:.0f} GFLOP/s", measured / 1e9), ", measured")};
}

double PeakRate::share(double rate) const { return flops > 0 ? rate / flops : 0; }

}  // namespace mtrain
