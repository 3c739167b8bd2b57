#include "mtrain/train/rules.h"

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

class Rules {
 public:
  Rules(const Settings& s, const ConfigContainer& config, Report& report)
      : s_(s), config_(config), report_(report) {}

  void run() {
    batch();
    schedule();
    checkpoint();
  }

 private:
  Diagnostic& violated(const char* id, const char* path, std::string message) {
    const Node* node = config_.root().find(path);
    return report_.error(cat("rule ", id), path, node ? node->loc() : Location{}, std::move(message));
  }

  void batch() {
    int64_t global = s_.global_batch(), micro = s_.train.micro_batch_size;
    if (global % micro == 0) return;
    violated("global-batch", "train.global_batch_size",
             cat(global, " is not a multiple of train.micro_batch_size (", micro, ") x 1 data-parallel rank"))
        .note("global = micro x accumulation x data-parallel, so that every update sees whole samples")
        .fix(cat("train.global_batch_size=", (global / micro + 1) * micro,
                 ", or a micro_batch_size that divides ", global));
  }

  void schedule() {
    const ScheduleConfig& c = s_.scheduler;
    if (c.min_lr > s_.optimizer.lr)
      violated("min-lr", "scheduler.min_lr",
               cat(shortest(c.min_lr), " is above optimizer.lr (", shortest(s_.optimizer.lr), ")"))
          .fix(cat("scheduler.min_lr=", shortest(s_.optimizer.lr / 10)));
    int64_t end = c.decay_steps > 0 ? c.decay_steps : s_.train.steps;
    if (c.type != "constant" && c.type != "inverse_sqrt" && s_.train.steps > 0 && c.warmup_steps >= end)
      violated("warmup", "scheduler.warmup_steps",
               cat(c.warmup_steps, " leaves nothing to decay before step ", end))
          .fix(cat("scheduler.warmup_steps=", end / 10));
  }

  void checkpoint() {
    if (s_.checkpoint.keep == 1)
      violated("keep-two", "checkpoint.keep", "1 would leave nothing to fall back to if that one is damaged")
          .fix("checkpoint.keep=2");
  }

  const Settings& s_;
  const ConfigContainer& config_;
  Report& report_;
};

}  // namespace

void check_rules(const Settings& settings, const ConfigContainer& config, Report& report) {
  Rules(settings, config, report).run();
}

}  // namespace mtrain
