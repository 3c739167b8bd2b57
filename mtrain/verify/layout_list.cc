#include "mtrain/verify/layout_list.h"

#include <algorithm>
#include <map>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) out.push_back(d);
  return out;
}

/// The choices of a layout by name, without those that have no effect in it.
std::map<std::string, std::string> choices(const RankLayout& l) {
  std::map<std::string, std::string> out;
  for (auto [name, size] : {std::pair("tp", l.tp),
                            {"pp", l.pp},
                            {"cp", l.cp},
                            {"dp", l.dp()},
                            {"ep", l.ep},
                            {"etp", l.etp}})
    out[name] = std::to_string(size);
  if (l.tp > 1) out["sp"] = l.sp ? "yes" : "no";
  if (l.pp > 1) out["schedule"] = cat(l.schedule, " vp", l.vp);
  if (l.cp > 1) out["cp_comm"] = l.cp_comm;
  if (l.mtp_apart) out["mtp"] = "apart";
  if (l.dp() * l.cp > 1) out["zero"] = cat(l.zero, l.resident > 0 ? " resident" : "");
  out["recompute"] = l.recompute;
  return out;
}

/// Adds every combination of the other choices for given sizes of tp, pp and cp.
void add_variants(RankLayout layout, bool experts, std::vector<RankLayout>& out) {
  struct ScheduleChoice {
    const char* schedule;
    int64_t vp;
  };
  std::vector<ScheduleChoice> schedules = {{"1f1b", 1}};
  if (layout.pp > 1)
    schedules = {{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zb_h1", 1}, {"zb_v", 2}};
  std::vector<std::string> cp_kinds = {"p2p"};
  if (layout.cp > 1) cp_kinds = {"p2p", "all_gather", "a2a", "a2a+p2p"};
  struct Sharding {
    int64_t zero, resident;
  };
  std::vector<Sharding> shardings = {{0, 0}};
  if (layout.dp() * layout.cp > 1) shardings = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {3, 1}};
  for (int64_t ep : divisors(experts ? layout.ranks : 1))
    for (int64_t etp : divisors(experts ? layout.ranks / ep : 1))
      for (bool sp : {false, true})
        for (const auto& choice : schedules)
          for (const auto& cp_kind : cp_kinds)
            for (const auto& sharding : shardings)
              for (const char* recompute : {"none", "selective", "full", "distributed"}) {
                if (sp && layout.tp == 1) continue;
                if (recompute == std::string_view("distributed") && (sp || layout.tp == 1))
                  continue;
                layout.ep = ep, layout.etp = etp, layout.sp = sp;
                layout.zero = sharding.zero, layout.resident = sharding.resident;
                layout.schedule = choice.schedule, layout.vp = choice.vp;
                layout.cp_comm = cp_kind, layout.recompute = recompute;
                out.push_back(layout);
              }
}

std::vector<RankLayout> combinations(int64_t ranks, bool experts, bool further_tokens) {
  std::vector<RankLayout> out;
  for (int64_t tp : divisors(ranks))
    for (int64_t pp : divisors(ranks / tp))
      for (int64_t cp : divisors(ranks / tp / pp))
        add_variants({.ranks = ranks, .tp = tp, .pp = pp, .cp = cp}, experts, out);
  // Multi-token prediction in a stage of its own.
  for (size_t i = 0, n = out.size(); further_tokens && i < n; ++i) {
    RankLayout apart = out[i];
    apart.mtp_apart = true;
    if (apart.pp > 1) out.push_back(apart);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.distance() < b.distance(); });
  return out;
}

void refuse(std::vector<RefusedLayouts>& list, const std::string& reason, const std::string& detail,
            const RankLayout& layout) {
  auto known =
      std::find_if(list.begin(), list.end(), [&](const auto& r) { return r.reason == reason; });
  if (known == list.end()) known = list.insert(list.end(), {reason, detail, {}});
  known->layouts.push_back(layout);
}

/// Checks a recipe with many sets of overrides, using one schema catalog.
class RecipeChecker {
 public:
  RecipeChecker(const std::string& recipe, const PluginHost& plugins)
      : catalog_(schema_catalog(plugins)) {
    Report report;
    if (auto tree = load_yaml(std::make_shared<Source>(SourceKind::file, kName, recipe), report))
      recipe_ = std::move(*tree);
    report.throw_if_errors();
  }

  Report report(const std::vector<std::string>& overrides) const {
    ConfigRequest request{.recipe = kName, .tree = recipe_};
    for (const auto& text : overrides)
      request.overrides.push_back({text, static_cast<int>(request.overrides.size()) + 2});
    Report report;
    ConfigContainer config = ConfigContainer::load(request, catalog_, report);
    check_rules(config, catalog_, {}, report, false);
    return report;
  }
  int64_t fact(Fact fact) const {
    Report report;
    ConfigContainer config =
        ConfigContainer::load({.recipe = kName, .tree = recipe_}, catalog_, report);
    return config.fact(fact).value_or(0);
  }

 private:
  static constexpr const char* kName = "the twin";
  SchemaCatalog catalog_;
  Node recipe_;
};

