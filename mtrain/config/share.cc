#include "mtrain/config/share.h"

#include <cmath>

#include "mtrain/base/text.h"
#include "mtrain/config/scalar.h"

namespace mtrain {
namespace {

bool may_be_share(const Node& node) {
  return node.is(NodeKind::string) && (!node.quoted() || node.is_verbatim()) && !node.faulty();
}

}  // namespace

std::optional<double> parse_share(std::string_view text) {
  if (!text.ends_with('%')) return std::nullopt;
  auto percent = parse_number(trim(text.substr(0, text.size() - 1)));
  if (!percent || !std::isfinite(*percent)) return std::nullopt;
  return *percent / 100;
}

int64_t share_of(double part, int64_t whole) {
  return std::llround(part * static_cast<double>(whole));
}

std::vector<ConfigShare> take_shares(Node& tree, const SchemaCatalog& catalog,
                                     const std::map<std::string, const Schema*>& component,
                                     Report& report) {
  std::vector<ConfigShare> out;
  auto take = [&](const FieldSpec& spec, const std::string& section, const std::string& name) {
    std::string setting = section + "." + name;
    Node* node = tree.find(setting);
    if (!node || !may_be_share(*node)) return;
    auto part = parse_share(node->as_text());
    if (!part) return;
    if (*part < 0 || *part > 1) {
      report.error(
          "out-of-range", setting, node->loc(),
          cat("wanted a share of ", spec.share_of, " from 0% to 100%, got ", node->as_text()));
      node->mark_faulty();
      return;
    }
    out.push_back({section + "." + spec.path, spec.share_of});
    Node number = Node::integer(0);
    number.set_location(node->loc()).adopt_provenance(*node).computed_from(node->as_text());
    *node = std::move(number);
  };
  for (const auto& section : catalog.sections())
    for (const Schema* owner : {&section, component.at(section.name)}) {
      if (!owner) continue;
      for (const auto& spec : owner->fields) {
        if (spec.share_of.empty()) continue;
        take(spec, section.name, spec.path);
        for (const auto& old : spec.renamed_from) take(spec, section.name, old);
      }
    }
  return out;
}

}  // namespace mtrain
