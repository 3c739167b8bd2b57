#include "mtrain/nn/adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "mtrain/autograd/adapter_ops.h"
#include "mtrain/base/rng.h"
#include "mtrain/base/text.h"
#include "mtrain/nn/model_parts.h"

namespace mtrain {
namespace {

constexpr const char *kDown = "lora_a", *kUp = "lora_b", *kMagnitude = "lora_magnitude",
                     *kVector = "ia3_l", *kRank = "lora_rank";

/// As in peft: Kaiming with a = sqrt(5), or normal.
Init initial_a(const AdapterOptions& options, int64_t rank, int64_t in) {
  return options.gaussian ? Init::normal(1 / static_cast<float>(rank))
                          : Init::uniform(1 / std::sqrt(static_cast<float>(in)));
}

/// For each row of a weight: its matrix's index in `matrices`; -1: it is in none.
std::vector<int64_t> matrix_of_rows(const Parameter& weight, const std::vector<size_t>& matrices) {
  std::vector<int64_t> out(static_cast<size_t>(weight.global[0]), -1);
  for (size_t m = 0; m < matrices.size(); ++m)
    for (const RowRange& range : weight.matrices[matrices[m]].rows)
      std::fill_n(out.begin() + range.first, range.rows, static_cast<int64_t>(m));
  return out;
}

/// Inside a tensor-parallel region, the gradient of a parameter that all ranks hold is a partial
/// sum.
void sum_over_tensor_ranks(Parameter& p, const ParallelContext& parallel) {
  const Axis* tensor = active_axis(parallel.tp);
  if (!tensor || p.tensor_axis) return;
  p.placement = Placement::R();
  if (!parallel.sequence_parallel) p.partial.push_back({tensor, 0, p.numel()});
}

/// For each row of `b` and each of the matrices: the row, if the matrix has it, else -1.
std::vector<int32_t> rows_of_blocks(const Parameter& b, const Parameter& weight,
                                    const std::vector<size_t>& matrices) {
  const std::vector<int64_t> matrix_of = matrix_of_rows(weight, matrices);
  const auto width = static_cast<int64_t>(matrices.size());
  std::vector<int32_t> rows(static_cast<size_t>(b.local[0] * width), -1);
  for (const ParamBox& box : b.boxes())
    for (int64_t i = 0; i < box.local.extent[0]; ++i) {
      const int64_t m = matrix_of[static_cast<size_t>(box.global.offset[0] + i)],
                    row = box.local.offset[0] + i;
      if (m >= 0) rows[static_cast<size_t>(row * width + m)] = static_cast<int32_t>(row);
    }
  return rows;
}

int64_t total_rows(const Parameter& weight, const std::vector<size_t>& matrices) {
  int64_t out = 0;
  for (size_t m : matrices) out += weight.matrices[m].num_rows();
  return out;
}

/// Float [rows]: 1 if the row is in one of `matrices` blocks, else 0. Undefined: all are.
Tensor rows_with_blocks(ExecutionContext& ctx, const std::vector<int32_t>& rows, size_t matrices) {
  std::vector<float> out(rows.size() / matrices, 0);
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i] >= 0) out[i / matrices] = 1;
  if (std::ranges::find(out, 0.0f) == out.end()) return {};
  return ctx.from_host<float>(out, {static_cast<int64_t>(out.size())});
}

/// The shapes of a [matrices · width, in] and b [out, width] for matrices of several ranks.
struct FactorShapes {
  int64_t width, in;
  std::vector<int64_t> ranks;      // of the matrices
  std::vector<int64_t> matrix_of;  // of each row of b; -1: none

  /// For Init::factor. `gaussian`: the deviation is 1 / rank, of the matrix's own rank.
  std::function<float(int64_t)> factor_of_a(bool gaussian) const {
    return [its = *this, gaussian](int64_t element) {
      const int64_t row = element / its.in, rank = its.ranks[static_cast<size_t>(row / its.width)];
      if (row % its.width >= rank) return 0.0f;
      return gaussian ? static_cast<float>(its.width) / static_cast<float>(rank) : 1.0f;
    };
  }
  std::function<float(int64_t)> factor_of_b() const {
    return [its = *this](int64_t element) {
      const int64_t m = its.matrix_of[static_cast<size_t>(element / its.width)];
      return m >= 0 && element % its.width >= its.ranks[static_cast<size_t>(m)] ? 0.0f : 1.0f;
    };
  }
  int64_t padding_of_a() const {
    int64_t out = 0;
    for (int64_t rank : ranks) out += (width - rank) * in;
    return out;
  }
  /// Includes the rows of matrices without an adapter.
  int64_t padding_of_b() const {
    int64_t out = 0;
    for (int64_t m : matrix_of) out += width - (m < 0 ? 0 : ranks[static_cast<size_t>(m)]);
    return out;
  }
};