void judge(const RecipeChecker& checker, const RankLayout& layout, LayoutList& list) {
  Report report = checker.report(overrides(layout));
  const Diagnostic *refusal = nullptr, *missing = nullptr;
  for (const auto& d : report.diagnostics()) {
    if (d.severity != Severity::error) continue;
    const Diagnostic*& first = d.code == "not-built" ? missing : refusal;
    if (!first) first = &d;
  }
  auto detail = [&](const Diagnostic& d) {
    return cat(text(layout), ": ", d.path, ": ", d.message);
  };
  if (refusal)
    refuse(list.refused, refusal->code, detail(*refusal), layout);
  else if (missing)
    refuse(list.not_built, cat(missing->path, " ", missing->message), detail(*missing), layout);
  else
    list.valid.push_back(layout);
}

/// All pairs of choices in a layout, such as "cp=2|zero=3".
std::set<std::string> pairs(const RankLayout& layout) {
  std::set<std::string> out;
  auto all = choices(layout);
  for (auto a = all.begin(); a != all.end(); ++a)
    for (auto b = std::next(a); b != all.end(); ++b)
      out.insert(cat(a->first, "=", a->second, "|", b->first, "=", b->second));
  return out;
}

}  // namespace

int RankLayout::distance() const {
  int n = 0;
  for (int64_t size : {tp, pp, cp, dp(), ep, etp, vp}) n += size > 1 ? 1 : 0;
  return n + (sp ? 1 : 0) + (zero > 0 ? 1 : 0) + (resident > 0 ? 1 : 0) + (mtp_apart ? 1 : 0) +
         (schedule != "1f1b" ? 1 : 0) + (cp_comm != "p2p" ? 1 : 0) + (recompute != "none" ? 1 : 0);
}

std::string text(const RankLayout& l) {
  std::vector<std::string> words;
  auto axis = [&](const char* name, int64_t size, const std::string& how = "") {
    if (size > 1) words.push_back(cat(name, size, how));
  };
  axis("tp", l.tp, l.sp ? "+sp" : "");
  axis("pp", l.pp, cat(" ", l.schedule));
  axis("vp", l.vp);
  if (l.mtp_apart) words.emplace_back("mtp-apart");
  axis("cp", l.cp, cat(" ", l.cp_comm));
  axis("ep", l.ep);
  axis("etp", l.etp);
  axis("dp", l.dp());
  if (l.zero > 0) words.push_back(cat("zero", l.zero));
  if (l.resident > 0) words.push_back(cat("resident", l.resident));
  if (l.recompute != "none") words.push_back(cat("recompute-", l.recompute));
  return words.empty() ? "one rank" : join(words, " ");
}

std::vector<std::string> overrides(const RankLayout& l) {
  std::vector<std::string> out;
  auto size = [&](const char* name, int64_t value, int64_t usual) {
    if (value != usual) out.push_back(cat("dist.", name, "=", value));
  };
  size("nproc", l.ranks, 1);
  size("tp", l.tp, 1);
  size("pp", l.pp, 1);
  size("vp", l.vp, 1);
  size("cp", l.cp, 1);
  size("ep", l.ep, 1);
  size("etp", l.etp, 1);
  size("zero", l.zero, 0);
  size("resident_stages", l.resident, 0);
  if (l.sp) out.emplace_back("dist.sp=true");
  if (l.mtp_apart) out.emplace_back("model.mtp.standalone=true");
  if (l.schedule != "1f1b") out.push_back(cat("dist.schedule=", l.schedule));
  if (l.cp_comm != "p2p") out.push_back(cat("dist.cp_comm=['", l.cp_comm, "']"));
  if (l.cp_comm == "a2a+p2p") out.push_back(cat("dist.cp_hierarchy=[2,", l.cp / 2, "]"));
  const bool distributed = l.recompute == "distributed";
  if (distributed) out.emplace_back("model.recompute_distribute=true");
  if (l.recompute != "none")
    out.push_back(cat("model.recompute=", distributed ? "full" : l.recompute));
  return out;
}

LayoutList list_layouts(const std::string& recipe, const PluginHost& plugins, int64_t ranks,
                        const LayoutFilter& filter) {
  RecipeChecker reader(recipe, plugins);
  Report alone = reader.report({});
  alone.throw_if_errors();
  LayoutList list;
  for (const auto& layout :
       combinations(ranks, reader.fact(Fact::experts) > 1, reader.fact(Fact::mtp_layers) > 0)) {
    if (layout.cp_comm == "a2a+p2p" && layout.cp < 4)
      continue;  // each of its two levels has at least two ranks
    if (filter && !filter(layout)) continue;
    ++list.candidates;
    judge(reader, layout, list);
  }
  return list;
}

std::vector<RankLayout> pairwise(const std::vector<RankLayout>& layouts) {
  std::vector<std::set<std::string>> open;
  for (const auto& layout : layouts) open.push_back(pairs(layout));
  std::vector<RankLayout> out;
  for (;;) {
    auto best = std::max_element(open.begin(), open.end(),
                                 [](const auto& a, const auto& b) { return a.size() < b.size(); });
    if (best == open.end() || best->empty()) return out;
    std::set<std::string> covered = *best;
    out.push_back(layouts[static_cast<size_t>(best - open.begin())]);
    for (auto& rest : open)
      for (const auto& pair : covered) rest.erase(pair);
  }
}

}  // namespace mtrain
