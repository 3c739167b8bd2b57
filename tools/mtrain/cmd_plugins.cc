// mtrain plugins: lists plugins and shows the stamp and settings of a file.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "config_commands.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/schema.h"
#include "mtrain/plugin/sidecar.h"

namespace mtrain {
namespace {

std::string plugin_state(const PluginFileInfo& file) {
  return !file.problem.empty() ? "unusable" : file.shadowed ? "shadowed" : "ok";
}

void print_plugins_json(const PluginHost& host) {
  auto plugins = nlohmann::ordered_json::array();
  for (const auto& file : host.list())
    plugins.push_back({{"kind", file.kind},
                       {"name", file.name},
                       {"state", plugin_state(file)},
                       {"doc", file.doc},
                       {"version", file.version},
                       {"identity", file.identity},
                       {"path", file.path.string()},
                       {"problem", file.problem}});
  print_json(plugins);
}

void print_plugins_text(const PluginHost& host) {
  std::vector<PluginFileInfo> files = host.list();
  size_t kind_width = 4, name_width = 4;
  for (const auto& file : files) {
    kind_width = std::max(kind_width, file.kind.size());
    name_width = std::max(name_width, file.name.size());
  }
  auto padded = [](std::string text, size_t width) {
    text.resize(std::max(width, text.size()), ' ');
    return text + "  ";
  };
  for (const auto& file : files) {
    if (!file.problem.empty()) continue;
    std::cout << padded(file.kind, kind_width) << padded(file.name, name_width) << file.doc;
    if (file.shadowed) std::cout << " (not used: an earlier folder has a plugin of this name)";
    std::cout << '\n';
  }
  for (const auto& file : files)
    if (!file.problem.empty()) std::cout << "unusable: " << file.problem << '\n';
  if (files.empty()) std::cout << "no plugins\n";
  for (const auto& folder : host.folders())
    std::cout << "searched: " << folder.string() << (fs::is_directory(folder) ? "" : " (absent)")
              << '\n';
}

/// The file that an argument names: a path, "optimizer_lion", or "lion" if only one kind has it.
PluginFileInfo file_of(const PluginHost& host, const std::string& word) {
  if (word.find('/') != std::string::npos || word.ends_with(".so"))
    return inspect_plugin_file(word);
  std::string kind, name;
  if (parse_plugin_file_name(word + ".so", kind, name))
    for (const auto& file : host.list())
      if (file.kind == kind && file.name == name) return host.locate(kind, name);
  std::vector<PluginFileInfo> found;
  std::vector<std::string> names;
  for (auto& file : host.list()) {
    if (file.shadowed || file.kind.empty()) continue;
    names.push_back(cat(file.kind, "_", file.name));
    if (file.name == word) found.push_back(std::move(file));
  }
  if (found.size() == 1) return host.locate(found[0].kind, found[0].name);
  std::vector<std::string> choices;
  for (const auto& file : found) choices.push_back(cat(file.kind, "_", file.name));
  if (!choices.empty())
    throw Error(ErrorClass::usage, cat("'", word, "' is the name of several plugins"),
                cat("use one of these: ", join(choices, ", ")));
  throw Error(ErrorClass::plugin, cat("there is no plugin named '", printable(word, 64), "'"),
              names.empty() ? "no plugins were found; see `mtrain doctor`"
                            : cat("there are: ", join(names, ", ")));
}

void inspect_plugin(const PluginHost& host, const std::string& word) {
  PluginFileInfo file = file_of(host, word);
  PluginImage image = read_plugin_image(file.path);
  std::cout << file.kind << ' ' << file.name << ": " << file.doc << '\n'
            << "  file      " << file.path.string() << '\n'
            << "  identity  " << file.identity << '\n'
            << "  stamp     " << describe(image.stamp) << '\n';
  for (const auto& field : read_sidecar(file).fields)
    std::cout << "  " << field.path << ": " << describe(field)
              << (field.required ? ", required" : cat(", default ", field.default_value))
              << "\n      " << field.doc << '\n';
}

}  // namespace

void print_plugins(const Cli& cli) { print_plugins_text(plugin_host(cli)); }

void add_plugins_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("plugins", "list and inspect the plugins");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  mtrain plugins ls\n"
      "  mtrain plugins inspect optimizer_adamw\n"
      "  mtrain plugins inspect build/optimizer_lion.so");

  auto* ls =
      command->add_subcommand("ls", "list every plugin of the search path; runs no plugin code");
  auto json = std::make_shared<bool>(false);
  ls->add_flag("--json", *json, "print as JSON");
  ls->footer("Examples:\n  mtrain plugins ls\n  mtrain --plugin-path ./build plugins ls --json");
  ls->callback([&cli, json] {
    PluginHost host = plugin_host(cli);
    *json ? print_plugins_json(host) : print_plugins_text(host);
  });

  auto* look = command->add_subcommand(
      "inspect", "show one plugin's ABI stamp and settings; runs no plugin code");
  auto word = std::make_shared<std::string>();
  look->add_option("plugin", *word, "a file, KIND_NAME, or NAME when only one kind has it")
      ->required()
      ->type_name("FILE|NAME");
  look->footer(
      "Examples:\n  mtrain plugins inspect adamw\n  mtrain plugins inspect ./optimizer_lion.so");
  look->callback([&cli, word] { inspect_plugin(plugin_host(cli), *word); });

  // The build calls it after linking a plugin.
  auto* write = command->add_subcommand(
      "export-schema",
      "load one plugin and write its sidecar, the schema of its settings, next to it");
  auto file = std::make_shared<std::string>();
  write->add_option("file", *file, "the plugin's .so")->required()->type_name("FILE");
  write->footer("Example:\n  mtrain plugins export-schema ./optimizer_lion.so");
  write->callback([&cli, file] {
    fs::path written = write_sidecar(*file);
    if (!cli.quiet) std::cout << written.string() << '\n';
  });
}

}  // namespace mtrain
