// The subcommands of `mtrain config`, each added by the file that implements it.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "cli.h"
#include "mtrain/config/show.h"
#include "recipe_words.h"

namespace mtrain {

void add_config_show(CLI::App& config, Cli& cli);
void add_config_why(CLI::App& config, Cli& cli);
void add_config_explain(CLI::App& config, Cli& cli);
void add_config_tree(CLI::App& config, Cli& cli);
void add_config_searchpath(CLI::App& config, Cli& cli);
void add_config_diff(CLI::App& config, Cli& cli);
void add_config_migrate(CLI::App& config, Cli& cli);

void add_recipes_copy(CLI::App& recipes, Cli& cli);

inline constexpr uint64_t kMaxRecipeBytes = 1 << 20;

/// The file of a recipe given by its name or path. Throws Error(config) if there is none.
fs::path recipe_file(const Cli& cli, const std::string& path_or_name);
/// Writes a recipe file that does not exist yet.
void create_recipe(const Cli& cli, const std::string& file, const std::string& text);

/// Adds --json; the result becomes true if it is given.
std::shared_ptr<bool> add_json_flag(CLI::App& command);
/// Prints a tree as JSON, or as `text` formats it.
void print_answer(bool json, const Node& answer, const std::string& text);

/// The key at which a file's settings are merged: its group, if it is in a folder of that name.
std::string package_of(const fs::path& file, const SchemaCatalog& catalog);

/// Implements train --cfg and --info with the code of the subcommands.
void print_config(Cli& cli, const RecipeRequest& request, const ShowOptions& options);
void print_tree(Cli& cli, const RecipeRequest& request, bool json, bool files_only);
void print_plugins(const Cli& cli);
void print_searchpath(const Cli& cli, const std::string& recipe, bool json);

}  // namespace mtrain
