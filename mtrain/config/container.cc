#include "mtrain/config/container.h"

#include <algorithm>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/component_names.h"
#include "mtrain/config/interpolate.h"
#include "mtrain/config/merge_order.h"
#include "mtrain/config/not_built.h"
#include "mtrain/config/null_names.h"
#include "mtrain/config/operand.h"
#include "mtrain/config/override_value.h"
#include "mtrain/config/setting_names.h"
#include "mtrain/config/share.h"
#include "mtrain/config/text_settings.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

/// "optimizer: adamw" -> "optimizer: {type: adamw}".
Node expanded(Node value) {
  if (!value.is_scalar() || value.is_null()) return value;
  Location where = value.loc();
  Node map = Node::map().set_location(where);
  map.append("type", where, std::move(value));
  return map;
}

void expand_shorthands(Node& root, const SchemaCatalog& catalog) {
  for (auto& entry : root.entries())
    if (!catalog.kind_of(entry.key).empty()) entry.value = expanded(std::move(entry.value));
}

Node default_or_derived(const FieldSpec& spec, const std::string& owner) {
  if (spec.derived.empty()) return default_value(spec, owner);
  auto source = std::make_shared<Source>(SourceKind::built_in, "derived by " + owner, spec.derived);
  return Node::string(spec.derived).set_location({source, 0, 0});
}

/// The setting that a derived one is computed from: the first path of its expression.
std::string owner_of(const std::string& expression, const std::string& path) {
  auto word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  };
  for (size_t i = 0; i < expression.size(); ++i) {
    size_t end = i;
    while (end < expression.size() && word(expression[end])) ++end;
    std::string token = expression.substr(i, end - i);
    bool relative = token.starts_with('.');
    bool is_path = token.find('.') != std::string::npos &&
                   !std::isdigit(static_cast<unsigned char>(token.back()));
    if (is_path && relative) {  // one dot is a sibling, each further dot goes one level up
      std::string base = path;
      size_t dots = std::min(token.find_first_not_of('.'), token.size());
      for (size_t level = 0; level < dots; ++level)
        base.resize(std::min(base.rfind('.'), base.size()));
      return base + "." + token.substr(dots);
    }
    if (is_path) return token;
    i = std::max(i, end);
  }
  return {};
}

/// The default of a setting that is absent from the recipe.
std::optional<Node> default_of(const std::string& path, const Node& tree,
                               const SchemaCatalog& catalog) {
  size_t dot = path.find('.');
  if (dot == std::string::npos) return std::nullopt;
  std::string name = path.substr(0, dot), setting = path.substr(dot + 1);
  auto owners = owners_in(tree, name, catalog);
  for (auto owner = owners.rbegin(); owner != owners.rend();
       ++owner)  // a component's own setting comes first
    for (const auto& spec : (*owner)->fields)
      if (spec.path == setting && (!spec.required || !spec.derived.empty()))
        return default_or_derived(spec,
                                  *owner == owners.front() ? name : name + "/" + (*owner)->name);
  return std::nullopt;
}

/// The merge rules of the sections and of the components that they name.
MergeRules merge_rules(const Node& tree, const SchemaCatalog& catalog) {
  MergeRules out;
  for (const auto& section : catalog.sections())
    for (const Schema* owner : owners_in(tree, section.name, catalog))
      for (const auto& spec : owner->fields)
        if (spec.merge.kind != MergeKind::deep) out.add(section.name + "." + spec.path, spec.merge);
  return out;
}

