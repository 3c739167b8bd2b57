#include "mtrain/train/recipe.h"

#include "mtrain/plugin/sidecar.h"
#include "mtrain/train/rules.h"

namespace mtrain {
namespace {

// Arguments are counted as `mtrain RECIPE k=v …` shows them: the recipe is the first.
std::vector<OverrideText> numbered(const std::vector<std::string>& overrides) {
  std::vector<OverrideText> out;
  for (const auto& text : overrides) out.push_back({text, static_cast<int>(out.size()) + 2});
  return out;
}

Recipe finish(const ConfigRequest& request, const fs::path& directory, std::string name, const PluginHost& plugins) {
  Report report;
  Recipe recipe;
  recipe.config = ConfigContainer::load(request, schema_catalog(plugins), report);
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
  std::map<std::string, std::vector<std::string>> problems;
  for (const auto& file : plugins.list()) {
    if (file.shadowed) continue;
    try {
      MT_USER_CHECK(file.problem.empty(), ErrorClass::plugin, file.problem, "");
      Schema schema = read_sidecar(file);
      schema.name = file.name;
      catalog.add_component(file.kind, std::move(schema));
    } catch (const Error& error) {
      problems[file.kind].push_back(error.message());
    }
  }
  std::vector<std::string> folders;
  for (const auto& folder : plugins.folders()) folders.push_back(folder.string());
  for (const char* kind : {"model", "tokenizer", "dataset", "optimizer"}) {
    std::string note = cat("searched: ", join(folders, ", "));
    for (const auto& problem : problems[kind]) note += cat("; ", problem);
    catalog.explain_kind(kind, note);
  }
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
