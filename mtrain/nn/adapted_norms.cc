#include "mtrain/nn/adapted_norms.h"

#include <numeric>
#include <vector>

#include "mtrain/dist/redistribute.h"

namespace mtrain {
namespace {

/// Sets a member to nothing during its life.
template <class T>
class Without {
 public:
  explicit Without(std::optional<T>& value) : value_(value), before_(std::move(value)) {
    value_.reset();
  }
  ~Without() { value_ = std::move(before_); }
  Without(const Without&) = delete;
  Without& operator=(const Without&) = delete;

 private:
  std::optional<T>& value_;
  std::optional<T> before_;
};

constexpr float kTiny = 1e-30f;  // a row of zeros has the norm 0, and no product

/// 1 / sqrt(x).
Tensor reciprocal_root(const Tensor& x) {
  ExecutionContext& ctx = x.context();
  require_kernel(ctx, ctx.kernels().unary, "unary");
  Tensor y = ctx.empty(x.shape(), DType::f32);
  ctx.kernels().unary(ctx.stream(), {.x = x.raw(),
                                     .y = y.raw(),
                                     .count = x.numel(),
                                     .kind = UnaryKind::rsqrt,
                                     .shift = kTiny,
                                     .dtype = DType::f32});
  return y;
}

/// out = alpha · a bᵀ (+ out), float.
void product(const Tensor& a, const Tensor& b, float alpha, bool accumulate, const Tensor& out) {
  ExecutionContext& ctx = a.context();
  ctx.kernels().gemm(ctx.stream(), {.a = a.raw(),
                                    .b = b.raw(),
                                    .c = out.raw(),
                                    .transpose_b = true,
                                    .m = a.size(0),
                                    .n = b.size(0),
                                    .k = a.size(1),
                                    .lda = a.size(1),
                                    .ldb = b.size(1),
                                    .ldc = b.size(0),
                                    .alpha = alpha,
                                    .beta = accumulate ? 1.0f : 0.0f,
                                    .dtype = a.dtype(),
                                    .c_dtype = DType::f32});
}

}  // namespace

AdaptedNorms::AdaptedNorms(ExecutionContext& ctx, const Parameter& weight, const Tensor& adapted)
    : weight_(&weight), adapted_(adapted) {
  std::vector<int32_t> numbers(static_cast<size_t>(weight.local[0]));
  std::iota(numbers.begin(), numbers.end(), 0);
  numbers_ = ctx.from_host<int32_t>(numbers, {weight.local[0]});
  if (!weight.trained) frozen_ = std::make_shared<Norms>();
  if (!adapted.defined()) return;
  others_ = ctx.empty(adapted.shape(), DType::f32);
  ctx.fill(others_, 1);
  ctx.kernels().cast(ctx.stream(), {.src = adapted.raw(),
                                    .dst = others_.raw(),
                                    .count = adapted.numel(),
                                    .scale = -1,
                                    .accumulate = true,
                                    .src_dtype = DType::f32,
                                    .dst_dtype = DType::f32});
}

Tensor AdaptedNorms::sum_over_columns(const Tensor& x) const {
  return weight_->tensor_axis && weight_->tensor_dim == 1
             ? redistribute(x, *weight_->tensor_axis, Placement::P(), Placement::I())
             : x;
}

Tensor AdaptedNorms::values(DType dtype) const {
  const Tensor stored = weight_->use().detach();
  return weight_->coded ? weight_->coded->decode(stored.context(), dtype) : stored;
}

AdaptedNorms::Norms AdaptedNorms::of_weight(const Tensor& w) const {
  if (frozen_ && frozen_->norms.defined()) return *frozen_;
  ExecutionContext& ctx = w.context();
  // Kept beyond this pass: no part of what offloading moves.
  const Without moved(ctx.created_storages);
  MemoryScope use(ctx.memory(), frozen_ ? MemoryUse::parameters : ctx.memory().use());
  Norms made;
  made.squares = sum_over_columns(dots_of_rows(w, w, numbers_));
  made.norms = mul(made.squares, reciprocal_root(made.squares));
  if (frozen_) *frozen_ = made;
  return made;
}

ColumnGain AdaptedNorms::gain(const Tensor& a, const Tensor& b) const {
  ExecutionContext& ctx = a.context();
  GradMode off(ctx, false);
  const Without placements(ctx.tracked_axis);
  const Tensor w = values(a.dtype());
  const Norms of_w = of_weight(w);
  const int64_t rank = a.size(0);
  const Tensor inner = ctx.empty({rank, rank}, DType::f32),
               outer = ctx.empty({b.size(0), rank}, DType::f32);
  product(a, a, 1, false, inner);  // symmetric
  product(w, a, 2, false, outer);
  product(b, inner, 1, true, outer);
  const Tensor change = sum_over_columns(dots_of_rows(outer, b, numbers_)),
               reciprocals = reciprocal_root(add(of_w.squares, change));
  ColumnGain out;
  out.factor = adapted_.defined() ? mul(reciprocals, adapted_) : reciprocals;
  out.offset = mul(out.factor, of_w.norms);
  if (others_.defined()) out.offset = add(out.offset, others_);
  return out;
}

}  // namespace mtrain