/// The composed recipe with its overrides, not yet checked against anything.
std::optional<Composition> composed(const ConfigRequest& request, const SchemaCatalog& catalog,
                                    Report& report) {
  ComposeRequest compose_request;
  compose_request.recipe = request.recipe;
  compose_request.text = request.text;
  compose_request.tree = request.tree;
  compose_request.search_path = request.search_path;
  compose_request.overrides = request.overrides;
  compose_request.expand = [&](Node& body) { expand_shorthands(body, catalog); };
  compose_request.names_component = [&](const std::string& key, const Node& value) {
    return names_type(key, value.as_text(), catalog);
  };
  compose_request.replace_component = [&](Node& tree, const std::string& key,
                                          const std::string& name) {
    drop_component(tree, key, name, catalog);
  };
  compose_request.has_presets = [&](const std::string& key) {
    return catalog.section(key) && catalog.kind_of(key).empty();
  };
  compose_request.merge_rules = [&](const Node& tree) { return merge_rules(tree, catalog); };
  compose_request.default_of = [&](const Node& tree, const std::string& path) {
    return default_of(path, tree, catalog);
  };
  compose_request.names_of = [&](const Composition& so_far, const std::string& path) {
    return names_of(path, so_far, request.overrides, catalog);
  };
  compose_request.advice = [&](const std::string& key) { return catalog.advice(key); };
  compose_request.components = [&](const std::string& key) {
    const std::string kind = catalog.kind_of(key);
    return kind.empty() ? std::vector<std::string>() : built_components(catalog, kind);
  };
  compose_request.name_advice = [&](const std::string& key, const std::string& name) {
    return catalog.component_advice(catalog.kind_of(key), name);
  };
  compose_request.is_text = [&](const std::string& path) { return is_text_setting(path, catalog); };
  auto out = compose(compose_request, report);
  if (!out) return out;
  const bool alone = out->files.size() == 1 && out->defaults.size() <= 1;
  if (alone && out->tree.size() == 0 && request.overrides.empty())
    report.error("empty", "", out->tree.loc(), "the recipe is empty")
        .fix("a recipe sets at least a model and a dataset");
  return out;
}

/// Computes the interpolations of the composed tree.
void compute(Composition& composition, const ConfigRequest& request, const SchemaCatalog& catalog,
             Report& report) {
  Node& tree = composition.tree;
  InterpolationScope scope;
  scope.fallback = [&](const std::string& path) { return default_of(path, tree, catalog); };
  scope.path_of = [&](const std::string& path) {
    return path_in(composition, request.overrides, catalog, path);
  };
  scope.replaced_by = [&](const std::string& path) {
    return alternative_in(composition, request.overrides, catalog, path);
  };
  scope.operand = [&](const std::string& path, const Node& value, Report& faults) {
    return read_operand(value, path, owners_in(tree, path.substr(0, path.find('.')), catalog),
                        faults);
  };
  scope.resolvers = request.resolvers;
  scope.now = request.now;
  interpolate(tree, scope, report);
}

/// Records the components and settings of a section that are declared but not implemented.
void gather_not_built(const Schema& section, const Schema* component, const Node& values,
                      const SchemaCatalog& catalog, NotBuilt& lacking) {
  for (const Schema* owner : {&section, component}) {
    if (!owner) continue;
    for (const auto& spec : owner->fields) {
      const Node* name = spec.plugin_kind.empty() ? nullptr : values.find(spec.path);
      const Schema* named = name ? catalog.component(spec.plugin_kind, name->as_text()) : nullptr;
      if (named)
        lacking.component(*named, section.name + "." + spec.path, *name,
                          built_components(catalog, spec.plugin_kind));
    }
    lacking.settings(*owner, section.name, values);
  }
}

/// Escapes literal text that looks like an interpolation, and replaces a confidential value by its
/// expression, which is evaluated again when the text is loaded.
void escape(Node& node) {
  if (node.confidential() && !node.expression().empty()) {
    node = Node::string(node.expression());
    return;
  }
  if (node.is(NodeKind::string) && has_interpolation(node.as_text()))
    node = Node::quoted_string(escape_interpolation(node.as_text()));
  for (auto& item : node.items()) escape(item);
  for (auto& entry : node.entries()) escape(entry.value);
}

std::string first_part(const std::string& path) { return path.substr(0, path.find('.')); }

/// Whether the option of the section's group, or a file that may have any settings, was reported as
/// absent or not chosen. What it would have set is then missing for this reason.
bool choice_failed(const std::string& section, const SchemaCatalog& catalog, const Report& report) {
  return std::ranges::any_of(report.diagnostics(), [&](const Diagnostic& d) {
    const bool any_section = d.code == "defaults" && !catalog.section(first_part(d.path));
    return any_section || (d.path == section && (d.code == "defaults" || d.code == "missing"));
  });
}

Report without_missing(const Report& report) {
  Report out;
  for (const Diagnostic& d : report.diagnostics()) {
    if (d.code == "missing") continue;
    (d.severity == Severity::error ? out.error(d.code, d.path, d.where, d.message)
                                   : out.warning(d.code, d.path, d.where, d.message)) = d;
  }
  return out;
}

