#include "mtrain/config/show.h"

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/json_write.h"
#include "mtrain/config/override.h"
#include "mtrain/config/provenance.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/share.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

/// The tree before its expressions were computed.
Node as_written(const Node& node) {
  if (!node.expression().empty()) return Node::string(node.expression());
  Node out = node;
  for (auto& item : out.items()) item = as_written(item);
  for (auto& entry : out.entries()) entry.value = as_written(entry.value);
  return out;
}

Node raw_view(const ConfigContainer& config) {
  Node out = as_written(config.composition().tree);
  for (const auto& path : config.secrets()) {
    const Node* written = config.composition().tree.find(path);
    if (written && written->expression().empty()) *out.find(path) = Node::plain("???");
  }
  return out;
}

/// True for a value that the recipe could leave out.
bool is_default(const ConfigContainer& config, const SchemaCatalog& catalog,
                const std::string& path, const Node& leaf) {
  if (leaf.loc() && leaf.loc().source->kind() == SourceKind::built_in) return true;
  std::string section = path.substr(0, path.find('.'));
  auto specs = catalog.settings_at(path, config.type_of(section));
  // The component's default takes precedence over the section's.
  for (auto spec = specs.rbegin(); spec != specs.rend(); ++spec)
    if (!(*spec)->default_value.empty()) return default_value(**spec, section).same_value(leaf);
  return false;
}

Node minimal_view(const ConfigContainer& config, const SchemaCatalog& catalog) {
  Node out = Node::map();
  each_leaf(config.resolved(), [&](const std::string& path, const Node& leaf) {
    const Node* value = config.root().find(path);
    const bool share = value && parse_share(value->expression());
    if (share || !is_default(config, catalog, path, value ? *value : leaf)) out.set(path, leaf);
  });
  return out;
}

/// Whether the keys of a map can be written in the path of an override: "na me" cannot.
bool has_plain_keys(const Node& map) {
  const auto& entries = map.entries();
  return std::all_of(entries.begin(), entries.end(), [](const Node::Entry& entry) {
    return entry.key.find('.') == std::string::npos && looks_like_override(entry.key + "=");
  });
}

std::string flags(const Node& node, const std::string& path) {
  if (!node.is_map() || node.size() == 0 || (!path.empty() && !has_plain_keys(node)))
    return cat(path, "=", override_value_text(node), "\n");
  std::string out;
  for (const auto& entry : node.entries())
    out += flags(entry.value, path.empty() ? entry.key : cat(path, ".", entry.key));
  return out;
}

std::string annotated(const ConfigContainer& config, const SchemaCatalog& catalog,
                      const Node& shown, const std::string& prefix) {
  WriteOptions options;
  options.comment = [&](const std::string& rest, const Node&) {
    std::string path = prefix.empty() ? rest : rest.empty() ? prefix : prefix + "." + rest;
    const Node* value = config.root().find(path);
    auto specs = catalog.settings_at(path, config.type_of(path.substr(0, path.find('.'))));
    if (!value || specs.empty()) return std::string();
    std::string origin = value->loc() ? value->loc().text() : "";
    if (!value->expression().empty()) origin += cat(", ", value->expression());
    return cat(origin, ": ", specs.front()->doc, " [", describe(*specs.front()), "]");
  };
  return write_yaml(shown, options);
}

}  // namespace

std::string show_config(const ConfigContainer& config, const SchemaCatalog& catalog,
                        const ShowOptions& options) {
  Node whole = options.view == ConfigView::raw       ? raw_view(config)
               : options.view == ConfigView::minimal ? minimal_view(config, catalog)
                                                     : config.resolved();
  // A computed setting is omitted from the whole configuration, since a recipe cannot set it. It is
  // shown when it is requested by its path.
  bool hidden = options.view != ConfigView::raw && !config.is_secret(options.path) &&
                !whole.find(options.path);
  if (hidden) whole = config.root();
  Node shown = options.path.empty() ? std::move(whole) : Node(whole.at(options.path));
  if (options.format == ConfigFormat::flags) return flags(shown, options.path);
  if (options.format == ConfigFormat::json) return write_json(shown) + "\n";
  if (options.view == ConfigView::annotated) return annotated(config, catalog, shown, options.path);
  return write_yaml(shown);
}

}  // namespace mtrain
