// bench_gemm [threads]: matrix products at the shapes of training, in the three directions of a linear layer:
// forward y = x wᵀ, the gradient of x, and the gradient of w added to a float matrix. Prints the median
// GFLOP/s.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench.h"
#include "mtrain/cpu/cpu_backend.h"

namespace mtrain::bench {
namespace {

struct Layer {
  const char* name;
  int64_t tokens, out, in;
};

constexpr Layer kLayers[] = {
    {"1024 cubed", 1024, 1024, 1024},    {"quickstart qkv", 4096, 512, 256},
    {"quickstart gate", 4096, 704, 256}, {"quickstart down", 4096, 256, 704},
    {"quickstart head", 4096, 320, 256}, {"tiny up", 4096, 1536, 384},
    {"tiny down", 4096, 384, 1536},      {"small qkv", 2048, 2304, 768},
    {"small up", 2048, 3072, 768},       {"small down", 2048, 768, 3072},
    {"small head", 512, 50304, 768},
};

class Bench {
 public:
  explicit Bench(int threads) : backend_(make_cpu_backend(threads)), stream_(backend_->stream({})) {}

  void run(const Layer& layer, DType dtype) {
    auto [name, t, out, in] = layer;
    double forward = speed({t, out, in}, false, true, dtype, false);
    double dgrad = speed({t, in, out}, false, false, dtype, false);
    double wgrad = speed({out, in, t}, true, false, dtype, true);
    std::printf("%-18s %5lld x %5lld x %5lld  %-5s %8.1f %8.1f %8.1f\n", name, static_cast<long long>(t),
                static_cast<long long>(out), static_cast<long long>(in), mtrain::name(dtype), forward, dgrad,
                wgrad);
  }

 private:
  struct Shape {
    int64_t m, n, k;
  };
  using Memory = std::shared_ptr<void>;
  Memory ones(int64_t count, DType dtype) {
    size_t bytes = static_cast<size_t>(count) * size_of(dtype);
    Memory memory(backend_->allocate({}, bytes),
                  [this, bytes](void* p) { backend_->deallocate({}, p, bytes); });
    std::vector<float> source(static_cast<size_t>(count), 1.0f);
    backend_->kernels().cast(*stream_, {source.data(), memory.get(), count, 1, false, DType::f32, dtype});
    return memory;
  }
  double speed(Shape s, bool transpose_a, bool transpose_b, DType dtype, bool gradient) {
    DType c_dtype = gradient ? DType::f32 : dtype;
    Memory a = ones(s.m * s.k, dtype), b = ones(s.n * s.k, dtype), c = ones(s.m * s.n, c_dtype);
    GemmArgs g;
    g.a = a.get(), g.b = b.get(), g.c = c.get(), g.transpose_a = transpose_a, g.transpose_b = transpose_b;
    g.m = s.m, g.n = s.n, g.k = s.k, g.lda = transpose_a ? s.m : s.k, g.ldb = transpose_b ? s.k : s.n,
    g.ldc = s.n;
    g.beta = gradient ? 1.0f : 0.0f, g.dtype = dtype, g.c_dtype = c_dtype;
    double seconds = median_seconds([&] { backend_->kernels().gemm(*stream_, g); });
    return 2e-9 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) / seconds;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace
}  // namespace mtrain::bench

int main(int argc, char** argv) {
  mtrain::bench::Bench bench(argc > 1 ? std::atoi(argv[1]) : 0);
  std::printf("%-18s %-21s  %-5s %8s %8s %8s  GFLOP/s\n", "layer", "tokens x out x in", "type", "forward",
              "dgrad", "wgrad");
  for (auto dtype : {mtrain::DType::f32, mtrain::DType::bf16})
    for (const auto& layer : mtrain::bench::kLayers) bench.run(layer, dtype);
  return 0;
}