/// For a section without `type`, reports the keys that no component of its kind has: one of them
/// may be a mistyped `type`.
void check_untyped(const Schema& section, const Node& given, const KeyIndex& known,
                   const SchemaCatalog& catalog, Report& report) {
  std::string kind = catalog.kind_of(section.name);
  std::set<std::string> names;
  auto take = [&](const Schema& schema) {
    for (const auto& spec : schema.fields) {
      names.insert(first_part(spec.path));
      for (const auto& old : spec.renamed_from) names.insert(first_part(old));
    }
  };
  take(section);
  for (const auto& name : catalog.components(kind)) take(*catalog.component(kind, name));
  for (const auto& entry : given.entries()) {
    if (names.contains(entry.key)) continue;
    std::string path = join_path(section.name, entry.key);
    auto& fault = report.error("unknown-key", path, entry.key_where, "no such setting");
    fault.fix(known.help(path));
  }
}

}  // namespace

ConfigContainer ConfigContainer::load(const ConfigRequest& request, const SchemaCatalog& catalog,
                                      Report& report) {
  ConfigContainer out;
  out.overrides_ = request.overrides;
  auto loaded = composed(request, catalog, report);
  if (!loaded) return out;
  out.composition_ = std::move(*loaded);
  Node* tree = &out.composition_.tree;
  for (const ComposedFile& file : out.composition_.files)
    if (request.resolved && file.file == out.composition_.file)
      drop_replaced_settings(*tree, file.source, catalog);
  compute(out.composition_, request, catalog, report);
  name_nulls(*tree, catalog, report);
  Node empty;
  auto given_of = [&](const std::string& name) -> const Node& {
    const Node* given = tree->get(name);
    return given ? *given : empty;
  };
  ChosenComponents chosen;
  std::map<std::string, const Schema*> component;
  for (const auto& schema : catalog.sections()) {
    const Schema* found = component_of(schema, given_of(schema.name), catalog, report);
    component[schema.name] = found;
    if (found) chosen.emplace_back(schema.name, found);
  }
  if (out.place_derived(component, catalog, report))
    compute(out.composition_, request, catalog, report);
  out.shares_ = take_shares(*tree, catalog, component, report);
  KeyIndex known = all_names(catalog, chosen);
  constexpr size_t kMaxSuggestions = 64;
  size_t unknown = 0;
  for (const auto& entry : tree->entries())
    if (!catalog.section(entry.key))
      unknown_section(entry, *tree, known, ++unknown <= kMaxSuggestions, catalog, report);
  out.root_ = Node::map().set_location(tree->loc());
  for (const auto& schema : catalog.sections())
    out.read_section(schema, component[schema.name], given_of(schema.name), known, catalog, report);
  out.apply_shares();
  NotBuilt lacking;
  for (const auto& schema : catalog.sections())
    gather_not_built(schema, component[schema.name], *out.root_.get(schema.name), catalog, lacking);
  lacking.report_to(report);
  return out;
}

bool ConfigContainer::place_derived(const std::map<std::string, const Schema*>& component,
                                    const SchemaCatalog& catalog, Report& report) {
  Node& tree = composition_.tree;
  for (const auto& section : catalog.sections())
    for (const Schema* owner : {&section, component.at(section.name)}) {
      if (!owner) continue;
      for (const auto& spec : owner->fields) {
        if (spec.derived.empty()) continue;
        std::string path = section.name + "." + spec.path;
        derived_.push_back(path);
        if (const Node* given = tree.find(path)) {
          std::string from = owner_of(spec.derived, path);
          report
              .error("derived", path, given->loc(),
                     cat("is computed from ", spec.derived, " and cannot be set"))
              .fix(cat("remove it, or set ", from, ": ", brief(*given), " instead"));
        } else if (const Node* there = tree.get(section.name);
                   !there || there->is_map() || there->is_null()) {
          try {
            tree.set(path, default_or_derived(spec, section.name));
          } catch (const Error&) {
            // A part of the path is a scalar, which is reported elsewhere.
          }
        }
      }
    }
  return !derived_.empty();
}

void ConfigContainer::read_section(const Schema& schema, const Schema* component, const Node& given,
                                   const KeyIndex& known, const SchemaCatalog& catalog,
                                   Report& report) {
  ValidateOptions options;
  options.path = schema.name;
  options.known = &known;
  options.order = [&](const Location& where) {
    return merge_order(composition_, overrides_, where);
  };
  // When a section's component is unknown, its settings cannot be distinguished from typos, so only
  // the core's settings are checked.
  bool open = !component && !catalog.kind_of(schema.name).empty();
  options.allow_unknown = open;
  if (open && !given.get("type")) check_untyped(schema, given, known, catalog, report);
  std::vector<const Schema*> owners = {&schema};
  if (component) owners.push_back(component);
  Report faults;
  auto parts = validate(given, owners, faults, options);
  report.add(choice_failed(schema.name, catalog, report) ? without_missing(faults)
                                                         : std::move(faults));
  check_plugin_names(schema, parts[0], schema.name, catalog, report);
  Node whole = parts[0];
  if (component) {
    check_plugin_names(*component, parts[1], schema.name, catalog, report);
    whole.merge(parts[1]);
  }
  for (const auto* owner : owners)
    for (const auto& spec : owner->fields) {
      if (spec.secret) secrets_.push_back(schema.name + "." + spec.path);
      if (spec.fact != Fact::none) facts_.emplace(spec.fact, schema.name + "." + spec.path);
    }
  root_.append(schema.name, given.loc(), std::move(whole));
  Node none = Node::map().set_location(given.loc()).with_base_path(schema.name);
  parts_[schema.name] = {std::move(parts[0]), component ? std::move(parts[1]) : std::move(none)};
}

