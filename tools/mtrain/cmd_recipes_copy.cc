// mtrain recipes cp: a copy of a recipe that reads the same files and has the same settings.
#include <algorithm>
#include <iostream>

#include "config_commands.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/config/repository.h"
#include "mtrain/recipe/compare_copy.h"
#include "mtrain/recipe/copy_recipe.h"
#include "mtrain/recipe/new_recipe.h"

namespace mtrain {
namespace {

/// The path of the schema for editors: relative to the recipe if both are in one project, which can
/// then be moved or shared; absolute if mtrain is installed elsewhere.
std::string schema_reference(const fs::path& recipe) {
  const fs::path schema = shared_folder("schemas") / "recipe.schema.json";
  const fs::path folder = fs::weakly_canonical(fs::absolute(recipe)).parent_path();
  const fs::path relative = fs::weakly_canonical(schema).lexically_relative(folder);
  fs::path up;  // to the root
  for (const auto& part : folder.relative_path()) up /= part.empty() ? "" : "..";
  const bool apart = relative.empty() || relative.string().starts_with(up.string());
  return (apart ? schema : relative).string();
}

/// Where relative paths of a file start.
fs::path paths_start(const fs::path& file, const std::vector<SearchFolder>& folders) {
  return is_installed(fs::absolute(file), folders) ? fs::current_path()
                                                   : fs::absolute(file).parent_path();
}

void require_absent(const std::string& file) {
  std::error_code ignored;
  MT_USER_CHECK(!fs::exists(fs::symlink_status(file, ignored)), ErrorClass::usage,
                cat(printable(file), " already exists"), "choose another name, or remove it first");
}

void write_new(const fs::path& file, const std::string& text) {
  if (file.has_parent_path()) make_directories(file.parent_path());
  write_file_atomic(file, text);
}

/// Files that are removed again unless the work with them succeeds.
class NewFiles {
 public:
  NewFiles() = default;
  NewFiles(const NewFiles&) = delete;
  NewFiles& operator=(const NewFiles&) = delete;
  ~NewFiles() {
    std::error_code ignored;
    for (const auto& file : files_) fs::remove(file, ignored);
  }
  void write(const fs::path& file, const std::string& text) {
    write_new(file, text);
    files_.push_back(file);
  }
  void keep() { files_.clear(); }

 private:
  std::vector<fs::path> files_;
};

/// The recipe as it is read; nothing if reading it fails, such as where weights are absent.
std::optional<Recipe> readable(const fs::path& file, const PluginHost& plugins,
                               std::string& reason) {
  RecipeRequest request;
  request.recipe = file.string();
  try {
    return read_recipe(request, plugins);
  } catch (const Error& error) {
    reason = error.message();
    return std::nullopt;
  }
}

/// Writes the files next to the recipe that its copy needs. Throws Error(config) with their list
/// if they are not to be copied.
void copy_companions(const std::vector<CompanionFile>& lacking, bool with_files,
                     const std::string& to, NewFiles& files) {
  std::vector<std::string> names, there;
  std::error_code ignored;
  for (const auto& file : lacking) {
    names.push_back(printable(fs::relative(file.from).string()));
    if (fs::exists(fs::symlink_status(file.to, ignored)))
      there.push_back(printable(file.to.string()));
  }
  MT_USER_CHECK(with_files || lacking.empty(), ErrorClass::config,
                cat("the recipe reads files next to it, which a copy at ", printable(to),
                    " would not find: ", join(names, ", ")),
                "--with-files copies them next to the copy too; `mtrain recipes cat` prints the "
                "text alone");
  MT_USER_CHECK(there.empty(), ErrorClass::usage,
                cat("a file of the recipe would replace another one: ", join(there, ", ")),
                "choose another folder");
  for (const auto& file : lacking) files.write(file.to, file.text);
}

void copy(const Cli& cli, const std::string& path_or_name, const std::string& to, bool with_files) {
  PluginHost plugins = plugin_host(cli);
  const auto folders = search_folders(plugins.folders());
  const fs::path file = recipe_file(cli, path_or_name);
  SchemaCatalog catalog = schema_catalog(plugins);
  const std::string package = package_of(file, catalog);
  auto source =
      std::make_shared<Source>(SourceKind::file, file.string(), read_file(file, kMaxRecipeBytes));
  Report report;
  std::vector<fs::path> from = {paths_start(file, folders)};
  if (is_installed(fs::absolute(file), folders)) from.push_back(shared_folder(""));
  const fs::path start = paths_start(to, folders);
  CopiedRecipe copied = copy_recipe(source, package, from, start, catalog, report);
  report.throw_if_errors();
  require_absent(to);
  NewFiles files;
  std::string reason;
  std::optional<Recipe> original, made;
  if (package.empty()) original = readable(file, plugins, reason);
  if (original)
    copy_companions(lacking_companions(*original, to, start, folders, catalog), with_files, to,
                    files);
  files.write(to, with_modeline(copied.text, schema_reference(to)));
  if (original) made = readable(to, plugins, reason);
  if (original && made) {
    const auto differing =
        copy_differences(std::move(*original), std::move(*made), copied.by_hand, plugins);
    MT_USER_CHECK(differing.empty(), ErrorClass::config,
                  cat("a copy at ", printable(to), " would be another configuration:\n  ",
                      join(differing, "\n  ")),
                  "choose a folder in which it finds the same files; `mtrain config searchpath "
                  "FILE` lists where options are searched");
  } else if (package.empty()) {
    log_warn("the copy was not compared with the recipe, which cannot be read: ", reason);
  }
  files.keep();
  if (!cli.quiet) std::cout << to << ": check it with `mtrain check " << shell_word(to) << "`\n";
  for (const Location& where : copied.by_hand)
    log_warn(where.text(), ": this path was copied unchanged; if it is relative, adapt it in ", to);
}

}  // namespace

fs::path recipe_file(const Cli& cli, const std::string& path_or_name) {
  auto folders = search_folders(plugin_host(cli).folders());
  if (auto found = find_recipe(path_or_name, folders)) return found->file;
  std::vector<fs::path> paths;
  for (const auto& folder : folders) paths.push_back(folder.path);
  throw Error(ErrorClass::config, cat("there is no recipe ", printable(path_or_name, 100)),
              ConfigRepository(paths).help_for_absent(path_or_name));
}

void create_recipe(const Cli& cli, const std::string& file, const std::string& text) {
  require_absent(file);
  write_new(file, with_modeline(text, schema_reference(file)));
  if (!cli.quiet)
    std::cout << file << ": check it with `mtrain check " << shell_word(file)
              << " --memory`, which says whether its sizes fit this machine\n";
}

void add_recipes_copy(CLI::App& recipes, Cli& cli) {
  auto* command =
      recipes.add_subcommand("cp", "copy a recipe and add a line that tells editors its schema");
  auto path_or_name = std::make_shared<std::string>(), file = std::make_shared<std::string>();
  auto with_files = std::make_shared<bool>(false);
  command->add_option("recipe", *path_or_name, "a name or a file")->required()->type_name("RECIPE");
  command->add_option("file", *file, "the new file")
      ->check(check_output_path)
      ->required()
      ->type_name("FILE");
  command->add_flag("--with-files", *with_files,
                    "also copy options and texts next to the recipe that the copy would not find");
  command->footer(
      "The copy has the same settings: relative paths of input files are rewritten. A copy that "
      "would read other options is refused.\n"
      "Example:\n  mtrain recipes cp quickstart recipes/mine.yaml");
  command->callback(
      [&cli, path_or_name, file, with_files] { copy(cli, *path_or_name, *file, *with_files); });
}

}  // namespace mtrain
