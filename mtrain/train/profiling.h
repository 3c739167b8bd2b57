// Reports of a profiled run: where the time of a step is spent and how far each kernel is from the
// limits of the machine, as a table, as JSON and as a trace for chrome://tracing or
// ui.perfetto.dev. Values and stateless functions.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/tree.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

/// The measured limits of this machine, for a roofline model.
struct Roofline {
  double flops = 0;      // per second, of a large matrix product in the run's dtype
  double bandwidth = 0;  // bytes per second, of adding arrays that fit no cache
};
MT_API Roofline measure_roofline(ExecutionContext& ctx, DType dtype);

/// All calls of one kernel at one shape.
struct KernelUse {
  std::string kernel, shape;
  double calls = 0, seconds = 0;  // per step
  Work work;                      // per step
  /// The least time that arithmetic and memory allow, per step.
  double least(const Roofline& roofline) const;
};

struct ProfileSummary {
  double step_seconds = 0;      // median
  double kernel_seconds = 0;    // per step, all kernels
  std::vector<KernelUse> uses;  // longest first
  Roofline roofline;
  /// The use that exceeds its least time by the most seconds; null without kernels.
  const KernelUse* furthest() const;
};

/// `steps`: the seconds of each profiled step.
MT_API ProfileSummary summarise(const Profile& profile, const std::vector<double>& steps,
                                const Roofline& roofline);
/// A table with at most `rows` lines of kernels, one line for all others, and the kernel
/// with the largest time above the roofline.
MT_API std::string to_text(const ProfileSummary& summary, size_t rows = 25);
MT_API Node to_node(const ProfileSummary& summary);
/// Chrome's trace event format: phases and kernels on two lines.
MT_API std::string to_trace(const Profile& profile, const std::string& process_name);

}  // namespace mtrain
