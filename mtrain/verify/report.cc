#include "mtrain/verify/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "mtrain/base/hash.h"
#include "mtrain/config/json_write.h"

namespace mtrain {
namespace {

using Kind = LayoutVerdict::Kind;

const char* word(Kind kind) {
  return kind == Kind::same ? "same" : kind == Kind::differs ? "DIFFERS" : "FAILED";
}

int64_t count(const std::vector<LayoutVerdict>& verdicts, Kind kind) {
  return std::count_if(verdicts.begin(), verdicts.end(),
                       [&](const auto& v) { return v.kind == kind; });
}

size_t num_layouts(const std::vector<RefusedLayouts>& refused) {
  size_t n = 0;
  for (const auto& r : refused) n += r.layouts.size();
  return n;
}

std::string refusals(const char* what, std::vector<RefusedLayouts> refused) {
  if (refused.empty()) return "";
  std::stable_sort(refused.begin(), refused.end(), [](const auto& a, const auto& b) {
    return a.layouts.size() > b.layouts.size();
  });
  std::string out = cat(num_layouts(refused), " ", what, ":\n");
  for (const auto& r : refused)
    out +=
        cat("  ", r.layouts.size(), "  ", r.reason, "; the simplest: ", text(r.layouts[0]), "\n");
  return out;
}

Node numbers(const std::vector<double>& values) {
  Node list = Node::list();
  for (double v : values) list.push(Node::number(v));
  return list;
}

Node integers(const std::vector<int64_t>& values) {
  Node list = Node::list();
  for (int64_t v : values) list.push(Node::integer(v));
  return list;
}

Node texts(const std::vector<std::string>& values) {
  Node list = Node::list();
  for (const auto& v : values) list.push(Node::string(v));
  return list;
}

Node to_node(const LayoutVerdict& v) {
  Node sent = Node::map();
  for (const auto& [axis, bytes] : v.sent) sent.append(axis, {}, Node::integer(bytes));
  std::vector<std::string> settings = overrides(v.layout);
  for (std::string& setting : overrides(v.size)) settings.push_back(std::move(setting));
  return make_map({{"layout", Node::string(text(v.layout))},
                   {"overrides", texts(settings)},
                   {"result", Node::string(word(v.kind))},
                   {"problem", Node::string(v.problem)},
                   {"loss_first", Node::number(v.loss_first)},
                   {"grad_norm_first", Node::number(v.norm_first)},
                   {"gradient", Node::number(v.gradient)},
                   {"worst_gradient", Node::string(v.worst_gradient)},
                   {"loss", Node::number(v.loss)},
                   {"grad_norm", Node::number(v.norm)},
                   {"share_of_bound", Node::number(v.share)},
                   {"peak_bytes", integers(v.memory)},
                   {"bytes_sent", std::move(sent)},
                   {"seconds", Node::number(v.seconds)}});
}

Node to_node(const LayoutBound& b) {
  Node gradient = Node::map();
  for (const auto& [name, value] : b.gradient) gradient.append(name, {}, Node::number(value));
  return make_map({{"unit_roundoff", Node::number(b.unit_roundoff)},
                   {"disturbance", Node::number(b.perturbation)},
                   {"tail", Node::number(kBoundTail)},
                   {"loss", numbers(b.loss)},
                   {"grad_norm", numbers(b.norm)},
                   {"gradient", std::move(gradient)}});
}

Node to_node(const std::map<TwinSize, LayoutReference>& references) {
  Node list = Node::list();
  for (const auto& [size, reference] : references)
    list.push(make_map({{"overrides", texts(overrides(size))},
                        {"loss", numbers(reference.figures.losses)},
                        {"grad_norm", numbers(reference.figures.norms)},
                        {"bound", to_node(reference.bound)}}));
  return list;
}

Node to_node(const std::vector<RefusedLayouts>& refused) {
  Node list = Node::list();
  for (const auto& r : refused)
    list.push(make_map({{"reason", Node::string(r.reason)},
                        {"first", Node::string(r.detail)},
                        {"layouts", Node::integer(static_cast<int64_t>(r.layouts.size()))}}));
  return list;
}

}  // namespace

std::string verify_table_head() {
  return "result   of bound  1st loss 1st norm gradient loss     time  layout\n";
}

std::string verify_table_line(const LayoutVerdict& v) {
  char line[160];
  std::snprintf(line, sizeof line, "%-8s %8.3g  %-7.1e  %-7.1e  %-7.1e  %-7.1e %4.1fs  ",
                word(v.kind), v.share, v.loss_first, v.norm_first, v.gradient, v.loss, v.seconds);
  std::string out = cat(line, text(v.layout), "\n");
  for (const auto& problem : split(v.problem, '\n')) out += cat("         ", problem, "\n");
  return out;
}

std::string verify_summary(const LayoutList& list, const std::vector<LayoutVerdict>& verdicts) {
  std::string out = verdicts.empty()
                        ? cat(list.valid.size(), " layouts are valid and supported\n")
                        : cat(verdicts.size(), " layouts: ", count(verdicts, Kind::same),
                              " the same within rounding, ", count(verdicts, Kind::differs),
                              " differ, ", count(verdicts, Kind::failed), " failed\n");
  double share = 0;
  for (const auto& v : verdicts) share = std::max(share, v.kind == Kind::same ? v.share : 0);
  if (count(verdicts, Kind::same) > 0)
    out += cat("the largest difference of those that are the same is ",
               shortest(std::round(share * 1000) / 1000), " of its bound\n");
  out += refusals("are valid, but this build does not support them", list.not_built);
  out += refusals("are refused by rules", list.refused);
  for (const auto& v : verdicts)
    if (v.kind != Kind::same)  // the list starts with the simplest layouts
      return out + cat("the simplest layout that is not the same: ", text(v.layout), "\n  ",
                       join(overrides(v.layout), " "), "\n");
  return out;
}

std::string verify_certificate(const Recipe& recipe, const LayoutVerifier& verifier,
                               const VerifyOptions& options,
                               const std::vector<LayoutVerdict>& verdicts) {
  Node list = Node::list();
  for (const auto& v : verdicts) list.push(to_node(v));
  bool passed = count(verdicts, Kind::same) == static_cast<int64_t>(verdicts.size());
  return write_json(make_map({{"mtrain", Node::string(MT_VERSION)},
                              {"recipe", Node::string(recipe.name)},
                              {"recipe_sha256", Node::string(sha256(recipe.config.to_yaml()))},
                              {"passed", Node::boolean(passed)},
                              {"ranks", Node::integer(options.ranks)},
                              {"steps", Node::integer(options.steps)},
                              {"dtype", Node::string(name(verifier.dtype()))},
                              {"references", to_node(verifier.references())},
                              {"layouts", std::move(list)},
                              {"refused", to_node(verifier.layouts().refused)},
                              {"not_built", to_node(verifier.layouts().not_built)},
                              {"twin", Node::string(verifier.twin())}})) +
         "\n";
}

}  // namespace mtrain