/// A matrix has as many singular vectors as rows or columns.
void require_rank(const std::string& layer, const Parameter& weight, size_t matrix, int64_t rank) {
  const int64_t most = std::min(weight.matrices[matrix].num_rows(), weight.global[1]);
  MT_USER_CHECK(
      rank <= most, ErrorClass::config,
      cat("peft.init=pissa: ", layer, ".weight has only ", most,
          " singular values, fewer than peft.rank=", rank),
      cat("set peft.rank to at most ", most, ", or leave this weight out of peft.targets"));
}

}  // namespace

std::optional<Adapter> Adapter::of(const Scope& scope, const Parameter& weight, const Dim& out,
                                   const Dim& in) {
  AdapterPlan* plan = scope.adapters();
  if (!plan) return std::nullopt;
  const std::vector<size_t> matrices = plan->matrices_of(scope.path(), weight.matrices);
  if (matrices.empty()) return std::nullopt;
  return Adapter(scope, weight, out, in, matrices, *plan);
}

Adapter::Adapter(const Scope& scope, const Parameter& weight, const Dim& out, const Dim& in,
                 const std::vector<size_t>& matrices, AdapterPlan& plan)
    : plan_(&plan),
      dropout_(plan.options().dropout),
      dropout_key_(name_key(cat(scope.path(), ".lora_dropout"))) {
  const AdapterOptions& options = plan.options();
  if (options.vectors) {
    make_vector(scope, weight, out, in, matrices, plan.scales_input(scope.path(), weight.matrices));
    return;
  }
  std::vector<AdapterSize> sizes;
  for (size_t m : matrices) {
    sizes.push_back(plan.size_of(scope.path(), weight.matrices[m].name));
    if (options.principal) require_rank(scope.path(), weight, m, sizes.back().rank);
  }
  make_factors(scope, weight, out, in, matrices, sizes);
  set_scales(scope.context(), sizes);
  if (options.magnitudes)
    magnitudes_ = &scope.param(kMagnitude, {out}, Init::zeros(), false, ParamRole::other);
  const int64_t covered = total_rows(weight, matrices);
  if (magnitudes_) magnitudes_->unused = weight.global[0] - covered;
  Tensor adapted;
  if (matrices.size() > 1 || covered < weight.global[0]) {
    const std::vector<int32_t> rows = rows_of_blocks(*b_, weight, matrices);
    rows_ = scope.context().from_host<int32_t>(rows, {static_cast<int64_t>(rows.size())});
    if (magnitudes_) adapted = rows_with_blocks(scope.context(), rows, matrices.size());
  }
  if (magnitudes_) norms_.emplace(scope.context(), weight, adapted);
}

void Adapter::make_factors(const Scope& scope, const Parameter& weight, const Dim& out,
                           const Dim& in, const std::vector<size_t>& matrices,
                           const std::vector<AdapterSize>& sizes) {
  const AdapterOptions& options = plan_->options();
  const auto count = static_cast<int64_t>(sizes.size());
  const int64_t width = std::ranges::max(sizes, {}, &AdapterSize::rank).rank;
  FactorShapes shapes{.width = width, .in = in.size, .ranks = {}, .matrix_of = {}};
  for (const AdapterSize& size : sizes) shapes.ranks.push_back(size.rank);
  shapes.matrix_of = matrix_of_rows(weight, matrices);
  Init of_a = initial_a(options, width, in.size),
       of_b = options.b_std > 0 ? Init::normal(options.b_std) : Init::zeros();
  if (std::ranges::any_of(shapes.ranks, [&](int64_t rank) { return rank < width; }))
    of_a.factor = shapes.factor_of_a(options.gaussian), of_b.factor = shapes.factor_of_b();
  a_ = &scope.param(kDown, {{kRank, count * width}, in}, of_a, true, ParamRole::matrix);
  b_ = &scope.param(kUp, {out, {kRank, width}}, of_b, true, ParamRole::matrix);
  a_->unused = shapes.padding_of_a(), b_->unused = shapes.padding_of_b();
  if (weight.tensor_axis)
    for (Parameter* p : {a_, b_}) sum_over_tensor_ranks(*p, scope.parallel());
}

