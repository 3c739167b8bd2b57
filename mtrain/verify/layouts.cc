#include "mtrain/verify/layouts.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/comm/communicator.h"
#include "mtrain/verify/twin.h"

namespace mtrain {
namespace {

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

double apart(double a, double b) {
  if (!std::isfinite(a)) return INFINITY;
  return std::fabs(a - b) / std::max(std::fabs(b), 1e-30);
}

/// The factor for which a is closest to factor * b: 2 if every element is doubled.
struct Multiple {
  double factor = 1, rest = 0;  // rest: norm of a - factor * b, relative to that of b
};

Multiple multiple_of(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, bb = 0, aa = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    bb += static_cast<double>(b[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
  }
  if (bb == 0) return {};
  double factor = ab / bb;
  return {factor, std::sqrt(std::max(0.0, aa - factor * ab) / bb)};
}

std::string likely_cause(const Multiple& m) {
  if (m.rest > 1e-2 || std::fabs(m.factor - 1) < 1e-3) return "";
  if (std::fabs(m.factor) < 1e-3) return ": it is zero, so the gradient is lost";
  double up = std::round(m.factor), down = std::round(1 / m.factor);
  if (up >= 2 && std::fabs(m.factor / up - 1) < 1e-2)
    return cat(": it is ", up,
               " times that of one rank, as if it was summed once too often over an axis of ", up,
               " ranks");
  if (down >= 2 && std::fabs(m.factor * down - 1) < 1e-2)
    return cat(": it is 1/", down, " of that of one rank, as if it was not summed over an axis of ",
               down, " ranks");
  return cat(": it is ", short_number(m.factor), " times that of one rank in every element");
}

/// The numbers of elements that no rank or more than one rank contributed; empty if each has
/// exactly one.
std::string coverage_fault(const WholeTensor& tensor) {
  auto none = std::count(tensor.given.begin(), tensor.given.end(), 0);
  auto several =
      std::count_if(tensor.given.begin(), tensor.given.end(), [](uint8_t n) { return n > 1; });
  if (none + several == 0) return "";
  return cat("no rank holds ", counted(none, "element"), ", and several ranks hold ",
             counted(several, "element"));
}

/// The largest relative difference of two curves. Raises `share` to the largest difference as a
/// fraction of the bound.
double compare_curve(const char* what, const std::vector<double>& values,
                     const std::vector<double>& reference, const std::vector<double>& bound,
                     double& share, std::vector<std::string>& problems) {
  double most = 0;
  bool reported = false;
  for (size_t step = 0; step < values.size(); ++step) {
    double d = apart(values[step], reference[step]);
    most = std::max(most, d);
    share = std::max(share, d / bound[step]);
    if (d <= bound[step] || reported) continue;
    reported = true;
    problems.push_back(cat(what, " of step ", step + 1, " is ", shortest(values[step]),
                           ", but on one rank ", shortest(reference[step]),
                           " (relative difference ", short_number(d),
                           ", rounding explains at most ", short_number(bound[step]), ")"));
  }
  return most;
}

void judge_gradients(const LayoutFigures& figures, const LayoutReference& reference,
                     LayoutVerdict& verdict, std::vector<std::string>& problems) {
  const auto& [expected, bounds] = reference;
  double smallest = smallest_gradient(expected, bounds.unit_roundoff), worst = -1;
  std::vector<std::string> differing;
  for (const auto& [name, whole] : expected.gradients) {
    auto found = figures.gradients.find(name);
    if (found == figures.gradients.end() || found->second.sizes != whole.sizes) {
      differing.push_back(
          cat("the gradient of ", name,
              found == figures.gradients.end() ? " is missing" : " has another shape"));
      continue;
    }
    const WholeTensor& tensor = found->second;
    if (std::string fault = coverage_fault(tensor); !fault.empty())
      differing.push_back(cat("the gradient of ", name, ": ", fault));
    double d = relative_difference(tensor, whole, smallest), bound = bounds.gradient.at(name);
    verdict.gradient = std::max(verdict.gradient, d);
    if (d / bound > worst) worst = d / bound, verdict.worst_gradient = name;
    if (d <= bound) continue;
    differing.push_back(cat("the gradient of ", name, " has a relative difference of ",
                            short_number(d), ", rounding explains at most ", short_number(bound),
                            likely_cause(multiple_of(tensor.values, whole.values))));
  }
  for (const auto& [name, tensor] : figures.gradients)
    if (!expected.gradients.contains(name))
      differing.push_back(cat("the model on one rank has no parameter ", name));
  verdict.share = std::max(verdict.share, worst);
  constexpr size_t kShown = 4;
  for (size_t i = 0; i < std::min(kShown, differing.size()); ++i) problems.push_back(differing[i]);
  if (differing.size() > kShown)
    problems.push_back(cat("and ", differing.size() - kShown, " more of ",
                           expected.gradients.size(), " parameters"));
}

}  // namespace

LayoutVerifier::LayoutVerifier(const Recipe& recipe, PluginHost& plugins, VerifyOptions options)
    : plugins_(plugins),
      options_(std::move(options)),
      twin_(twin_recipe(recipe, options_.ranks, options_.steps)) {
  Recipe on_one_rank = recipe_from_text(twin_, "the twin", fs::current_path(), {}, plugins_);
  const Settings& settings = on_one_rank.settings;
  dtype_ = settings.mixed_precision.compute_type();
  sample_tokens_ = settings.model.seq_length;
  const ConfigContainer& config = on_one_rank.config;
  whole_ = {config.fact(Fact::layers).value_or(0), settings.global_batch(),
            config.setting_of(Fact::layers)};
  layouts_ = list_layouts(twin_, plugins_, options_.ranks, options_.filter);
  std::string name = (fs::temp_directory_path() / "mtrain-verify-XXXXXX").string();
  MT_USER_CHECK(::mkdtemp(name.data()) != nullptr, ErrorClass::io,
                cat("cannot create a folder like ", name), "set TMPDIR to a writable folder");
  folder_ = name;
}

LayoutVerifier::~LayoutVerifier() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

LayoutFigures LayoutVerifier::train(const TwinSize& size, const RankLayout& layout,
                                    std::function<void(ParamList&, int64_t)> before_step) {
  std::vector<std::string> changes = overrides(layout);
  for (std::string& setting : overrides(size)) changes.push_back(std::move(setting));
  changes.push_back(cat("run.dir=", folder_.string()));
  if (options_.world && layout.ranks > 1)
    changes.push_back(cat("dist.comm=", options_.world->kind()));
  Recipe recipe = recipe_from_text(twin_, "the twin", fs::current_path(), changes, plugins_);
  return run_layout(recipe, plugins_,
                    {.steps = options_.steps,
                     .before_step = std::move(before_step),
                     .stop = options_.stop,
                     .world = options_.world,
                     .shapes = layout.ranks > 1 ? &reference(size).figures.gradients : nullptr});
}

const LayoutReference& LayoutVerifier::reference(const TwinSize& size) {
  auto [entry, absent] = references_.try_emplace(size);
  if (!absent) return entry->second;
  try {
    LayoutReference made{.figures = train(size, {})};
    int64_t tokens = size.samples * sample_tokens_;
    std::vector<LayoutFigures> perturbed;
    for (int64_t probe = 1; probe <= options_.probes; ++probe)
      perturbed.push_back(train(size, {}, perturb_weights(dtype_, tokens, probe)));
    MT_USER_CHECK(!options_.stop || !options_.stop(), ErrorClass::usage,
                  "stopped before anything was compared", "");
    made.bound = layout_bound(dtype_, tokens, made.figures, perturbed);
    return entry->second = std::move(made);
  } catch (...) {
    references_.erase(entry);
    throw;
  }
}

LayoutVerdict LayoutVerifier::verify(const RankLayout& layout) {
  try {
    reference(layout);
    return judge(layout, train(twin_size(whole_, layout), layout));
  } catch (const Error& error) {
    return {.layout = layout,
            .size = twin_size(whole_, layout),
            .kind = LayoutVerdict::Kind::failed,
            .problem = cat("error[", name(error.error_class()), "]: ", error.message())};
  } catch (const std::exception& error) {
    return {.layout = layout,
            .size = twin_size(whole_, layout),
            .kind = LayoutVerdict::Kind::failed,
            .problem = error.what()};
  }
}

LayoutVerdict LayoutVerifier::judge(const RankLayout& layout, const LayoutFigures& figures) {
  const auto& [expected, bound] = reference(layout);
  LayoutVerdict verdict{.layout = layout,
                        .size = twin_size(whole_, layout),
                        .seconds = figures.seconds,
                        .memory = figures.memory};
  for (const auto& [axis, counters] : figures.sent)
    verdict.sent[axis] = counters.total().bytes_sent;
  std::vector<std::string> problems;
  if (figures.losses.size() != expected.losses.size())
    problems.push_back(cat("it finished ", counted(figures.losses.size(), "step"), " of ",
                           expected.losses.size()));
  if (!figures.losses.empty()) {
    verdict.loss_first = apart(figures.losses[0], expected.losses[0]);
    verdict.norm_first = apart(figures.norms[0], expected.norms[0]);
  }
  verdict.loss = compare_curve("the loss", figures.losses, expected.losses, bound.loss,
                               verdict.share, problems);
  verdict.norm = compare_curve("the gradient norm", figures.norms, expected.norms, bound.norm,
                               verdict.share, problems);
  judge_gradients(figures, reference(layout), verdict, problems);
  if (!figures.drifted.empty()) {
    std::string more =
        figures.drifted.size() > 1 ? cat(" (and ", figures.drifted.size() - 1, " more)") : "";
    problems.push_back(
        cat("after ", counted(figures.losses.size(), "step"), " ", figures.drifted[0], more));
  }
  verdict.problem = join(problems, "\n");
  if (!problems.empty()) verdict.kind = LayoutVerdict::Kind::differs;
  return verdict;
}

}  // namespace mtrain
