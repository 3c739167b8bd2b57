#include "mtrain/train/profiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "mtrain/base/elapsed.h"
#include "mtrain/base/text.h"
#include "mtrain/config/json_write.h"
#include "mtrain/train/peak_rate.h"
#include "mtrain/train/session.h"

namespace mtrain {
namespace {

/// The time of the fastest of several runs of f, in seconds, after one warm-up run.
template <class F>
double shortest_time(ExecutionContext& ctx, F&& f) {
  constexpr int kRounds = 5;
  double best = 0;
  for (int i = 0; i <= kRounds; ++i) {
    auto start = std::chrono::steady_clock::now();
    f();
    ctx.stream().synchronize();
    double seconds = seconds_since(start);
    if (i > 0) best = i == 1 ? seconds : std::min(best, seconds);
  }
  return best;
}

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

}  // namespace

Roofline measure_roofline(ExecutionContext& ctx, DType dtype) {
  // Many times the size of a device's cache, if that much memory is free.
  constexpr size_t kRoom = size_t{4} << 30;
  int64_t count = ctx.backend().name() != "cpu" && ctx.backend().free_memory(ctx.device()) > kRoom
                      ? 1 << 27
                      : 1 << 24;
  Roofline roofline{measured_peak_flops(ctx.backend(), ctx.device(), dtype), 0};
  Tensor x = ctx.zeros({count}, DType::f32), y = ctx.zeros({count}, DType::f32);
  AddArgs sum{.a = x.raw(), .b = y.raw(), .y = y.raw(), .count = count, .dtype = DType::f32};
  double seconds = shortest_time(ctx, [&] { ctx.backend().kernels().add(ctx.stream(), sum); });
  roofline.bandwidth = 3.0 * static_cast<double>(count) * sizeof(float) / seconds;
  return roofline;
}

double KernelUse::least(const Roofline& roofline) const {
  double arithmetic = roofline.flops > 0 ? work.flops / roofline.flops : 0;
  double memory = roofline.bandwidth > 0 ? work.bytes / roofline.bandwidth : 0;
  return std::max(arithmetic, memory);
}

const KernelUse* ProfileSummary::furthest() const {
  const KernelUse* worst = nullptr;
  for (const auto& use : uses)
    if (!worst || use.seconds - use.least(roofline) > worst->seconds - worst->least(roofline))
      worst = &use;
  return worst;
}

ProfileSummary summarise(const Profile& profile, const std::vector<double>& steps,
                         const Roofline& roofline) {
  ProfileSummary out;
  out.roofline = roofline;
  if (steps.empty()) return out;
  std::vector<double> sorted = steps;
  std::sort(sorted.begin(), sorted.end());
  out.step_seconds = sorted[sorted.size() / 2];
  std::map<std::pair<std::string, std::string>, KernelUse> uses;
  auto count = static_cast<double>(steps.size());
  for (const ProfileEvent& event : profile.events()) {
    if (event.phase) continue;
    KernelUse& use = uses[{event.name, event.shape}];
    use.kernel = event.name;
    use.shape = event.shape;
    ++use.calls;
    use.seconds += event.seconds / count;
    use.work.flops += event.work.flops / count;
    use.work.bytes += event.work.bytes / count;
    out.kernel_seconds += event.seconds / count;
  }
  for (auto& [key, use] : uses) {
    use.calls /= count;
    out.uses.push_back(std::move(use));
  }
  std::sort(out.uses.begin(), out.uses.end(),
            [](const KernelUse& a, const KernelUse& b) { return a.seconds > b.seconds; });
  return out;
}

std::string to_text(const ProfileSummary& s, size_t rows) {
  std::string out =
      fmt::format("{:<24} {:<44} {:>6} {:>9} {:>7} {:>9} {:>8} {:>11}\n", "kernel", "shape",
                  "calls", "ms/step", "share", "GFLOP/s", "GB/s", "of roofline");
  double rest = 0;
  for (size_t i = 0; i < s.uses.size(); ++i) {
    const KernelUse& use = s.uses[i];
    if (i >= rows) {
      rest += use.seconds;
      continue;
    }
    out +=
        fmt::format("{:<24} {:<44} {:>6.0f} {:>9.2f} {:>7} {:>9.1f} {:>8.1f} {:>11}\n", use.kernel,
                    use.shape, use.calls, 1e3 * use.seconds, percent(use.seconds, s.step_seconds),
                    1e-9 * use.work.flops / use.seconds, 1e-9 * use.work.bytes / use.seconds,
                    percent(use.least(s.roofline), use.seconds));
  }
  auto line = [&](const char* what, double seconds) {
    out += fmt::format("{:<69} {:>6} {:>9.2f} {:>7}\n", what, "", 1e3 * seconds,
                       percent(seconds, s.step_seconds));
  };
  if (rest > 0) line("other kernels", rest);
  line("outside of kernels", std::max(0.0, s.step_seconds - s.kernel_seconds));
  line("step", s.step_seconds);
  out += fmt::format(
      "peak rates measured now: {:.1f} GFLOP/s (matrix product), {:.1f} GB/s (memory)\n",
      1e-9 * s.roofline.flops, 1e-9 * s.roofline.bandwidth);
  if (const KernelUse* worst = s.furthest())
    out += fmt::format("largest time above the roofline: {} {}, {:.2f} of its {:.2f} ms per step\n",
                       worst->kernel, worst->shape,
                       1e3 * (worst->seconds - worst->least(s.roofline)), 1e3 * worst->seconds);
  return out;
}

Node to_node(const ProfileSummary& s) {
  Node kernels = Node::list();
  for (const auto& use : s.uses)
    kernels.push(
        make_map({{"kernel", Node::string(use.kernel)},
                  {"shape", Node::string(use.shape)},
                  {"calls", Node::number(use.calls)},
                  {"ms", Node::number(1e3 * use.seconds)},
                  {"gflops", Node::number(1e-9 * use.work.flops / use.seconds)},
                  {"gb_per_second", Node::number(1e-9 * use.work.bytes / use.seconds)},
                  {"share_of_roofline", Node::number(use.least(s.roofline) / use.seconds)}}));
  return make_map({{"step_ms", Node::number(1e3 * s.step_seconds)},
                   {"kernel_ms", Node::number(1e3 * s.kernel_seconds)},
                   {"peak_gflops", Node::number(1e-9 * s.roofline.flops)},
                   {"peak_gb_per_second", Node::number(1e-9 * s.roofline.bandwidth)},
                   {"kernels", std::move(kernels)}});
}

std::string to_trace(const Profile& profile, const std::string& process_name) {
  Node events = Node::list();
  auto named = [&](const char* what, int64_t thread, const std::string& name) {
    events.push(make_map({{"name", Node::string(what)},
                          {"ph", Node::string("M")},
                          {"pid", Node::integer(0)},
                          {"tid", Node::integer(thread)},
                          {"args", make_map({{"name", Node::string(name)}})}}));
  };
  named("process_name", 0, process_name);
  named("thread_name", 0, "phases");
  named("thread_name", 1, "kernels");
  for (const ProfileEvent& event : profile.events())
    events.push(make_map({{"name", Node::string(event.name)},
                          {"ph", Node::string("X")},
                          {"pid", Node::integer(0)},
                          {"tid", Node::integer(event.phase ? 0 : 1)},
                          {"ts", Node::number(1e6 * event.start)},
                          {"dur", Node::number(1e6 * event.seconds)},
                          {"args", make_map({{"shape", Node::string(event.shape)},
                                             {"flop", Node::number(event.work.flops)},
                                             {"bytes", Node::number(event.work.bytes)}})}}));
  return write_json(make_map(
             {{"traceEvents", std::move(events)}, {"displayTimeUnit", Node::string("ms")}})) +
         "\n";
}

}  // namespace mtrain
