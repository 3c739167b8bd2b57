// bench_gemm [threads [tokens out in]]: matrix products at the shapes of training, in the three
// directions of a linear layer: forward y = x wᵀ (NT), the gradient of x (NN), and the gradient of
// w added to a float matrix (TN). Prints the median GFLOP/s of each floating type and the ratio to
// fp32, measured alternately. With three sizes: only that layer. MTRAIN_ISA sets the
// instruction-set level.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench.h"
#include "mtrain/cpu/isa.h"

namespace mtrain::bench {
namespace {

struct Layer {
  const char* name;
  int64_t tokens, out, in;
};

constexpr Layer kLayers[] = {
    {"1024 cubed", 1024, 1024, 1024},    {"quickstart gate", 4096, 704, 256},
    {"quickstart down", 4096, 256, 704}, {"tiny up", 4096, 1536, 384},
    {"tiny down", 4096, 384, 1536},      {"small qkv", 2048, 2304, 768},
    {"small out", 2048, 768, 768},       {"small up", 2048, 3072, 768},
    {"small down", 2048, 768, 3072},     {"small head", 2048, 50304, 768},
    {"few rows", 64, 3072, 768},
};

struct Direction {
  const char* name;
  bool transpose_a, transpose_b;
};
constexpr Direction kDirections[] = {
    {"NT", false, true}, {"NN", false, false}, {"TN", true, false}};

class Bench {
 public:
  explicit Bench(int threads)
      : backend_(cpu::make_cpu_backend_at(cpu::chosen_isa(), threads)),
        stream_(backend_->stream({})) {}

  void run(const Layer& layer, const Direction& direction, DType dtype) {
    int64_t m = layer.tokens, n = layer.out, k = layer.in;
    if (direction.transpose_a)
      m = layer.out, n = layer.in, k = layer.tokens;
    else if (!direction.transpose_b)
      n = layer.in, k = layer.out;
    GemmArgs g;
    g.dtype = dtype, g.c_dtype = direction.transpose_a ? DType::f32 : dtype;
    g.beta = direction.transpose_a ? 1.0f : 0.0f;
    Memory a = values(m * k, dtype), b = values(n * k, dtype), c = values(m * n, g.c_dtype);
    g.a = a.get(), g.b = b.get(), g.c = c.get();
    g.transpose_a = direction.transpose_a, g.transpose_b = direction.transpose_b;
    g.m = m, g.n = n, g.k = k, g.lda = g.transpose_a ? m : k, g.ldb = g.transpose_b ? k : n,
    g.ldc = n;
    constexpr int kRounds = 5;
    constexpr double kBudget = 0.06;  // seconds for each in a round
    GemmArgs floats = g;
    Memory wide_a = values(m * k, DType::f32), wide_b = values(n * k, DType::f32),
           wide_c = values(m * n, DType::f32);
    floats.a = wide_a.get(), floats.b = wide_b.get(), floats.c = wide_c.get(),
    floats.dtype = floats.c_dtype = DType::f32;
    std::vector<double> times, float_times;
    for (int round = 0; round < kRounds; ++round) {
      times.push_back(median_seconds([&] { backend_->kernels().gemm(*stream_, g); }, kBudget));
      float_times.push_back(
          median_seconds([&] { backend_->kernels().gemm(*stream_, floats); }, kBudget));
    }
    double flop = 2e-9 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    std::printf("| %s | %lld x %lld x %lld | %s | %s | %.1f | %.2f |\n", layer.name,
                static_cast<long long>(m), static_cast<long long>(n), static_cast<long long>(k),
                direction.name, mtrain::name(dtype), flop / middle(times),
                middle(float_times) / middle(times));
    std::fflush(stdout);
  }

 private:
  using Memory = std::shared_ptr<void>;
  static double middle(std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }
  /// Small random values.
  Memory values(int64_t count, DType dtype) {
    size_t bytes = static_cast<size_t>(count) * size_of(dtype);
    Memory memory(backend_->allocate({}, bytes),
                  [this, bytes](void* p) { backend_->deallocate({}, p, bytes); });
    std::vector<float> source(static_cast<size_t>(count));
    uint32_t state = 1;
    for (float& value : source) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
    }
    backend_->kernels().cast(*stream_,
                             {source.data(), memory.get(), count, 1, false, DType::f32, dtype});
    return memory;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace
}  // namespace mtrain::bench

int main(int argc, char** argv) {
  using namespace mtrain::bench;
  Bench bench(argc > 1 ? std::atoi(argv[1]) : 0);
  std::printf(
      "GFLOP/s\n\n| layer | m x n x k | | type | GFLOP/s | of fp32 |\n|---|---|---|---|---|---|\n");
  std::vector<Layer> layers(std::begin(kLayers), std::end(kLayers));
  if (argc > 4) layers = {{"given", std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])}};
  for (auto dtype : {mtrain::DType::f32, mtrain::DType::bf16, mtrain::DType::f16})
    for (const auto& layer : layers)
      for (const auto& direction : kDirections) bench.run(layer, direction, dtype);
  return 0;
}
