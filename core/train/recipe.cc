#include "mtrain/train/recipe.h"

#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/plugin/sidecar.h"
#include "mtrain/train/hf_import.h"
#include "mtrain/train/rules.h"

namespace mtrain {
namespace {

// Arguments are counted as `mtrain RECIPE k=v …` shows them: the recipe is the first.
std::vector<OverrideText> numbered(const std::vector<std::string>& overrides) {
  std::vector<OverrideText> out;
  for (const auto& text : overrides) out.push_back({text, static_cast<int>(out.size()) + 2});
  return out;
}

bool same_number(const Node& a, const Node& b) {
  auto numeric = [](const Node& n) { return n.is(NodeKind::integer) || n.is(NodeKind::number); };
  return numeric(a) && numeric(b) && a.as_double() == b.as_double();
}

// What config.json of model.init_from says becomes the value of settings that the recipe leaves alone; one that the recipe
// sets to something else is an error there.
ConfigContainer with_hf_settings(ConfigRequest request, ConfigContainer config, const fs::path& directory,
                                 const SchemaCatalog& catalog, Report& report) {
  const Node* from = config.root().find("model.init_from");
  if (!from || from->as_text().empty()) return config;
  fs::path folder = fs::path(from->as_text()).is_absolute() ? fs::path(from->as_text()) : directory / from->as_text();
  std::string file = (folder / "config.json").string();
  std::vector<const Schema*> schemas = {catalog.section("model"), catalog.component("model", config.type_of("model"))};
  for (const auto& setting : hf_settings(HfDir(folder).config_text(), file, schemas)) {
    const Node* ours = config.root().find(setting.path);
    if (!ours) continue;
    bool said = ours->loc() && ours->loc().source->kind() != SourceKind::built_in;
    if (!said) request.overrides.push_back({cat("++", setting.path, "=", brief(setting.value)), 0});
    else if (brief(*ours) != brief(setting.value) && !(ours->is_scalar() && same_number(*ours, setting.value)))
      report.error("hf-config", setting.path, ours->loc(), cat(brief(*ours), " differs from ", file, ", where ", setting.theirs, " is ", brief(setting.value)))
          .fix(cat("leave ", setting.path, " out, or set it to ", brief(setting.value)));
  }
  return ConfigContainer::load(request, catalog, report);
}

Recipe finish(const ConfigRequest& request, const fs::path& directory, std::string name, const PluginHost& plugins) {
  Report report;
  Recipe recipe;
  SchemaCatalog catalog = schema_catalog(plugins);
  recipe.config = ConfigContainer::load(request, catalog, report);
  report.throw_if_errors();
  recipe.config = with_hf_settings(request, std::move(recipe.config), directory, catalog, report);
  report.throw_if_errors();
  Settings::each(recipe.settings, [&](const char* section, const char*, const char*, auto& part) {
    Fields fields;
    part.bind(fields);
    read_fields(recipe.config.section(section), fields);
  });
  check_rules(recipe.settings, recipe.config, report);
  report.throw_if_errors();
  recipe.directory = directory;
  recipe.name = recipe.settings.run.name.empty() ? std::move(name) : recipe.settings.run.name;
  return recipe;
}

}  // namespace

const Node& Recipe::component(std::string_view section) const { return config.component(section); }

fs::path Recipe::resolve(const std::string& path) const {
  return fs::path(path).is_absolute() ? fs::path(path) : directory / path;
}

fs::path Recipe::run_directory() const {
  return settings.run.dir.empty() ? fs::path("runs") / name : fs::path(settings.run.dir);
}

fs::path Recipe::checkpoint_directory() const {
  return settings.checkpoint.dir.empty() ? run_directory() / "checkpoints" : fs::path(settings.checkpoint.dir);
}

SchemaCatalog schema_catalog(const PluginHost& plugins) {
  SchemaCatalog catalog;
  Settings defaults;
  Settings::each(defaults, [&](const char* name, const char* doc, const char*, auto& part) {
    Fields fields;
    part.bind(fields);
    Schema schema{name, doc, {}};
    for (const auto& field : fields.fields()) schema.fields.push_back(field.spec);
    catalog.add_section(std::move(schema));
  });
  add_components(plugins, catalog);
  return catalog;
}

Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides, const PluginHost& plugins) {
  ConfigRequest request{.recipe = path, .text = {}, .overrides = numbered(overrides)};
  fs::path file = fs::absolute(path);
  return finish(request, file.parent_path(), file.stem().string(), plugins);
}

Recipe recipe_from_text(const std::string& text, const std::string& source_name, const fs::path& directory,
                        const std::vector<std::string>& overrides, const PluginHost& plugins) {
  ConfigRequest request{.recipe = source_name, .text = text, .overrides = numbered(overrides)};
  return finish(request, directory, source_name, plugins);
}

}  // namespace mtrain
