#include "mtrain/nn/multi_token.h"

#include "mtrain/autograd/multi_token_ops.h"

namespace mtrain {

using enum ResumeClass;

void MtpSettings::bind(Fields& f) {
  f("layers", layers, "number of additional tokens to predict, one block for each")
      .min(0)
      .max(kMostLayers)
      .resume(impossible)
      .fact(Fact::mtp_layers)
      .renamed_from({"mtp_num_layers", "num_nextn_predict_layers"});
  f("loss_coeff", loss_coeff,
    "coefficient of the multi-token prediction loss, the mean over the additional tokens")
      .exclusive_min(0)
      .training_only()
      .renamed_from({"mtp_loss_scaling_factor"});
  f("standalone", standalone,
    "place multi-token prediction in a pipeline stage of its own, before that of head and loss; "
    "with dist.layout, the letters m say it")
      .resume(safe)
      .renamed_from({"mtp_standalone"});
}

DecoderBlock::~DecoderBlock() = default;

MultiTokenPrediction::MultiTokenPrediction(const Scope& model, const Options& options,
                                           Parameter& table, const MakeBlock& make)
    : options_(options), plan_(model.blocks()), embed_(model / "embed", options.vocab, table) {
  // Each depth is recomputed by itself, and nothing of it is offloaded.
  plan_.full = plan_.full && !plan_.first_only;
  plan_.recompute_layers = 1, plan_.offloaded = 0;
  const Dim pair{"pair", 2 * options.embed.size};
  depths_.reserve(static_cast<size_t>(options.settings.layers));
  for (int64_t k = 0; k < options.settings.layers; ++k) {
    const Scope s = (model / "mtp" / k).like_block(options.layers - 1);
    depths_.push_back({.enorm = Norm(s / "enorm", options.norm, options.embed),
                       .hnorm = Norm(s / "hnorm", options.norm, options.embed),
                       .eh_proj = Linear(s / "eh_proj", options.embed, pair, {options.init_std}),
                       .block = make(s / "block"),
                       .norm = Norm(s / "norm", options.norm, options.embed)});
  }
}

/// h_k = norm(block(W [enorm(embedding); hnorm(h_{k-1})])), eq. 21 and 22 in the order of the
/// released weights.
Tensor MultiTokenPrediction::step(const Depth& depth, const Tensor& stream_TD,
                                  const Tensor& tokens_T, const ModelInput& input) const {
  Tensor e_TD = embed_(tokens_T);
  if (options_.embedding_factor != 1) e_TD = scale(e_TD, options_.embedding_factor);
  Tensor x_TD = depth.eh_proj(join_columns(depth.enorm(e_TD), depth.hnorm(stream_TD)));
  auto block = [of = depth.block.get(), input](int64_t, const Tensor& x) {
    return (*of)(x, input);
  };
  return depth.norm(run_blocks(plan_, 0, 1, block, x_TD));
}

void MultiTokenPrediction::each_stream(
    const Tensor& normed_TD, const ModelInput& input,
    const std::function<void(size_t, const Tensor&)>& use) const {
  MT_CHECK(input.ahead.size() >= depths_.size(), "tokens of ", input.ahead.size(), " depths for ",
           depths_.size());
  Tensor stream_TD = normed_TD;
  for (size_t k = 0; k < depths_.size(); ++k) {
    stream_TD = step(depths_[k], stream_TD, input.ahead[k].tokens_T, input);
    use(k, stream_TD);
  }
}

std::vector<ComputedPart> MultiTokenPrediction::parts(const std::vector<std::string>& reads) const {
  std::vector<ComputedPart> out;
  for (size_t k = 0; k < depths_.size(); ++k)
    out.push_back({.scope = cat("mtp.", k), .reads = reads, .auxiliary = true});
  return out;
}

MtpLosses::MtpLosses(ExecutionContext& ctx, const MtpSettings& settings) : settings_(settings) {
  for (int64_t k = 0; k < settings.layers; ++k)
    depths_.push_back({.sum = ctx.zeros({1}, DType::f32)});
}

float MtpLosses::factor() const {
  return static_cast<float>(settings_.loss_coeff / static_cast<double>(depths_.size()));
}

Tensor MtpLosses::operator()(size_t k, const Tensor& stream_TD, const ModelInput& input,
                             const LmHead& head) {
  MT_CHECK(k < depths_.size() && k < input.ahead.size(), "tokens of ", input.ahead.size(),
           " depths for ", depths_.size());
  const TokensAhead& ahead = input.ahead[k];
  ModelInput own = input;
  own.targets_T = ahead.targets_T;
  own.loss_weight = input.loss_weight * factor();
  Tensor loss_T = head(stream_TD, own);
  record(depths_[k], loss_T, ahead.num_targets);
  return loss_T;
}

void MtpLosses::record(Depth& depth, const Tensor& loss_T, int64_t num_targets) const {
  ExecutionContext& ctx = loss_T.context();
  ctx.kernels().column_sum(ctx.stream(), {.x = loss_T.raw(),
                                          .out = depth.sum.data<float>(),
                                          .rows = loss_T.numel(),
                                          .cols = 1,
                                          .accumulate = !depth.is_empty,
                                          .dtype = DType::f32});
  depth.is_empty = false;
  depth.num_targets += num_targets;
}

std::vector<StepFigure> MtpLosses::end_step(const MtpSettings& settings, MtpLosses* module,
                                            const ParallelContext& parallel) {
  const auto count = static_cast<size_t>(settings.layers);
  std::vector<double> sums(2 * count);  // of the losses, then of the targets
  for (size_t k = 0; module && k < count; ++k) {
    Depth& depth = module->depths_[k];
    float sum = 0;
    if (!depth.is_empty) depth.sum.context().download(depth.sum, &sum);
    sums[k] = static_cast<double>(sum);
    sums[count + k] = static_cast<double>(depth.num_targets);
    depth.is_empty = true, depth.num_targets = 0;
  }
  // Ranks of tp have the same losses and targets, so they change no mean.
  for (const Axis* axis : {parallel.expert_group, parallel.edp})
    if (module && count > 0 && active_axis(axis)) axis->comm().all_reduce(sums);
  std::vector<StepFigure> out;
  for (size_t k = 0; k < count; ++k)
    out.push_back({cat("mtp_", k + 1, "_loss"), sums[k] / std::max(1.0, sums[count + k]),
                   StepFigure::Join::sum});
  return out;
}

}  // namespace mtrain
