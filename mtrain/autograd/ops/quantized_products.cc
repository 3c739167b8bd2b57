#include "mtrain/autograd/quantized_products.h"

#include <algorithm>
#include <cmath>

#include "mtrain/autograd/ops/products.h"

namespace mtrain {
namespace {

constexpr int64_t kBlock = 128, kMxGroup = 32, kFp4Group = 16, kHadamard = 16;
/// Signs of the rows that the Hadamard transform combines; any fixed pattern without structure
/// works.
constexpr uint32_t kHadamardSigns = 0x9E37u;

bool by_tensor(QuantRecipe recipe) {
  return recipe == QuantRecipe::tensorwise || recipe == QuantRecipe::delayed;
}

void run_amax(ExecutionContext& ctx, const Tensor& x, const Tensor& out, bool accumulate) {
  require_kernel(ctx, ctx.kernels().amax, "amax");
  ctx.kernels().amax(ctx.stream(), {.x = x.raw(),
                                    .count = x.numel(),
                                    .amax = out.data<float>(),
                                    .accumulate = accumulate,
                                    .dtype = x.dtype()});
}

const float* scale_of(const Tensor& factor) {
  return factor.defined() ? factor.data<float>() : nullptr;
}

}  // namespace

Tensor DelayedScales::from_history(ExecutionContext& ctx, QuantOperand operand) {
  auto n = history_->size() / kQuantOperands, at = static_cast<size_t>(operand);
  if (std::exchange(stale_, false)) {
    std::vector<float> largest(kQuantOperands);
    for (size_t o = 0; o < kQuantOperands; ++o) {
      const float* first = history_->data() + o * n;
      largest[o] = algorithm_ == Algorithm::max ? *std::max_element(first, first + n) : *first;
      is_known_[o] = largest[o] > 0;
    }
    if (!used_.defined()) used_ = ctx.empty({static_cast<int64_t>(kQuantOperands)}, DType::f32);
    ctx.upload(used_, largest.data());
  }
  auto i = static_cast<int64_t>(at);
  return is_known_[at] ? used_.slice(0, i, i + 1) : Tensor();
}

void DelayedScales::record(ExecutionContext& ctx, QuantOperand operand, const Tensor& amax) {
  if (!recorded_.defined())
    recorded_ = ctx.zeros({static_cast<int64_t>(kQuantOperands)}, DType::f32);
  auto i = static_cast<int64_t>(operand);
  run_amax(ctx, amax, recorded_.slice(0, i, i + 1), true);
}

std::array<float, kQuantOperands> DelayedScales::recorded(ExecutionContext& ctx) const {
  std::array<float, kQuantOperands> out{};
  if (recorded_.defined()) ctx.download(recorded_, out.data());
  return out;
}

void DelayedScales::end_step(std::span<const float> recorded, bool keep) {
  if (recorded_.defined()) recorded_.context().fill_zero(recorded_);
  if (!keep) return;
  auto n = static_cast<std::ptrdiff_t>(history_->size() / kQuantOperands);
  for (size_t o = 0; o < kQuantOperands; ++o) {
    auto first = history_->begin() + static_cast<std::ptrdiff_t>(o) * n;
    std::rotate(first, first + n - 1, first + n);
    *first = std::isfinite(recorded[o]) ? recorded[o] : 0;
  }
  stale_ = true;
}

Tensor QuantizedProducts::measure(ExecutionContext& ctx, const Tensor& x,
                                  QuantOperand operand) const {
  if (!by_tensor(rule_.recipe) && rule_.recipe != QuantRecipe::nvfp4) return {};
  Tensor amax = ctx.empty({1}, DType::f32);
  run_amax(ctx, x, amax, false);
  if (delayed) {
    if (ctx.training) delayed->record(ctx, operand, amax);
    if (Tensor known = delayed->from_history(ctx, operand); known.defined()) return known;
  }
  if (all_reduce_amax) all_reduce_amax(amax, operand);
  return amax;
}

QuantizedProducts::Operand QuantizedProducts::prepare(ExecutionContext& ctx, const Tensor& x,
                                                      QuantOperand operand, int64_t matrix) const {
  if (x.dtype() != DType::u8) return {x, measure(ctx, x, operand)};
  bool made = operand == QuantOperand::weight && coded.factors.defined() && by_tensor(rule_.recipe);
  MT_CHECK(made, "codes that were not computed");
  if (delayed && ctx.training)
    delayed->record(ctx, operand, coded.amax.slice(0, matrix, matrix + 1));
  return {x, {}, coded.factors.slice(0, matrix, matrix + 1)};
}

void QuantizedProducts::encode(ExecutionContext& ctx, const Tensor& values, const Tensor& amax,
                               const Tensor& codes, const Tensor& factor) const {
  require_kernel(ctx, ctx.kernels().quantize, "quantize");
  MT_CHECK(by_tensor(rule_.recipe), "codes of a recipe whose scales are not of whole tensors");
  auto piece = [&](int64_t begin, int64_t rows, int64_t cols) {
    if (rows * cols == 0) return;
    int64_t end = begin + rows * cols;
    ctx.kernels().quantize(
        ctx.stream(),
        {.x = values.slice(0, begin, end).raw(),
         .values = nullptr,
         .codes = codes.defined() ? codes.slice(0, begin, end).data<uint8_t>() : nullptr,
         .scales = nullptr,
         .amax = amax.data<float>(),
         .factor = factor.data<float>(),
         .rows = rows,
         .cols = cols,
         .format = rule_.forward,
         .scale = QuantScale::tensor,
         .headroom = delayed ? rule_.headroom : 1.0f,
         .dtype = values.dtype()});
  };
  constexpr int64_t kRow = 128;  // elements of any number, as a matrix with whole square tiles
  int64_t rows = values.numel() / kRow;
  piece(0, rows, kRow);
  piece(rows * kRow, 1, values.numel() - rows * kRow);
}

QuantScale QuantizedProducts::scale() const {
  switch (rule_.recipe) {
    case QuantRecipe::blockwise:
      return QuantScale::power_of_two;
    case QuantRecipe::mxfp8:
      return QuantScale::e8m0;
    case QuantRecipe::nvfp4:
      return QuantScale::nvfp4;
    default:
      return QuantScale::tensor;
  }
}

QuantizedProducts::Codes QuantizedProducts::quantize(ExecutionContext& ctx, const Operand& operand,
                                                     QuantOperand kind, Along along,
                                                     int64_t first_row) const {
  require_kernel(ctx, ctx.kernels().quantize, "quantize");
  const Tensor& x = operand.x;
  bool gradient = kind == QuantOperand::gradient, weight = kind == QuantOperand::weight;
  int64_t group = rule_.recipe == QuantRecipe::blockwise ? kBlock
                  : rule_.recipe == QuantRecipe::mxfp8   ? kMxGroup
                                                         : kFp4Group;
  bool square =
      weight &&
      rule_.recipe !=
          QuantRecipe::mxfp8;  // square tiles give the same codes for either contraction dimension
  QuantizeArgs args{.x = x.raw(),
                    .values = nullptr,
                    .codes = nullptr,
                    .scales = nullptr,
                    .amax = nullptr,
                    .factor = nullptr,
                    .rows = x.size(0),
                    .cols = x.size(1),
                    .tile_rows = square || along == Along::rows ? group : 1,
                    .tile_cols = square || along == Along::cols ? group : 1,
                    .format = gradient ? rule_.backward : rule_.forward,
                    .scale = scale(),
                    .dtype = x.dtype(),
                    .contract_rows = along == Along::rows};
  Codes out;
  out.factor = operand.factor;
  if (ctx.kernels().multiplies(args.scale)) {
    out.layout = layout_of(args);
    if (x.dtype() == DType::u8 && along == Along::cols && out.layout.line_bytes() == x.size(1)) {
      out.packed = x;  // the codes have the layout of the hardware already
      return out;
    }
    out.packed = ctx.empty({out.layout.code_bytes()}, DType::u8);
    args.packed = out.packed.data<uint8_t>();
    if (int64_t bytes = out.layout.scale_bytes(); bytes > 0) {
      out.scales = ctx.empty({bytes}, DType::u8);
      args.packed_scales = out.scales.raw();
    }
  } else {
    out.values = ctx.empty(x.shape(), DType::bf16);
    args.values = out.values.data<bf16>();
  }
  if (operand.amax.defined()) {
    out.factor = ctx.empty({1}, DType::f32);
    args.amax = operand.amax.data<float>();
    args.factor = out.factor.data<float>();
    args.headroom = delayed ? rule_.headroom : 1.0f;
  }
  if (rule_.recipe == QuantRecipe::nvfp4 && gradient && rule_.stochastic) {
    args.stochastic = true;
    args.seed = ctx.seed(), args.step = ctx.step;
    args.name_key = name_key_ + (along == Along::rows ? 1 : 0);
    args.first_row = first_row, args.first_col = first_output;
    args.all_cols = outputs > 0 ? outputs : x.size(1);
  }
  ctx.kernels().quantize(ctx.stream(), args);
  return out;
}

namespace {

/// C[M,N] (+)= A Bᵀ + bias + addend on the low-precision unit, for two operands whose lines are the
/// rows and the columns of C.
template <class Codes>
void multiply_codes(ExecutionContext& ctx, const Codes& a, const Codes& b, const Tensor& c,
                    bool accumulate, const Tensor& bias, const Tensor& addend) {
  MT_CHECK_EQ(a.layout.k, b.layout.k);
  auto bytes = [](const Tensor& t) -> const void* { return t.defined() ? t.raw() : nullptr; };
  ctx.kernels().quantized_gemm(
      ctx.stream(), {.product = {.a = a.packed.raw(),
                                 .b = b.packed.raw(),
                                 .c = c.raw(),
                                 .bias = bytes(bias),
                                 .addend = bytes(addend),
                                 .m = a.layout.lines,
                                 .n = b.layout.lines,
                                 .k = a.layout.k,
                                 .ldc = b.layout.lines,
                                 .beta = accumulate ? 1.0f : 0.0f,
                                 .c_dtype = c.dtype(),
                                 .bias_dtype = bias.defined() ? bias.dtype() : DType::f32,
                                 .scale_a = scale_of(a.factor),
                                 .scale_b = scale_of(b.factor)},
                     .a = a.layout,
                     .b = b.layout,
                     .a_scales = bytes(a.scales),
                     .b_scales = bytes(b.scales)});
}

}  // namespace

QuantizedProducts::Operand QuantizedProducts::rotate(ExecutionContext& ctx, const Tensor& x,
                                                     QuantOperand kind) const {
  require_kernel(ctx, ctx.kernels().hadamard, "hadamard");
  Tensor y = ctx.empty({(x.size(0) + kHadamard - 1) / kHadamard * kHadamard, x.size(1)}, x.dtype());
  ctx.kernels().hadamard(ctx.stream(), {.x = x.raw(),
                                        .y = y.raw(),
                                        .rows = x.size(0),
                                        .cols = x.size(1),
                                        .signs = kHadamardSigns,
                                        .dtype = x.dtype()});
  return prepare(ctx, y, kind);
}

void QuantizedProducts::forward(ExecutionContext& ctx, const Operand& x, const Operand& w,
                                const Tensor& b, const Tensor& addend, const Tensor& y) const {
  Codes left = quantize(ctx, x, QuantOperand::input, Along::cols, 0),
        right = quantize(ctx, w, QuantOperand::weight, Along::cols, 0);
  if (left.packed.defined()) return multiply_codes(ctx, left, right, y, false, b, addend);
  linear_forward(ctx, left.values, right.values, b, addend, y, scale_of(left.factor),
                 scale_of(right.factor));
}

void QuantizedProducts::input_gradient(ExecutionContext& ctx, const Operand& dy, const Operand& w,
                                       const Tensor& dx, bool accumulate, int64_t first_row) const {
  Codes left = quantize(ctx, dy, QuantOperand::gradient, Along::cols, first_row),
        right = quantize(ctx, w, QuantOperand::weight, Along::rows, 0);
  if (left.packed.defined()) return multiply_codes(ctx, left, right, dx, accumulate, {}, {});
  linear_input_gradient(ctx, left.values, right.values, dx, accumulate, scale_of(left.factor),
                        scale_of(right.factor));
}

void QuantizedProducts::weight_gradient(ExecutionContext& ctx, const Operand& dy, const Operand& x,
                                        const Tensor& dw, bool accumulate,
                                        int64_t first_row) const {
  bool rotated = rule_.recipe == QuantRecipe::nvfp4 && rule_.hadamard;
  Operand dy_used = rotated ? rotate(ctx, dy.x, QuantOperand::gradient) : dy,
          x_used = rotated ? rotate(ctx, x.x, QuantOperand::input) : x;
  Codes left = quantize(ctx, dy_used, QuantOperand::gradient, Along::rows, first_row),
        right = quantize(ctx, x_used, QuantOperand::input, Along::rows, 0);
  if (left.packed.defined()) return multiply_codes(ctx, left, right, dw, accumulate, {}, {});
  linear_weight_gradient(ctx, left.values, right.values, dw, accumulate, scale_of(left.factor),
                         scale_of(right.factor));
}

}  // namespace mtrain