void Adapter::set_scales(ExecutionContext& ctx, const std::vector<AdapterSize>& sizes) {
  const auto same = [&](const AdapterSize& size) { return size.scale == sizes.front().scale; };
  if (std::ranges::all_of(sizes, same)) {
    scale_ = static_cast<float>(sizes.front().scale);
    return;
  }
  const int64_t width = b_->global[1];
  std::vector<float> all;
  for (const AdapterSize& size : sizes)
    all.insert(all.end(), static_cast<size_t>(width), static_cast<float>(size.scale));
  scales_ = ctx.from_host<float>(all, {static_cast<int64_t>(all.size())});
}

void Adapter::make_vector(const Scope& scope, const Parameter& weight, const Dim& out,
                          const Dim& in, const std::vector<size_t>& matrices, bool of_input) {
  MT_USER_CHECK(!of_input || matrices.size() == weight.matrices.size(), ErrorClass::config,
                cat("peft.feedforward: the matrices of ", scope.path(),
                    " share their inputs, and only some of them are in peft.targets"),
                cat("add ", scope.path(), " to peft.targets, or leave it out of peft.feedforward"));
  of_input_ = of_input;
  ExecutionContext& ctx = scope.context();
  vector_ = &scope.param(kVector, {of_input ? in : out}, Init::zeros(), false, ParamRole::other);
  if (of_input && weight.tensor_axis) sum_over_tensor_ranks(*vector_, scope.parallel());
  gain_.offset = ctx.from_host<float>(
      std::vector<float>(static_cast<size_t>(vector_->numel()), 1.0f), {vector_->numel()});
  if (!of_input) vector_->unused = weight.global[0] - total_rows(weight, matrices);
  if (!of_input)
    gain_.factor =
        rows_with_blocks(ctx, rows_of_blocks(*vector_, weight, matrices), matrices.size());
}

std::vector<Parameter*> Adapter::of_rows() const {
  std::vector<Parameter*> out;
  for (Parameter* p : {b_, magnitudes_, of_input_ ? nullptr : vector_})
    if (p) out.push_back(p);
  return out;
}

std::optional<ExpertAdapter> ExpertAdapter::of(const Scope& scope, const Parameter& weight) {
  AdapterPlan* plan = scope.adapters();
  if (!plan || !plan->adapts_experts(scope.path())) return std::nullopt;
  const AdapterOptions& options = plan->options();
  const bool split = options.share_experts && active_axis(scope.parallel().etp);
  MT_USER_CHECK(
      !options.magnitudes && !options.vectors && !options.principal && options.dropout == 0 &&
          !split,
      ErrorClass::config,
      cat(options.vectors      ? "peft.type=ia3: the weights of experts"
          : options.magnitudes ? "peft.type=dora: the weights of experts"
          : options.principal  ? "peft.init=pissa: the weights of experts"
          : split ? "peft.share_expert_adapters with dist.etp above 1: the weights of experts"
                  : "peft.dropout: the weights of experts",
          " (", scope.path(), ") cannot have such adapters"),
      options.magnitudes || options.vectors
          ? "choose peft.type=lora, or leave the experts out of peft.targets"
      : options.principal ? "choose peft.init=kaiming, or leave the experts out of peft.targets"
      : split             ? "set peft.share_expert_adapters=false, or dist.etp=1"
                          : "set peft.dropout=0, or leave the experts out of peft.targets");
  return ExpertAdapter(scope, weight, *plan);
}

ExpertAdapter::ExpertAdapter(const Scope& scope, const Parameter& weight, AdapterPlan& plan)
    : plan_(&plan), shared_(plan.options().share_experts) {
  const AdapterOptions& options = plan.options();
  const AdapterSize size = plan.size_of(scope.path(), "");
  scale_ = static_cast<float>(size.scale);
  const Dim experts = shared_ ? Dim{"all_experts", 1} : weight.dims[0], rank{kRank, size.rank};
  a_ = &scope.param(kDown, {experts, rank, weight.dims[2]},
                    initial_a(options, size.rank, weight.dims[2].size), true,
                    ParamRole::expert_matrix);
  b_ = &scope.param(kUp, {experts, weight.dims[1], rank},
                    options.b_std > 0 ? Init::normal(options.b_std) : Init::zeros(), true,
                    ParamRole::expert_matrix);
  const Axis* shards = active_axis(scope.parallel().etp);
  for (Parameter* p : {a_, b_})
    if (shards && !p->tensor_axis) p->partial.push_back({shards, 0, p->numel()});
}

