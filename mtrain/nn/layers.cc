#include "mtrain/nn/layers.h"

#include <algorithm>
#include <memory>

#include "mtrain/autograd/multi_token_ops.h"
#include "mtrain/nn/vocabulary.h"

namespace mtrain {

namespace {
Parameter& add_weight(const Scope& scope, const Dim& out, const Dim& in,
                      const LinearOptions& options) {
  return scope.linear_weight(out, in, Init::normal(options.init_std), options.matrices);
}
}  // namespace

Linear::Linear(const Scope& scope, Dim out, Dim in, LinearOptions options)
    : weight(add_weight(scope, out, in, options)),
      bias(options.bias ? &scope.param("bias", {out}, Init::zeros(), false, ParamRole::bias)
                        : nullptr),
      quantized_(scope.quantized_products(weight)),
      adapter_(Adapter::of(scope, weight, out, in)) {}

Tensor Linear::operator()(const Tensor& x, const Tensor& residual) const {
  const LinearWeights layer{weight.use(), bias ? bias->use() : Tensor(), quantized_,
                            weight.coded.get()};
  return adapter_ ? adapter_->product(x, layer, residual) : linear(x, layer, residual);
}

Tensor Linear::leave(const Region& region, const Tensor& x, const Tensor& residual) const {
  if (!region.sharded()) return (*this)(x, residual);
  auto its_bias = [&] { return bias ? bias->use() : Tensor(); };
  const LinearWeights layer{weight.use(), {}, quantized_, weight.coded.get()};
  if (adapter_)
    return adapter_->finish(region.leave(adapter_->partial(x, layer)), its_bias(), residual);
  Tensor sum = layer.coded ? region.leave(linear(x, layer)) : region.leave(x, layer.w, quantized_);
  return add_bias(sum, its_bias(), residual);
}

Embedding::Embedding(const Scope& scope, Dim rows, Dim embed, float init_std)
    : Embedding(scope, rows, embed, init_std, 0) {}

namespace {
bool is_sharded(const Scope& scope, const Dim& rows) {
  return active_axis(scope.parallel().of(rows.name)) != nullptr;
}
/// The id whose row is the first one of this rank, for a table whose row 0 is id 0.
int64_t first_row_of(const Scope& scope, const Dim& rows) {
  return is_sharded(scope, rows) ? even_piece(rows.size, scope.parallel().of(rows.name)).global : 0;
}
}  // namespace

Embedding::Embedding(const Scope& scope, Dim rows, Dim embed, float init_std, int64_t offset)
    : weight(
          scope.param("weight", {rows, embed}, Init::normal(init_std), true, ParamRole::embedding)),
      region_(scope),
      sharded_(is_sharded(scope, rows)),
      first_row_(first_row_of(scope, rows) - offset) {}

Embedding::Embedding(const Scope& scope, const Dim& rows, Parameter& table)
    : weight(table),
      region_(scope),
      sharded_(is_sharded(scope, rows)),
      first_row_(first_row_of(scope, rows)) {}

Tensor Embedding::operator()(const Tensor& ids) const {
  Tensor x = sharded_ ? region_.leave(embedding(weight.use(), ids, first_row_))
                      : embedding(weight.use(), region_.own_tokens(ids), first_row_);
  // Backward passes through all blocks, as the lists of a step's actions say.
  if (x.context().grad_enabled && !x.node()) x.set_node(std::make_shared<GradTarget>());
  return x;
}

namespace {
Parameter* norm_parameter(const Scope& scope, std::string_view name, bool there, const Dim& embed,
                          const Init& init) {
  return there ? &scope.param(name, {embed}, init, false, ParamRole::norm) : nullptr;
}
}  // namespace

Norm::Norm(const Scope& scope, const NormOptions& options, const Dim& embed)
    : kind_(options.kind),
      weight_(norm_parameter(scope, "weight", options.weight, embed,
                             options.zero_centered ? Init::zeros() : Init::ones())),
      bias_(norm_parameter(scope, "bias", options.bias, embed, Init::zeros())),
      eps_(options.eps),
      offset_(options.weight && !options.zero_centered ? 0 : 1) {}

Norm::Norm(const Scope& scope, Kind kind, const Dim& embed, float eps)
    : Norm(scope, {.kind = kind, .eps = eps, .bias = kind == Kind::layer}, embed) {}

Tensor Norm::operator()(const Tensor& x) const {
  Tensor w = weight_ ? weight_->use() : Tensor();
  if (kind_ == Kind::rms) return rms_norm(x, w, eps_, offset_);
  return layer_norm(x, w, bias_ ? bias_->use() : Tensor(), eps_, offset_);
}

Parameter* tied_table(const Scope& scope, const StageRange& stage, Dim rows, Dim embed,
                      float init_std) {
  if (!stage.first && !stage.last) return nullptr;
  return &shared_table(scope, stage, std::move(rows), std::move(embed), init_std);
}

Parameter& shared_table(const Scope& scope, const StageRange& stage, Dim rows, Dim embed,
                        float init_std) {
  Parameter* table = scope.find("weight");
  const Axis* embedding_group = active_axis(scope.parallel().embedding_group);
  if (!embedding_group || stage.stages == 1) {  // one rank has all uses
    MT_CHECK(table != nullptr, scope.path(), ": a head is tied to a missing embedding");
    return *table;
  }
  if (!table) {
    table = &Embedding(scope, std::move(rows), std::move(embed), init_std).weight;
    table->is_primary = false;
  }
  const bool again = std::any_of(table->partial.begin(), table->partial.end(),
                                 [&](const PartialSum& p) { return p.axis == embedding_group; });
  if (again) return *table;  // for an earlier stage of this rank
  table->partial.push_back({embedding_group, 0, table->numel()});
  return *table;
}

namespace {

/// A model whose table and head are on one rank adds the bias next to the table itself, because
/// parameters that one op reads must be gathered together (optim/param_buckets.h).
Parameter* head_bias(const Scope& scope, const Dim& vocab) {
  Parameter* there = scope.find("bias");
  return there ? there : &scope.param("bias", {vocab}, Init::zeros(), false, ParamRole::bias);
}

}  // namespace

LmHead::LmHead(const Scope& scope, Dim vocab, Dim embed, int64_t valid_vocab, Parameter* tied,
               float init_std, bool bias, const LogitMap& map)
    : region_(scope),
      weight_(tied ? *tied
                   : scope.param("weight", {vocab, embed}, Init::normal(init_std), true,
                                 ParamRole::head)),
      bias_(bias ? head_bias(scope, vocab) : nullptr),
      quantized_(scope.quantized_products(weight_, true)),
      valid_vocab_(valid_vocab),
      part_(vocabulary_part(scope.parallel().of(vocab.name), vocab.size)),
      map_(map) {}

Tensor LmHead::operator()(const Tensor& x, const ModelInput& input) const {
  Tensor own = region_.enter(x), bias = bias_ ? bias_->use() : Tensor();
  if (!input.targets_T.defined()) {
    MT_CHECK(!part_.join || input.logits_of_part,
             "logits of a sharded vocabulary: each rank has only the logits of its own ids");
    if (input.logits_row >= 0) own = take_rows(own, input.logits_row, 1);
    return map_logits(linear(own, weight_.use(), bias, {}, quantized_), map_);
  }
  Distillation* distillation = input.distillation.get();
  Tensor loss_T = linear_cross_entropy(own, weight_.use(), input.targets_T, valid_vocab_,
                                       input.weighted_later ? 0 : input.loss_weight, part_,
                                       input.head_gradients, quantized_, bias, map_, distillation);
  if (distillation) distillation->release();
  return loss_T;
}

}  // namespace mtrain