ConfigContainer ConfigContainer::load_or_throw(const ConfigRequest& request,
                                               const SchemaCatalog& catalog) {
  Report report;
  ConfigContainer out = load(request, catalog, report);
  report.throw_if_errors();
  return out;
}

std::string ConfigContainer::replaced_by(const std::string& path,
                                         const SchemaCatalog& catalog) const {
  const auto names = names_of(path, composition_, overrides_, catalog);
  if (!names.empty() && names.front() != path && composition_.tree.find(names.front()))
    return names.front();
  return alternative_in(composition_, overrides_, catalog, path);
}

const Node& ConfigContainer::section(std::string_view name) const {
  auto found = parts_.find(name);
  MT_CHECK(found != parts_.end(), "no section ", name);
  return found->second.core;
}

const Node& ConfigContainer::component(std::string_view name) const {
  auto found = parts_.find(name);
  MT_CHECK(found != parts_.end(), "no section ", name);
  return found->second.component;
}

void ConfigContainer::apply_shares(std::string_view of) {
  for (const auto& share : shares_) {
    const Node* whole = root_.find(share.of);
    Node* now = root_.find(share.path);
    auto part = now ? parse_share(now->expression()) : std::nullopt;
    if ((!of.empty() && of != share.of) || !whole || !whole->is(NodeKind::integer) || !part)
      continue;
    Node number = Node::integer(share_of(*part, whole->as_int()));
    number.set_location(now->loc()).adopt_provenance(*now);
    *now = number;
    Part& owners = parts_.find(share.path.substr(0, share.path.find('.')))->second;
    for (Node* owner : {&owners.core, &owners.component})
      if (Node* theirs = owner->find(share.path.substr(share.path.find('.') + 1))) *theirs = number;
  }
}

void ConfigContainer::resolve(std::string_view path, Node value, std::string_view instead_of) {
  size_t dot = path.find('.');
  auto part = parts_.find(path.substr(0, dot));
  MT_CHECK(dot != std::string_view::npos && part != parts_.end() &&
               root_.find(instead_of.empty() ? path : instead_of),
           "no setting ", path);
  if (!instead_of.empty()) {
    part->second.core.erase(instead_of.substr(instead_of.find('.') + 1));
    root_.erase(instead_of);
  }
  part->second.core.set(path.substr(dot + 1), value);
  root_.set(path, std::move(value));
  apply_shares(path);
}

void ConfigContainer::rewrite(std::string_view path, Node value) {
  const std::string_view section = path.substr(0, path.find('.')),
                         own = path.substr(section.size() + 1);
  auto part = parts_.find(section);
  MT_CHECK(part != parts_.end(), "no setting ", path);
  for (Node* there :
       {part->second.core.find(own), part->second.component.find(own), root_.find(path)})
    if (there) *there = value;
}

std::string ConfigContainer::type_of(std::string_view name) const {
  const Node* type = section(name).get("type");
  return type && !type->is_null() ? type->as_text() : "";
}

Node ConfigContainer::resolved() const {
  Node shown = root_;
  for (const auto& share :
       shares_)  // keep shares as written, since their numbers depend on another setting
    if (Node* part = shown.find(share.path); part && parse_share(part->expression()))
      *part = Node::plain(part->expression()).set_location(part->loc());
  for (const auto& path : secrets_) shown.erase(path);
  for (const auto& path : derived_)
    shown.erase(path);  // they are recomputed when the text is loaded
  escape(shown);
  return shown;
}

std::string ConfigContainer::to_yaml() const { return write_yaml(resolved()); }

bool ConfigContainer::is_secret(std::string_view path) const {
  return std::find(secrets_.begin(), secrets_.end(), path) != secrets_.end();
}

}  // namespace mtrain
