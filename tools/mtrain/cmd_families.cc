// mtrain families: the families of Hugging Face models that the plugins read and write.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/hf_family_check.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {
namespace {

struct FamilyRow {
  const HfFamily* family;
  std::string lacks;
};

std::vector<FamilyRow> rows_of(const HfFamilies& families, const SchemaCatalog& catalog) {
  std::vector<FamilyRow> out;
  for (const HfFamily& family : families.all())
    out.push_back({&family, lacking_part(family, catalog.component("model", family.plugin))});
  return out;
}

void print_families_json(const std::vector<FamilyRow>& rows) {
  auto out = nlohmann::ordered_json::array();
  for (const FamilyRow& row : rows)
    out.push_back({{"model_type", row.family->model_type},
                   {"architectures", row.family->architectures},
                   {"plugin", row.family->plugin},
                   {"lacks", row.lacks},
                   {"compared", row.family->compared},
                   {"file", row.family->file.string()}});
  print_json(out);
}

void print_families_text(const std::vector<FamilyRow>& rows) {
  size_t type = 10, plugin = 6;
  for (const FamilyRow& row : rows) {
    type = std::max(type, row.family->model_type.size());
    plugin = std::max(plugin, row.family->plugin.size());
  }
  auto padded = [](std::string text, size_t width) {
    text.resize(std::max(width, text.size()), ' ');
    return text + "  ";
  };
  for (const FamilyRow& row : rows)
    std::cout << padded(row.family->model_type, type) << padded(row.family->plugin, plugin)
              << (row.lacks.empty() ? join(row.family->architectures, ", ")
                                    : cat("not implemented: ", row.lacks))
              << '\n';
  if (rows.empty()) std::cout << "no families\n";
}

/// The table of docs/families.md.
void print_families_markdown(const std::vector<FamilyRow>& rows) {
  std::cout
      << "# Families of Hugging Face models\n"
         "Written by `mtrain families --markdown`; [hugging-face.md](hugging-face.md) says how "
         "to use and to add them.\n\n"
         "| model_type | architectures | plugin | not implemented | compared with |\n"
         "|---|---|---|---|---|\n";
  for (const FamilyRow& row : rows)
    std::cout << "| `" << row.family->model_type << "` | " << join(row.family->architectures, ", ")
              << " | `" << row.family->plugin << "` | " << row.lacks << " | "
              << row.family->compared << " |\n";
}

struct ListOptions {
  bool json = false, markdown = false;
};

void list_families(Cli& cli, const ListOptions& options) {
  const PluginHost plugins = plugin_host(cli);
  const SchemaCatalog catalog = schema_catalog(plugins);
  const HfFamilies families = HfFamilies::read(plugins.folders());
  const std::vector<FamilyRow> rows = rows_of(families, catalog);
  options.json       ? print_families_json(rows)
  : options.markdown ? print_families_markdown(rows)
                     : print_families_text(rows);
  if (!families.faults().ok())
    throw Error(ErrorClass::plugin, families.faults().text(),
                "correct these files; the families in them cannot be used");
  Report faults;
  for (const FamilyRow& row : rows)
    if (const Schema* plugin = catalog.component("model", row.family->plugin);
        plugin && row.lacks.empty())
      faults.add(hf_family_faults(*row.family, *plugin, catalog.section("model")));
  if (!faults.ok())
    throw Error(ErrorClass::plugin, faults.text(),
                "correct these files: a setting that does not exist is not read from config.json");
}

}  // namespace

void add_families_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("families",
                                     "list the families of Hugging Face models and, for "
                                     "unsupported ones, the missing feature; runs no plugin code");
  auto options = std::make_shared<ListOptions>();
  auto* json = command->add_flag("--json", options->json, "print as JSON");
  command->add_flag("--markdown", options->markdown, "print as a table in Markdown")
      ->excludes(json);
  command->footer("Examples:\n  mtrain families\n  mtrain families --json");
  command->callback([&cli, options] { list_families(cli, *options); });
}

}  // namespace mtrain
