#include "mtrain/config/defaults_report.h"

#include <algorithm>

#include "mtrain/base/counted.h"
#include "mtrain/base/text.h"
#include "mtrain/config/json_write.h"
#include "mtrain/config/provenance.h"

namespace mtrain {
namespace {

struct Share {
  int64_t settings = 0;
  Node shadowed = Node::list();
};

std::string source_of(const Location& where) { return where ? where.source->name() : ""; }

using ReplacedBy = std::function<std::string(const std::string&)>;

std::map<std::string, Share> shares(const Node& tree, const ReplacedBy& replaced_by) {
  std::map<std::string, Share> out;
  each_leaf(tree, [&](const std::string& path, const Node& leaf) {
    const std::string other = replaced_by(path);
    const std::string by = other.empty() ? "" : source_of(tree.find(other)->loc());
    const std::string own = source_of(leaf.loc());
    if (by.empty() || by == own)
      ++out[own].settings;
    else
      out[own].shadowed.push(make_map({{"path", Node::string(path)}, {"by", Node::string(by)}}));
    for (size_t i = 0; i < leaf.history().size(); ++i) {
      std::string loser = source_of(leaf.history()[i].where);
      std::string winner =
          source_of(i + 1 < leaf.history().size() ? leaf.history()[i + 1].where : leaf.loc());
      out[loser].shadowed.push(
          make_map({{"path", Node::string(path)}, {"by", Node::string(winner)}}));
    }
  });
  return out;
}

/// What becomes of the settings of one option.
struct Effect {
  int64_t counting = 0;     // settings that have the option's value
  std::string path, value;  // of the first that has another one, and what the option says
  const Node* winner = nullptr;
  bool component = false;  // the first is the section's type
};

Effect effect_of(const Node& tree, const DefaultsLine& choice) {
  Effect out;
  each_leaf(tree, [&](const std::string& path, const Node& leaf) {
    const std::string now = brief(leaf);
    if (source_of(leaf.loc()) == choice.file) ++out.counting;
    for (const auto& earlier : leaf.history()) {
      if (source_of(earlier.where) != choice.file) continue;
      if (earlier.value == now || leaf.loc().source->kind() != SourceKind::file) {
        ++out.counting;  // the command line's own values come after its choices, as it says
        continue;
      }
      const bool component = path == cat(choice.package, ".type");
      if (!out.path.empty() && !component) continue;
      out.path = path, out.value = earlier.value, out.winner = &leaf, out.component = component;
    }
  });
  return out;
}

std::string file_text(const Node& file) {
  const Node& shadowed = *file.get("shadowed");
  int64_t settings = file.get("settings")->as_int();
  if (settings == 0 && shadowed.size() == 0) return "no settings of its own";
  std::string out = counted(settings, "setting");
  constexpr size_t kShown = 3;
  for (size_t i = 0; i < std::min(shadowed.size(), kShown); ++i)
    out += cat(i == 0 ? cat(", ", shadowed.size(), " shadowed: ") : ", ",
               shadowed.items()[i].get("path")->as_text(), " by ",
               shadowed.items()[i].get("by")->as_text());
  return shadowed.size() > kShown ? out + ", …" : out;
}

}  // namespace

void warn_of_idle_choices(const Composition& composition, Report& report) {
  for (const auto& choice : composition.defaults) {
    const bool chosen = choice.where && !choice.dropped && !choice.file.empty() &&
                        choice.where.source->kind() == SourceKind::command_line;
    if (!chosen) continue;
    const Effect effect = effect_of(composition.tree, choice);
    if (!effect.winner || (effect.counting > 0 && !effect.component)) continue;
    report
        .warning(
            "idle-choice", effect.path, effect.winner->loc(),
            cat(effect.component ? "the recipe replaces" : "has no effect: the recipe replaces",
                " what ", choice.where.source->text(), " chooses (", effect.value, ")"))
        .fix(cat("write ", effect.path, "=", effect.value, " on the command line"));
  }
}

Node defaults_report(const Composition& composition, const ReplacedBy& replaced_by) {
  Node tree = Node::list(), files = Node::list();
  for (const auto& line : composition.defaults)
    tree.push(make_map({{"depth", Node::integer(line.depth)},
                        {"entry", Node::string(line.entry)},
                        {"file", Node::string(line.file)},
                        {"package", Node::string(line.package)},
                        {"where", Node::string(line.where.text())},
                        {"dropped", Node::boolean(line.dropped)}}));
  auto share = shares(composition.tree, replaced_by);
  for (const auto& file : composition.files) {
    Share& own = share[file.file];
    files.push(make_map({{"file", Node::string(file.file)},
                         {"package", Node::string(file.package)},
                         {"settings", Node::integer(own.settings)},
                         {"shadowed", own.shadowed},
                         {"unused", Node::boolean(own.settings == 0 && own.shadowed.size() > 0)}}));
  }
  return make_map({{"recipe", Node::string(composition.file)},
                   {"tree", std::move(tree)},
                   {"files", std::move(files)}});
}

std::string defaults_text(const Node& report) {
  std::string out;
  for (const auto& line : report.get("tree")->items()) {
    out.append(static_cast<size_t>(line.get("depth")->as_int()) * 2, ' ');
    out += line.get("entry")->as_text();
    const std::string& file = line.get("file")->as_text();
    const std::string& package = line.get("package")->as_text();
    if (line.get("depth")->as_int() > 0 && !file.empty())
      out += cat("   ", file, package.empty() ? "" : " at " + package, "   chosen at ",
                 line.get("where")->as_text());
    if (line.get("dropped")->as_bool())
      out += "   (nothing: null, removed, or an optional file that does not exist)";
    out += '\n';
  }
  out += "in the order of merging, later ones win:\n";
  for (const auto& file : report.get("files")->items()) {
    out += cat("  ", file.get("file")->as_text(), ": ", file_text(file));
    if (file.get("unused")->as_bool()) out += "; none of them is used";
    out += '\n';
  }
  return out;
}

}  // namespace mtrain
