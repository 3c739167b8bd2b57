#include "mtrain/train/model_options.h"

#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

#include "mtrain/config/read_items.h"
#include "mtrain/dist/kept_pieces.h"

namespace mtrain {

BlockPlan block_plan(const Settings& s, const ParallelContext* parallel) {
  BlockPlan plan{.full = s.model.recompute == "full",
                 .first_only = s.model.recompute_method == "block",
                 .recompute_layers = s.model.recompute_layers,
                 .offloaded = s.offload.layers};
  if (s.model.recompute_distribute && parallel && active_axis(parallel->tp))
    plan.keep_input = keep_in_pieces(*parallel->tp);
  if (s.model.recompute != "selective") return plan;
  for (const std::string& part : s.model.recompute_modules)
    for (size_t i = 0; i < std::size(kRecomputeParts); ++i)
      if (part == kRecomputeParts[i]) plan.parts.push_back(static_cast<RecomputePart>(i));
  return plan;
}

ReduceOptions reduce_options(const Settings& s) {
  ReduceOptions options{.in_order = s.ddp.in_order, .overlap = s.ddp.overlap_grad_reduce};
  if (s.ddp.grads_dtype == "bf16")
    options.wire = s.ddp.accumulate_dtype == "bf16" ? GradientWire::bf16_sum_bf16
                                                    : GradientWire::bf16_sum_fp32;
  return options;
}

namespace {

/// The entries of peft.ranks or peft.alphas. `whole`: their numbers are integers of at least 1;
/// else positive. Error(config) for any other.
std::vector<AdapterNumber> numbers_of(const char* setting, const std::vector<std::string>& entries,
                                      bool whole) {
  constexpr double kLargest = 1 << 20;
  std::vector<AdapterNumber> out;
  for (const std::string& entry : entries) {
    const size_t colon = entry.rfind(':');
    AdapterNumber one;
    bool valid = false;
    if (colon != std::string::npos) {
      one.pattern = trim(std::string_view(entry).substr(0, colon));
      const std::string number(trim(std::string_view(entry).substr(colon + 1)));
      const char* end = number.data() + number.size();
      const auto [at, error] = std::from_chars(number.data(), end, one.number);
      valid = error == std::errc() && at == end && !one.pattern.empty() && one.number > 0 &&
              one.number <= kLargest && (!whole || one.number == std::floor(one.number));
    }
    MT_USER_CHECK(valid, ErrorClass::config,
                  cat("peft.", setting, ": '", printable(entry, 60), "' is no pattern with a ",
                      whole ? "rank" : "positive number"),
                  whole ? "wanted PATTERN:RANK, such as q_proj:16"
                        : "wanted PATTERN:ALPHA, such as q_proj:32");
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

std::optional<AdapterPlan> adapter_plan(const Settings& s) {
  const PeftSection& peft = s.peft;
  if (!peft.frozen()) return std::nullopt;
  return AdapterPlan(
      {.rank = peft.rank,
       .alpha = peft.alpha,
       .rslora = peft.rslora,
       .ranks = numbers_of("ranks", peft.ranks, true),
       .alphas = numbers_of("alphas", peft.alphas, false),
       // Without weights, only gradients matter: then none of them is 0.
       .b_std = s.model.init_from.empty() ? 0.02f : 0.0f,
       .gaussian = peft.init == "gaussian",
       .dropout = static_cast<float>(peft.dropout),
       .principal = peft.starts_principal(),
       .vectors = peft.type == "ia3",
       .magnitudes = peft.type == "dora",
       .share_experts = peft.share_expert_adapters,
       .targets = peft.adapted(),
       .exclude = peft.exclude,
       .feedforward = peft.type == "ia3" ? peft.feedforward : std::vector<std::string>(),
       .train = peft.train});
}

namespace {

std::function<double(const Parameter&)> adapter_factor(const PeftSection& peft) {
  const bool low_rank = peft.type == "lora" || peft.type == "dora";
  if (!low_rank || peft.lr_ratio == 1) return {};
  return [ratio = peft.lr_ratio](const Parameter& p) {
    return p.global.rank() == 1 || p.name.ends_with(".lora_b") ? ratio : 1.0;
  };
}

}  // namespace

ParamRates param_rates(const Recipe& recipe) {
  const Settings& s = recipe.settings;
  return ParamRates({.lr = s.optimizer.lr,
                     .weight_decay = s.optimizer.weight_decay,
                     .schedule = s.scheduler,
                     .total_steps = s.train.steps,
                     .groups = require_items<ParamGroup>(s.optimizer.groups, "optimizer.groups"),
                     .embedding_lr = s.optimizer.embedding_lr,
                     .embedding_min_lr = s.optimizer.embedding_min_lr,
                     .layer_decay = s.optimizer.layer_decay,
                     .layers = recipe.config.fact(Fact::layers).value_or(0),
                     .factor = adapter_factor(s.peft)});
}

std::optional<CodedFormat> frozen_format(const Settings& s) {
  const PeftSection& peft = s.peft;
  if (!peft.frozen() || peft.base == "same") return std::nullopt;
  CodedFormat out{.double_quant = peft.double_quant};
  for (WeightFormat f : {WeightFormat::nf4, WeightFormat::int8, WeightFormat::fp8})
    if (peft.base == name(f)) out.format = f;
  return out;
}

namespace {

QuantRule quant_rule(const MixedPrecisionSection& p) {
  if (p.fp4 == "nvfp4")
    return {.recipe = QuantRecipe::nvfp4,
            .forward = QuantFormat::e2m1,
            .backward = QuantFormat::e2m1,
            .stochastic = p.fp4_stochastic_rounding,
            .hadamard = p.fp4_hadamard};
  QuantRule rule{.backward = p.fp8 == "hybrid" ? QuantFormat::e5m2 : QuantFormat::e4m3,
                 .headroom = static_cast<float>(std::exp2(p.fp8_margin))};
  if (p.fp8_recipe == "delayed") rule.recipe = QuantRecipe::delayed;
  if (p.fp8_recipe == "blockwise") rule.recipe = QuantRecipe::blockwise;
  if (p.fp8_recipe == "mxfp8") rule.recipe = QuantRecipe::mxfp8;
  return rule;
}

}  // namespace

PrecisionOptions precision_options(const Recipe& recipe) {
  const MixedPrecisionSection& p = recipe.settings.mixed_precision;
  return {.quantized = p.quantized_products(),
          .rule = quant_rule(p),
          .head = p.fp8_output,
          .layers = recipe.config.fact(Fact::layers).value_or(std::numeric_limits<int64_t>::max()),
          .first_plain = p.first_bf16_layers,
          .last_plain = p.last_bf16_layers,
          .amax_history = p.fp8_amax_history,
          .amax_algorithm = p.fp8_amax_algo == "max" ? DelayedScales::Algorithm::max
                                                     : DelayedScales::Algorithm::most_recent};
}

Recipe recipe_on_cpu(Recipe recipe) {
  recipe.settings.dist.backend = "cpu";
  std::string& dtype = recipe.settings.mixed_precision.dtype;
  if (dtype == MixedPrecisionSection::kAuto) dtype = name(DType::f32);
  return recipe;
}

}  // namespace mtrain
