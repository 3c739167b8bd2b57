// What the trainer reports of some steps: traces of kernels, and memory.
#include <algorithm>
#include <exception>

#include "mtrain/base/log.h"
#include "mtrain/train/profiling.h"
#include "mtrain/train/trainer.h"

namespace mtrain {

void Trainer::begin_profile() {
  const ProfilingSection& p = recipe_.settings.profiling;
  if (p.type != "trace" || std::ranges::find(p.ranks, ranks_.rank()) == p.ranks.end() || state_.step < p.start || state_.step >= p.end) return;
  if (!profile_) {
    profile_.emplace(session_.run->backend().kernels());
    profile_from_ = state_.step;
  }
  set_profile(&*profile_);
}

void Trainer::end_profile(bool last) {
  if (!profile_) return;
  set_profile(nullptr);  // what comes between steps is not part of them
  if (!last && state_.step < recipe_.settings.profiling.end) return;
  const std::string rank = first() ? "" : cat("-rank", ranks_.rank());
  fs::path file = recipe_.run_directory() / cat("trace-", profile_from_ + 1, "-", state_.step, rank, ".json");
  try {
    write_file_atomic(file, to_trace(*profile_, recipe_.name));
    event(cat("trace of steps ", profile_from_ + 1, " to ", state_.step, ": ", file.string()));
  } catch (const Error& error) {
    log_warn("no trace: ", error.what());
  }
  profile_.reset();
}

void Trainer::report_memory() {
  const CachingAllocator& memory = session_.run->memory();
  event(cat("memory after step ", state_.step, ": ", human_bytes(memory.in_use()), " in use, ", human_bytes(memory.peak()),
            " at the peak (", memory.at_peak().text(), "), ", human_bytes(memory.peak_reserved()), " taken from the system, ",
            human_bytes(info_.planned_bytes), " planned"));
}

}  // namespace mtrain
