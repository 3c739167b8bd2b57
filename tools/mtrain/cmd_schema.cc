// mtrain schema: the JSON Schema of recipes, for editors.
#include <CLI/CLI.hpp>
#include <iostream>

#include "cli.h"
#include "mtrain/train/recipe.h"
#include "mtrain/train/recipe_schema.h"

namespace mtrain {

void add_schema_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("schema", "print the JSON Schema of recipes, plugins included");
  command->footer("Example:\n  mtrain schema > schemas/recipe.schema.json");
  command->callback([&cli] { std::cout << recipe_json_schema(schema_catalog(plugin_host(cli))); });
}

}  // namespace mtrain
