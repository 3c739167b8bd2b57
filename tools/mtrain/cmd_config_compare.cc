// mtrain config explain, diff: explains settings and compares configurations.
#include <iostream>

#include "config_commands.h"
#include "mtrain/base/error.h"
#include "mtrain/config/diff.h"
#include "mtrain/config/json_write.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/recipe/explain.h"
#include "mtrain/record/saved_config.h"

namespace mtrain {
namespace {

/// One side of a comparison.
struct Side {
  Node root;
  std::map<std::string, std::string> saved_origins;
  bool saved = false;

  std::string origin(const std::string& path, const Node& value) const {
    if (!saved) return value.loc().text();
    auto found = saved_origins.find(path);
    return found == saved_origins.end() ? "" : found->second;
  }
};

/// The settings of a recipe. Paths of input files are absolute: the same text names other files in
/// another folder.
Node settings_of(Cli& cli, const RecipeRequest& request, const PluginHost& plugins) {
  Recipe recipe = inspect_recipe(cli, request, plugins);
  make_input_paths_absolute(recipe, plugins);
  return recipe.config.resolved();
}

Side read_side(Cli& cli, const std::string& path_or_name,
               const std::vector<OverrideText>& overrides, const PluginHost& plugins) {
  Side side;
  std::error_code ignored;
  RecipeRequest request;
  request.recipe = path_or_name;
  request.overrides = overrides;
  if (fs::is_directory(path_or_name, ignored)) {
    SavedConfig saved = read_saved_config(path_or_name);
    if (!overrides.empty()) {
      request.text = saved.resolved;
      request.resolved = true;
      request.directory = identity_of(saved).directory;
      side.root = settings_of(cli, request, plugins);
      return side;
    }
    side.root = parse_yaml(saved.resolved, path_or_name);
    make_input_paths_absolute(side.root, schema_catalog(plugins), identity_of(saved).directory);
    side.saved_origins = origins_of(saved);
    side.saved = true;
    return side;
  }
  side.root = settings_of(cli, request, plugins);
  return side;
}

std::string resume_class(const SchemaCatalog& catalog, const std::string& path, const Node& root) {
  const Node* type = root.find(path.substr(0, path.find('.')) + ".type");
  auto specs = catalog.settings_at(path, type ? type->as_text() : "");
  return specs.empty() ? "" : name(specs.front()->resume);
}

Node diff_node(const Side& a, const Side& b, const SchemaCatalog& catalog) {
  Node out = Node::list();
  auto side = [](const Side& of, const std::string& path, const Node* value) {
    if (!value) return Node();
    return make_map({{"value", *value}, {"where", Node::string(of.origin(path, *value))}});
  };
  for (const auto& d : differences(a.root, b.root))
    out.push(make_map(
        {{"path", Node::string(d.path)},
         {"a", side(a, d.path, d.before)},
         {"b", side(b, d.path, d.after)},
         {"resume", Node::string(resume_class(catalog, d.path, d.after ? b.root : a.root))}}));
  return out;
}

std::string diff_text(const Node& diff) {
  auto side = [](const Node& of) {
    if (of.is_null()) return std::string("(no such setting)");
    const std::string& where = of.get("where")->as_text();
    return cat(brief(*of.get("value")), where.empty() ? "" : "   " + where);
  };
  std::string out;
  for (const auto& d : diff.items())
    out += cat(d.get("path")->as_text(), "\n  - ", side(*d.get("a")), "\n  + ", side(*d.get("b")),
               "\n");
  return out.empty() ? "no difference\n" : out;
}

void diff(Cli& cli, const RecipeWords& words, bool json) {
  PluginHost plugins = plugin_host(cli);
  std::vector<std::string> sides;
  RecipeRequest request = sorted_words(cli, words, 2, sides);
  MT_USER_CHECK(sides.size() == 2 || !request.overrides.empty(), ErrorClass::usage,
                "there is nothing to compare with",
                "write mtrain config diff A B, or mtrain config diff RECIPE key=value …");
  Side a = read_side(cli, sides[0], {}, plugins);
  Side b = read_side(cli, sides.back(), request.overrides, plugins);
  Node answer = diff_node(a, b, schema_catalog(plugins));
  print_answer(json, answer, diff_text(answer));
}

}  // namespace

void add_config_explain(CLI::App& config, Cli& cli) {
  auto* command = config.add_subcommand(
      "explain", "explain a setting: type, range, default, names, recipes that set it");
  auto key = std::make_shared<std::string>();
  command->add_option("key", *key, "a setting or a section; former names are accepted")
      ->required()
      ->type_name("KEY");
  auto json = add_json_flag(*command);
  command->footer(
      "Examples:\n  mtrain config explain optimizer.lr\n  mtrain config explain model --json");
  command->callback([&cli, key, json] {
    PluginHost plugins = plugin_host(cli);
    Node answer = explain_setting(*key, schema_catalog(plugins), search_folders(plugins.folders()));
    print_answer(*json, answer, explain_text(answer));
  });
}

void add_config_diff(CLI::App& config, Cli& cli) {
  auto* command =
      config.add_subcommand("diff", "compare the settings of recipes, runs and checkpoints");
  auto words = add_recipe_words(*command, "A [B]", cat("each ", kRecipeOrRun));
  auto json = add_json_flag(*command);
  command->footer(
      "Overrides apply to B; without B, A is compared with A and the overrides.\n"
      "Examples:\n"
      "  mtrain config diff runs/first runs/second\n"
      "  mtrain config diff runs/first/checkpoints/step-100 recipes/quickstart.yaml "
      "optimizer.lr=1e-3\n"
      "  mtrain config diff recipes/quickstart.yaml optimizer.lr=1e-3 train.steps=500");
  command->callback([&cli, words, json] { diff(cli, *words, *json); });
}

}  // namespace mtrain
