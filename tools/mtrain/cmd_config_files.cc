// mtrain config tree, searchpath, migrate: the files of a recipe.
#include <iostream>

#include "config_commands.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/config/defaults_report.h"
#include "mtrain/config/json_write.h"
#include "mtrain/config/migrate.h"
#include "mtrain/recipe/recipe_list.h"

namespace mtrain {
namespace {

Node searchpath_node(const std::vector<SearchFolder>& folders) {
  Node out = Node::list();
  auto listed = list_recipes(folders);
  for (const auto& folder : folders) {
    std::error_code ignored;
    int64_t files = 0;
    Node shadowed = Node::list();
    for (const auto& recipe : listed) {
      if (recipe.file.string() != (folder.path / (recipe.name + ".yaml")).string()) continue;
      ++files;
      if (recipe.shadowed) shadowed.push(Node::string(recipe.name));
    }
    out.push(make_map({{"kind", Node::string(name(folder.kind))},
                       {"path", Node::string(folder.path.string())},
                       {"exists", Node::boolean(fs::is_directory(folder.path, ignored))},
                       {"files", Node::integer(files)},
                       {"shadowed", std::move(shadowed)}}));
  }
  return out;
}

std::string searchpath_text(const Node& folders) {
  std::string out;
  for (const auto& folder : folders.items()) {
    std::string kind = folder.get("kind")->as_text();
    kind.resize(22, ' ');
    out += cat(kind, folder.get("path")->as_text());
    out += folder.get("exists")->as_bool()
               ? cat("   ", counted(folder.get("files")->as_int(), "file"))
               : "   (absent)";
    std::vector<std::string> names;
    for (const auto& item : folder.get("shadowed")->items()) names.push_back(item.as_text());
    if (!names.empty()) out += cat(", shadowed by folders above: ", join(names, ", "));
    out += '\n';
  }
  return out;
}

void migrate(Cli& cli, const std::string& path, bool write) {
  std::error_code ignored;
  MT_USER_CHECK(fs::is_regular_file(path, ignored), ErrorClass::config,
                cat("there is no file ", printable(path)), "give the recipe's file");
  fs::path file = fs::canonical(path);
  SchemaCatalog catalog = schema_catalog(plugin_host(cli));
  Report report;
  auto source = std::make_shared<Source>(SourceKind::file, path, read_file(file, kMaxRecipeBytes));
  Migration migration = migrate_recipe(source, package_of(file, catalog), catalog, report);
  report.throw_if_errors();
  if (write && migration.text != source->text()) write_file_atomic(file, migration.text);
  if (!write) std::cout << migration.text;
  if (!cli.quiet) {
    for (const auto& done : migration.done)
      std::cerr << done.where.text() << ": " << done.before << " -> " << done.now << '\n';
    if (migration.done.empty() && migration.by_hand.empty() && migration.foreign.empty())
      std::cerr << path << ": nothing to change\n";
  }
  for (const auto& left : migration.by_hand)
    report
        .error("renamed", left.before, left.where,
               cat("is another name for ", left.now, ", to be moved by hand"))
        .fix(cat("write ", left.now));
  for (const auto& key : migration.foreign)
    report.error("unknown-key", key.path, key.where, "no such setting").fix(key.help);
  report.throw_if_errors();
}

}  // namespace

std::string package_of(const fs::path& file, const SchemaCatalog& catalog) {
  std::string folder = fs::absolute(file).lexically_normal().parent_path().filename().string();
  return catalog.section(folder) ? folder : "";
}

void print_tree(Cli& cli, const RecipeRequest& request, bool json, bool files_only) {
  PluginHost plugins = plugin_host(cli);
  Recipe recipe = inspect_recipe(cli, request, plugins);
  const SchemaCatalog catalog = schema_catalog(plugins);
  Node report = defaults_report(recipe.config.composition(), [&](const std::string& path) {
    return recipe.config.replaced_by(path, catalog);
  });
  if (!files_only) return print_answer(json, report, defaults_text(report));
  for (const auto& file : report.get("files")->items())
    std::cout << file.get("file")->as_text() << "   at "
              << (file.get("package")->as_text().empty() ? "_global_"
                                                         : file.get("package")->as_text())
              << '\n';
}

void print_searchpath(const Cli& cli, const std::string& recipe, bool json) {
  PluginHost plugins = plugin_host(cli);
  std::vector<SearchFolder> folders = search_folders(plugins.folders());
  if (auto found = recipe.empty() ? std::nullopt : find_recipe(recipe, folders)) {
    fs::path own = found->file.parent_path();
    folders = search_folders(plugins.folders(), own.empty() ? fs::path(".") : own);
  }
  Node answer = searchpath_node(folders);
  print_answer(json, answer, searchpath_text(answer));
}

void add_config_tree(CLI::App& config, Cli& cli) {
  auto* command = config.add_subcommand("tree",
                                        "show the files of a recipe in merge order, how many "
                                        "settings each sets, and what overrides them");
  auto words = add_recipe_words(*command);
  auto json = add_json_flag(*command);
  command->footer("Example:\n  mtrain config tree recipes/quickstart.yaml +device=cpu");
  command->callback(
      [&cli, words, json] { print_tree(cli, recipe_request(cli, *words), *json, false); });
}

void add_config_searchpath(CLI::App& config, Cli& cli) {
  auto* command = config.add_subcommand("searchpath",
                                        "list the folders that are searched for recipes and "
                                        "groups; the first that contains the file is used");
  auto recipe = std::make_shared<std::string>();
  command->add_option("recipe", *recipe, "also list this recipe's own folder, which comes first")
      ->type_name("RECIPE");
  auto json = add_json_flag(*command);
  command->footer(
      "Examples:\n  mtrain config searchpath\n  mtrain config searchpath recipes/quickstart.yaml "
      "--json");
  command->callback([&cli, recipe, json] { print_searchpath(cli, *recipe, *json); });
}

void add_config_migrate(CLI::App& config, Cli& cli) {
  auto* command = config.add_subcommand(
      "migrate", "replace former names of settings; the rest of the file does not change");
  auto file = std::make_shared<std::string>();
  auto write = std::make_shared<bool>(false);
  command->add_option("file", *file, "the recipe's file")->required()->type_name("FILE");
  command->add_flag("--write", *write, "change the file; default: print the new text");
  command->footer(
      "Examples:\n  mtrain config migrate recipes/old.yaml | diff recipes/old.yaml -\n"
      "  mtrain config migrate --write recipes/old.yaml");
  command->callback([&cli, file, write] { migrate(cli, *file, *write); });
}

}  // namespace mtrain
