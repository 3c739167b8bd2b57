#include "mtrain/dist/copy_keys.h"

#include <cstring>

namespace mtrain {
namespace {

struct CopyKeys {
  HeadLayout layout;
  int64_t copies = 1;

  // Calls f(element of the narrow row, element of the wide row, count).
  template <class F>
  void each_stretch(F&& f) const {
    HeadLayout wide = with_copies(layout, copies);
    int64_t queries = wide.queries_per_group() * layout.head_dim, keys = 2 * layout.head_dim;
    for (int64_t g = 0; g < layout.groups; ++g)
      for (int64_t c = 0; c < copies; ++c) {
        int64_t from = g * layout.group_stride(), to = (g * copies + c) * wide.group_stride();
        f(from + c * queries, to, queries);
        f(from + copies * queries, to + queries, keys);
      }
  }

  Placed placed(const Tensor& x) const { return PlacedResult("copy_keys", x).with(MixOp::pointwise); }
  Tensor forward(Run& run, const Tensor& x) {
    int64_t width = with_copies(layout, copies).width();
    Tensor y = run.empty({x.size(0), width}, x.dtype());
    if (!run.backend().computes()) return y;
    size_t element = size_of(x.dtype());
    for (int64_t row = 0; row < x.size(0); ++row) {
      const char* from = static_cast<const char*>(x.raw()) + static_cast<size_t>(row * x.size(1)) * element;
      char* to = static_cast<char*>(y.raw()) + static_cast<size_t>(row * width) * element;
      each_stretch([&](int64_t narrow, int64_t wide, int64_t count) {
        std::memcpy(to + static_cast<size_t>(wide) * element, from + static_cast<size_t>(narrow) * element,
                    static_cast<size_t>(count) * element);
      });
    }
    return y;
  }

  void backward(Run& run, const Tensor& dy, Grads<1>& g) {
    Tensor wide = run.empty(dy.shape(), DType::f32), sum = run.zeros({dy.size(0), layout.width()}, DType::f32);
    run.copy(wide, dy);
    for (int64_t row = 0; run.backend().computes() && row < dy.size(0); ++row) {
      const float* from = wide.data<float>() + row * dy.size(1);
      float* to = sum.data<float>() + row * layout.width();
      each_stretch([&](int64_t narrow, int64_t at, int64_t count) {
        for (int64_t i = 0; i < count; ++i) to[narrow + i] += from[at + i];
      });
    }
    if (dy.dtype() == DType::f32) return g[0].give(run, sum);
    Tensor dx = run.empty(sum.shape(), dy.dtype());
    run.copy(dx, sum);
    g[0].give(run, dx);
  }
};

}  // namespace

HeadLayout with_copies(const HeadLayout& layout, int64_t copies) {
  MT_CHECK(copies >= 1 && layout.queries_per_group() % copies == 0, copies, " for ", layout.queries_per_group());
  return {layout.heads, layout.groups * copies, layout.head_dim};
}

Tensor copy_keys(const Tensor& qkv, const HeadLayout& layout, int64_t copies) {
  return copies == 1 ? qkv : apply(CopyKeys{.layout = layout, .copies = copies}, qkv);
}

}  // namespace mtrain