Tensor ExpertAdapter::add_to(const Tensor& y, const Tensor& x, const RowCounts& rows) const {
  if (!plan_->is_on()) return y;
  const RowCounts its = shared_ ? std::make_shared<const std::vector<int64_t>>(1, x.size(0)) : rows;
  const Tensor inner = scale(grouped_linear(x, a_->use(), its), scale_);
  return add(y, grouped_linear(inner, b_->use(), its));
}

Tensor Adapter::kept(const Tensor& x) const {
  return dropout_ > 0 ? dropout(x, dropout_, dropout_key_) : x;
}

Tensor Adapter::add_to(const Tensor& y, const Tensor& x) const {
  if (!plan_->is_on()) return y;
  const Tensor down = linear(x, a_->use()),
               inner = scales_.defined() ? times_columns(down, scales_) : scale(down, scale_);
  return rows_.defined() ? spread_linear(inner, b_->use(), rows_, y)
                         : linear(inner, b_->use(), {}, y);
}

/// s · b as one matrix [out, matrices · rank], float.
Tensor Adapter::all_of_b() const {
  const Tensor table = b_->use().detach();
  ExecutionContext& ctx = table.context();
  const int64_t rows = table.size(0), width = a_->local[0];
  const Tensor blocks = rows_.defined() ? ctx.empty({rows, width}, table.dtype()) : table;
  if (rows_.defined())
    ctx.kernels().embedding(ctx.stream(), {.table = table.raw(),
                                           .ids = rows_.data<int32_t>(),
                                           .y = blocks.raw(),
                                           .tokens = rows_.numel(),
                                           .rows = rows,
                                           .cols = table.size(1),
                                           .dtype = table.dtype(),
                                           .first_row = 0});
  Tensor out = ctx.empty({rows, width}, DType::f32);
  ctx.kernels().cast(ctx.stream(), {.src = blocks.raw(),
                                    .dst = out.raw(),
                                    .count = out.numel(),
                                    .scale = scale_,
                                    .accumulate = false,
                                    .src_dtype = blocks.dtype(),
                                    .dst_dtype = DType::f32});
  return scales_.defined() ? times_columns(out, scales_) : out;
}

Tensor Adapter::scaled(const Tensor& sum) const {
  return scale_columns(sum, magnitudes_->use(), norms_->gain(a_->use().detach(), all_of_b()));
}

namespace {

LinearWeights without_bias(LinearWeights layer) {
  layer.b = {};
  return layer;
}

}  // namespace

Tensor Adapter::partial(const Tensor& x, const LinearWeights& layer) const {
  if (vector_) return linear(scales(true) ? times_vector(x) : x, without_bias(layer));
  const Tensor y = linear(x, without_bias(layer));
  return add_to(y, kept(x));
}

Tensor Adapter::finish(const Tensor& sum, const Tensor& bias, const Tensor& residual) const {
  if (!scales(false)) return add_bias(has_norms() ? scaled(sum) : sum, bias, residual);
  const Tensor y = times_vector(bias.defined() ? add_bias(sum, bias, {}) : sum);
  return residual.defined() ? add(y, residual) : y;
}

Tensor Adapter::product(const Tensor& x, const LinearWeights& layer, const Tensor& residual) const {
  if (vector_ && scales(false)) return finish(linear(x, layer), {}, residual);
  if (vector_) return linear(scales(true) ? times_vector(x) : x, layer, residual);
  if (has_norms() && (dropout_ == 0 || !x.context().training))
    return finish(partial(x, layer), layer.b, residual);
  const Tensor y = linear(x, layer, residual), some = kept(x);
  if (!has_norms()) return add_to(y, some);
  const Tensor of_some = linear(some, without_bias(layer));
  return add(scaled(add_to(of_some, some)), add_scaled(y, of_some, -1));
}

}  // namespace mtrain
