#include "option_hints.h"

#include <algorithm>
#include <map>

#include "mtrain/base/text.h"
#include "mtrain/recipe/foreign_names.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {
namespace {

constexpr size_t kMostMeant = 3;  // settings of one name; if there are more, none is suggested

/// The settings whose path, or the last part of it, is the name.
std::vector<std::string> settings_named(const std::string& name, const SchemaCatalog& catalog) {
  std::vector<std::string> out;
  for (const auto& section : catalog.sections())
    for (const Schema* owner : catalog.all_owners(section.name))
      for (const auto& spec : owner->fields) {
        const std::string path = section.name + "." + spec.path;
        const bool meant =
            path == name || (name.find('.') == std::string::npos && path.ends_with("." + name));
        if (meant && std::find(out.begin(), out.end(), path) == out.end()) out.push_back(path);
      }
  return out.size() > kMostMeant ? std::vector<std::string>() : out;
}

/// The value of the option: after its '=', or the next word.
std::string option_value(const std::string& option, const std::vector<std::string>& words) {
  if (size_t equals = option.find('='); equals != std::string::npos)
    return option.substr(equals + 1);
  auto at = std::find(words.begin(), words.end(), option);
  if (at == words.end() || ++at == words.end() || at->starts_with('-') ||
      at->find('=') != std::string::npos)
    return "VALUE";
  return *at;
}

}  // namespace

std::string setting_for_option(const std::string& option, const std::vector<std::string>& words,
                               const PluginHost& plugins) {
  std::string name = option.substr(0, option.find('='));
  name.erase(0, name.find_first_not_of('-'));
  std::replace(name.begin(), name.end(), '-', '_');
  if (name.empty()) return "";
  const SchemaCatalog catalog = schema_catalog(plugins);
  const ForeignName* foreign = find_foreign_name(name);
  std::vector<std::string> settings;
  if (foreign && !foreign->setting.empty())
    settings = settings_named(std::string(foreign->setting), catalog);
  if (settings.empty()) settings = settings_named(name, catalog), foreign = nullptr;
  if (settings.empty()) return "";
  // Where the values of the two differ, the note says how, and the given value is no advice.
  const bool differs = foreign && !foreign->how.empty();
  const std::string value = differs ? "…" : printable(option_value(option, words), 60);
  for (auto& setting : settings) setting += "=" + value;
  return cat("write ", join(settings, " or "),
             differs ? cat(", without dashes: ", foreign->how) : ": settings have no dashes");
}

std::string preparation_option(const std::string& option) {
  static const std::map<std::string, std::string> known = {
      {"--output-prefix", "write -o PREFIX"},
      {"--tokenizer-type", "write -t NAME, such as -t hf (mtrain plugins ls)"},
      {"--tokenizer-model", "it is a setting of the tokenizer: path=FILE, after -t NAME"},
      {"--vocab-file", "-t hf path=FOLDER reads the tokenizer.json of a folder"},
      {"--merge-file", "-t hf path=FOLDER reads the tokenizer.json of a folder"},
      {"--keep-newlines", "line ends are always kept"},
      {"--partitions", "leave it out: one pair is written by --workers threads"},
      {"--log-interval", "leave it out: progress is shown by itself"},
      {"--dataset-impl", "leave it out: the format is .bin and .idx"}};
  const auto found = known.find(option.substr(0, option.find('=')));
  return found == known.end() ? "" : found->second;
}

}  // namespace mtrain
