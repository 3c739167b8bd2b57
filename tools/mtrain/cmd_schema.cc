// mtrain schema: prints all settings, for editors (JSON Schema), for reading (Markdown, manual
// page).
#include <CLI/CLI.hpp>
#include <iostream>

#include "cli.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/recipe/recipe_schema.h"
#include "mtrain/recipe/reference.h"

namespace mtrain {

void add_schema_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("schema", "print all settings, including those of plugins");
  auto format = std::make_shared<std::string>("json");
  command
      ->add_option(
          "--format", *format,
          "JSON Schema, a Markdown page, a manual page, or the rules between settings as Markdown")
      ->check(CLI::IsMember({"json", "markdown", "man", "rules"}))
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  mtrain schema > schemas/recipe.schema.json\n"
      "  mtrain schema --format markdown > docs/config.md\n"
      "  mtrain schema --format man | man -l -");
  command->callback([&cli, format] {
    SchemaCatalog catalog = schema_catalog(plugin_host(cli));
    std::cout << (*format == "json"       ? recipe_json_schema(catalog)
                  : *format == "markdown" ? reference_markdown(catalog)
                  : *format == "rules"    ? rules_markdown()
                                          : reference_man_page(catalog));
  });
}

}  // namespace mtrain
