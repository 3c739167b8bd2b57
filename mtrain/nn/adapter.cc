#include "mtrain/nn/adapter.h"

#include <algorithm>
#include <cmath>

#include "mtrain/autograd/adapter_ops.h"
#include "mtrain/base/rng.h"
#include "mtrain/base/text.h"
#include "mtrain/nn/model_parts.h"

namespace mtrain {
namespace {

constexpr const char *kDown = "lora_a", *kUp = "lora_b", *kRank = "lora_rank";

/// "attn.qkv" of "layers.3.attn.qkv".
std::string within_block(const std::string& path) {
  const std::string_view block = block_of(path);
  return block.empty() || block.size() == path.size() ? path : path.substr(block.size() + 1);
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
  std::vector<int64_t> matrix_of(static_cast<size_t>(weight.global[0]), -1);
  for (size_t m = 0; m < matrices.size(); ++m)
    for (const RowRange& range : weight.matrices[matrices[m]].rows)
      std::fill_n(matrix_of.begin() + range.first, range.rows, static_cast<int64_t>(m));
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

}  // namespace

namespace {

/// Names that Hugging Face's Llama and its relatives have for these weights.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"q_proj", "attn.qkv.q"},  {"k_proj", "attn.qkv.k"},        {"v_proj", "attn.qkv.v"},
    {"qkv_proj", "attn.qkv"},  {"query_key_value", "attn.qkv"}, {"c_attn", "attn.qkv"},
    {"o_proj", "attn.out"},    {"gate_proj", "mlp.gate"},       {"up_proj", "mlp.up"},
    {"down_proj", "mlp.down"}, {"gate_up_proj", "mlp.gate"},    {"gate_up_proj", "mlp.up"},
    {"all-linear", "attn.*"},  {"all-linear", "mlp.*"},         {"all-linear", "cross.*"}};

bool is_match(std::string_view pattern, std::string_view name) {
  if (glob_match(pattern, name)) return true;
  return std::ranges::any_of(kOtherNames, [&](const auto& other) {
    return other.first == pattern && glob_match(other.second, name);
  });
}

}  // namespace

bool AdapterPlan::matches(const std::vector<std::string>& patterns, const std::string& name) {
  bool any = false;
  for (const std::string& pattern : patterns)
    if (is_match(pattern, name)) matched_.insert(pattern), any = true;
  return any;
}

std::vector<size_t> AdapterPlan::matrices_of(const std::string& weight,
                                             const std::vector<LogicalMatrix>& matrices) {
  const std::string name = within_block(weight);
  std::vector<size_t> out;
  candidates_.insert(name);
  const bool whole = matches(options_.targets, name), none = matches(options_.exclude, name);
  for (size_t m = 0; m < matrices.size(); ++m) {
    const std::string own = matrices[m].name.empty() ? name : cat(name, ".", matrices[m].name);
    candidates_.insert(own);
    const bool chosen = matches(options_.targets, own) || whole,
               excluded = matches(options_.exclude, own) || none;
    if (chosen && !excluded) out.push_back(m);
  }
  num_adapters_ += static_cast<int64_t>(out.size());
  return out;
}

bool AdapterPlan::trains(const std::string& parameter) {
  return is_adapter(parameter) || matches(options_.train, parameter);
}

bool AdapterPlan::is_adapter(std::string_view parameter) {
  return parameter.ends_with(cat(".", kDown)) || parameter.ends_with(cat(".", kUp));
}

std::vector<std::string> AdapterPlan::unmatched() const {
  std::vector<std::string> out;
  for (const auto* patterns : {&options_.targets, &options_.exclude, &options_.train})
    for (const std::string& pattern : *patterns)
      if (!matched_.contains(pattern)) out.push_back(pattern);
  return out;
}

std::optional<Adapter> Adapter::of(const Scope& scope, const Parameter& weight, const Dim& out,
                                   const Dim& in) {
  AdapterPlan* plan = scope.adapters();
  if (!plan) return std::nullopt;
  const std::vector<size_t> matrices = plan->matrices_of(scope.path(), weight.matrices);
  if (matrices.empty()) return std::nullopt;
  return Adapter(scope, weight, out, in, matrices, *plan);
}

Adapter::Adapter(const Scope& scope, const Parameter& weight, const Dim& out, const Dim& in,
                 const std::vector<size_t>& matrices, const AdapterPlan& plan)
    : plan_(&plan),
      scale_(plan.options().scale),
      dropout_(plan.options().dropout),
      dropout_key_(name_key(cat(scope.path(), ".lora_dropout"))) {
  const AdapterOptions& options = plan.options();
  const auto count = static_cast<int64_t>(matrices.size());
  const float bound = 1 / std::sqrt(static_cast<float>(in.size));  // as peft: Kaiming, a = sqrt(5)
  a_ = &scope.param(kDown, {{kRank, count * options.rank}, in}, Init::uniform(bound), true,
                    ParamRole::matrix);
  b_ = &scope.param(kUp, {out, {kRank, options.rank}},
                    options.b_std > 0 ? Init::normal(options.b_std) : Init::zeros(), true,
                    ParamRole::matrix);
  if (weight.tensor_axis)
    for (Parameter* p : {a_, b_}) sum_over_tensor_ranks(*p, scope.parallel());
  int64_t covered = 0;
  for (size_t m : matrices) covered += weight.matrices[m].num_rows();
  if (count == 1 && covered == weight.global[0]) return;
  const std::vector<int32_t> rows = rows_of_blocks(*b_, weight, matrices);
  rows_ = scope.context().from_host<int32_t>(rows, {static_cast<int64_t>(rows.size())});
}

Tensor Adapter::add_to(const Tensor& y, const Tensor& x) const {
  if (!plan_->is_on()) return y;
  const Tensor kept = dropout_ > 0 ? dropout(x, dropout_, dropout_key_) : x,
               inner = scale(linear(kept, a_->use()), scale_);
  return rows_.defined() ? spread_linear(inner, b_->use(), rows_, y)
                         : linear(inner, b_->use(), {}, y);
}

}  // namespace mtrain
