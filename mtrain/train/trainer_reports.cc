// The trainer's reports: skipped updates, kernel traces, memory and mixed arithmetic.
#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <vector>

#include "mtrain/base/counted.h"
#include "mtrain/base/log.h"
#include "mtrain/recipe/make_saved_config.h"
#include "mtrain/recipe/resume.h"
#include "mtrain/train/profiling.h"
#include "mtrain/train/trainer.h"

namespace mtrain {

void Trainer::fill_info() {
  const Settings& s = recipe_.settings;
  info_ = {.name = recipe_.name,
           .directory = recipe_.run_directory().string(),
           .device = ranks_.size() > 1 ? cat(ranks_.size(), " ranks (", ranks_.kind(), "), each ",
                                             session_.device)
                                       : session_.device,
           .dtype = s.mixed_precision.dtype,
           .dtype_reason = recipe_.dtype_reason,
           .parameters = first() ? planned_.parameters : 0,
           .trained = first() ? planned_.trained : 0,
           .total_steps = s.train.steps,
           .first_step = state_.step,
           .global_batch_size = batch_now(),
           .batch_sizes = batches_.text(),
           .total_tokens = s.train.steps > 0 ? train_samples_ * s.model.seq_length : 0,
           .seq_length = s.model.seq_length,
           .flops_per_token = computed_flops_per_token(),
           .planned_memory = planned_.at_peak,
           .param_groups = planned_.param_groups,
           .pipeline = mesh_.pipeline_ranks() ? mesh_.pipeline().text() : "",
           .planned_bytes = planned_.reserved};
}

/// Without the products that no step computes: the gradients of frozen weights, a third of the
/// weights' products. Those of trained matrices, and the products of adapters, which the model does
/// not count, are added. Of experts, all adapters count, also those that a token does not reach,
/// and no trained weights.
double Trainer::computed_flops_per_token() const {
  const Settings& s = recipe_.settings;
  const double whole = session_.model->flops_per_token(s.model.seq_length);
  if (!s.peft.frozen()) return whole;
  const double of_weights = session_.model->flops_per_token(1);  // next to no attention
  return whole - of_weights / 3 + 2 * static_cast<double>(planned_.products) +
         6 * static_cast<double>(planned_.adapters);
}

void Trainer::begin_profile() {
  const ProfilingSection& p = recipe_.settings.profiling;
  if (p.type != "trace" || std::ranges::find(p.ranks, ranks_.rank()) == p.ranks.end() ||
      state_.step < p.start || state_.step >= p.end)
    return;
  if (!profile_) {
    profile_.emplace(session_.ctx->backend().kernels());
    profile_from_ = state_.step;
  }
  set_profile(&*profile_);
}

void Trainer::end_profile(bool last) {
  if (!profile_) return;
  set_profile(nullptr);  // work between steps is not profiled
  if (!last && state_.step < recipe_.settings.profiling.end) return;
  const std::string rank = first() ? "" : cat("-rank", ranks_.rank());
  fs::path file =
      recipe_.run_directory() / cat("trace-", profile_from_ + 1, "-", state_.step, rank, ".json");
  try {
    write_file_atomic(file, to_trace(*profile_, recipe_.name));
    event(cat("trace of steps ", profile_from_ + 1, " to ", state_.step, ": ", file.string()));
  } catch (const Error& error) {
    log_warn("cannot write the trace: ", error.what());
  }
  profile_.reset();
}

void Trainer::report_memory() {
  const CachingAllocator& memory = session_.ctx->memory();
  event(cat("memory after step ", state_.step, ": ", human_bytes(memory.in_use()), " in use, ",
            human_bytes(memory.peak()), " at the peak (", memory.at_peak().text(), "), ",
            human_bytes(memory.peak_reserved()), " taken from the system, ",
            human_bytes(info_.planned_bytes), " planned"));
}

void Trainer::skip_listed_step() {
  const Settings& s = recipe_.settings;
  const int64_t first = state_.consumed_samples;
  finish_copy();  // a save in progress may still read the state
  loader_->seek(first + batch_now());
  state_.consumed_samples = loader_->consumed_samples();
  state_.consumed_tokens += batch_now() * s.model.seq_length;
  ++state_.step;
  event(cat("step ", state_.step, ": skipped because of train.skip_steps (samples ", first, " to ",
            state_.consumed_samples - 1, ")"));
}

void Trainer::skip_large(double grad_norm) {
  const Settings& s = recipe_.settings;
  if (state_.skips++ < s.train.max_skips)
    return event(cat("step ", state_.step + 1, ": update skipped, because the gradient norm ",
                     grad_norm, " is above optimizer.skip_grad_norm"));
  end_save();
  throw Error(ErrorClass::numeric,
              cat("the gradient norm ", grad_norm, " at step ", state_.step + 1,
                  " is above optimizer.skip_grad_norm=", *s.optimizer.skip_grad_norm, ", and the ",
                  s.train.max_skips,
                  " updates before it were skipped as well: train.max_skips allows no more"),
              cat("lower optimizer.lr, or raise optimizer.skip_grad_norm or train.max_skips; ",
                  newest_saved()));
}

/// A cause of a non-finite gradient norm where the loss is finite: in fp16 the scaled gradients
/// overflow. A dynamic loss scale has fallen to its minimum by then. Empty in other types.
std::string Trainer::loss_scale_remedy() const {
  const MixedPrecisionSection& s = recipe_.settings.mixed_precision;
  if (s.dtype != "fp16") return {};
  return cat("the loss scale ", scaler_.scale(), " may be too large for fp16: ",
             s.loss_scale > 0
                 ? "lower mixed_precision.loss_scale, or set it to 0, which adjusts it "
                   "to the gradients; otherwise "
                 : "lower mixed_precision.min_loss_scale; otherwise ");
}

void Trainer::skip_or_stop(const StepLoss& loss, double grad_norm) {
  const Settings& s = recipe_.settings;
  const bool skips = s.train.on_nonfinite == "skip", loss_is_finite = std::isfinite(loss.loss_sum);
  const double value = loss_is_finite ? grad_norm : loss.mean();
  // The sign of a NaN is meaningless, so it is not printed.
  const std::string what =
      cat("non-finite ", loss_is_finite ? "gradient norm " : "loss ",
          std::isnan(value) ? "nan" : cat(value), " at step ", state_.step + 1, " (samples ",
          state_.consumed_samples, " to ", state_.consumed_samples + batch_now() - 1, ")");
  if (skips && state_.skips < s.train.max_skips) {
    ++state_.skips;
    return event(cat("warning: ", what, ": update skipped"));
  }
  end_save();
  throw Error(ErrorClass::numeric,
              skips ? cat(what, ", and the ", counted(state_.skips, "update"), " before it ",
                          state_.skips == 1 ? "was" : "were",
                          " skipped for the same reason: train.max_skips allows no more")
                    : cat(what, "; the update was not made"),
              cat(loss_is_finite ? loss_scale_remedy() : std::string(),
                  "lower optimizer.lr, raise scheduler.warmup_steps, ",
                  skips ? "or look at those samples; "
                        : "look at those samples, or set train.on_nonfinite=skip; ",
                  newest_saved()));
}

/// Such a run is only repeated bit for bit if each rank runs on the same type of device again.
void Trainer::warn_of_mixed_arithmetic() {
  constexpr size_t kWidth = 64;  // bytes of each rank's text
  std::string mine = identity_of(saved_).arithmetic;
  mine.resize(kWidth);
  std::string all(kWidth * static_cast<size_t>(ranks_.size()), '\0');
  ranks_.all_gather({mine.data(), std::ssize(mine), DType::u8},
                    {all.data(), std::ssize(all), DType::u8});
  std::map<std::string, std::vector<int>> ranks_of;
  for (int rank = 0; rank < ranks_.size(); ++rank)
    ranks_of[all.substr(kWidth * static_cast<size_t>(rank), kWidth).c_str()].push_back(rank);
  if (!first() || ranks_of.size() == 1) return;
  std::vector<std::string> lines;
  for (const auto& [arithmetic, ranks] : ranks_of)
    lines.push_back(cat(arithmetic, ": ",
                        ranks.size() == 1 ? "rank " : cat(ranks.size(), " ranks, the first is "),
                        ranks.front()));
  log_warn(
      "run.deterministic=true, but ranks use different arithmetic: if ranks are placed on other "
      "machines, the result differs in its last bits\n  ",
      join(lines, "\n  "), "\n  help: ",
      mine.starts_with(kCpuArithmetic)
          ? "set MTRAIN_ISA=LEVEL on all ranks, to a level that all these processors support"
          : "use devices of the same type");
}

}  // namespace mtrain
