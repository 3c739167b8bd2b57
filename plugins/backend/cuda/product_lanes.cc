#include "product_lanes.h"

#include <algorithm>

namespace mtrain::cuda {

namespace {

bool conflict(const ProductLanes::Use& a, const ProductLanes::Use& b) {
  auto reads = [](const ProductLanes::Use& who, const ProductLanes::Range& what) {
    return std::any_of(who.reads.begin(), who.reads.end(),
                       [&](const auto& r) { return r.touches(what); });
  };
  return a.write.touches(b.write) || reads(a, b.write) || reads(b, a.write);
}

int64_t bytes_of(DType dtype) { return dtype == DType::f32 ? 4 : 2; }

ProductLanes::Range matrix(const void* data, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
                           int64_t stride, DType dtype) {
  auto begin = reinterpret_cast<uintptr_t>(data);
  int64_t elements = (batch - 1) * stride + (rows - 1) * ld + cols;
  return {begin, begin + static_cast<uintptr_t>(std::max<int64_t>(elements, 0) * bytes_of(dtype))};
}

}  // namespace

int ProductLanes::place(const Use& use) {
  int follows = kMain, lanes_in_the_way = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    for (const Use& other : lanes_[static_cast<size_t>(lane)])
      if (conflict(use, other)) {
        follows = lane;
        ++lanes_in_the_way;
        break;
      }
  if (lanes_in_the_way > 1) return kMain;
  int lane = lanes_in_the_way == 1 ? follows : next_++ % kLanes;
  lanes_[static_cast<size_t>(lane)].push_back(use);
  return lane;
}

void ProductLanes::joined() {
  for (auto& lane : lanes_) lane.clear();
  next_ = 0;
}

bool ProductLanes::busy() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return !lane.empty(); });
}

bool is_small_product(const GemmArgs& g, int processors) {
  constexpr int64_t kTile = 128;
  return (g.m + kTile - 1) / kTile * ((g.n + kTile - 1) / kTile) * g.batch <= processors / 2;
}

ProductLanes::Use memory_of(const GemmArgs& g) {
  ProductLanes::Use use;
  use.reads.push_back(matrix(g.a, g.transpose_a ? g.k : g.m, g.transpose_a ? g.m : g.k, g.lda,
                             g.batch, g.stride_a, g.dtype));
  use.reads.push_back(matrix(g.b, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n, g.ldb,
                             g.batch, g.stride_b, g.dtype));
  if (g.bias) use.reads.push_back(matrix(g.bias, 1, g.n, g.n, 1, 0, g.bias_dtype));
  if (g.addend) use.reads.push_back(matrix(g.addend, g.m, g.n, g.ldc, 1, 0, g.c_dtype));
  use.write = matrix(g.c, g.m, g.n, g.ldc, g.batch, g.stride_c, g.c_dtype);
  return use;
}

}  // namespace mtrain::cuda
