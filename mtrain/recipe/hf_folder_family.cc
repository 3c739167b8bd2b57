#include "mtrain/recipe/hf_folder_family.h"

#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace hf {

std::string kind_of(const Json& config) {
  const std::string architecture = architecture_of(config);
  return printable(architecture.empty() ? text_of(config, "model_type") : architecture, 80);
}

std::string family_conflict(const Json& config, const HfFamilies& families) {
  const std::string type = text_of(config, "model_type"), architecture = architecture_of(config);
  const HfFamily* named =
      architecture.empty() || type.empty() ? nullptr : families.find("", architecture);
  if (!named || named->model_type == type) return "";
  return cat("model_type ", printable(type, 80), " and architectures ", architecture,
             " disagree: ", architecture, " belongs to model_type ", named->model_type);
}

std::vector<std::string> readable(const HfFamilies& families, std::string_view plugin,
                                  const PluginSchema& schema_of) {
  std::vector<std::string> out;
  auto add = [&](const HfFamily& family) {
    if (lacking_part(family, schema_of(family.plugin)).empty())
      out.insert(out.end(), family.architectures.begin(), family.architectures.end());
  };
  if (plugin.empty())
    for (const HfFamily& family : families.all()) add(family);
  else
    for (const HfFamily* family : families.of_plugin(plugin)) add(*family);
  return out;
}

}  // namespace hf

using namespace hf;

PluginSchema model_schemas(const SchemaCatalog& catalog) {
  return [&catalog](std::string_view plugin) {
    return catalog.component("model", std::string(plugin));
  };
}

std::string hf_model_plugin(const std::string& config_json, const std::string& file_name,
                            const HfFamilies& families, const PluginSchema& schema_of) {
  const Json config = parse(config_json, file_name);
  const HfFamily* family = families.find(text_of(config, "model_type"), architecture_of(config));
  const std::string lacks = family ? lacking_part(*family, schema_of(family->plugin)) : "";
  if (family && lacks.empty()) return family->plugin;
  if (const std::string conflict = family_conflict(config, families); !conflict.empty())
    throw Error(ErrorClass::config, cat(file_name, ": ", conflict), kCorrectOne);
  const std::string kind = kind_of(config);
  throw Error(ErrorClass::config,
              kind.empty() ? cat(file_name, " has neither architectures nor model_type")
                           : cat(file_name, ": no model plugin reads a ", kind,
                                 family ? cat(": none computes ", lacks) : ""),
              cat("use a folder of ", join(readable(families, "", schema_of), ", ")));
}

const HfFamily& hf_family_of(const std::string& config_json, const std::string& file_name,
                             const HfFamilies& families, const std::string& plugin) {
  const Json config = parse(config_json, file_name);
  const HfFamily* family = families.find(text_of(config, "model_type"), architecture_of(config));
  if (family && family->plugin == plugin) return *family;
  const auto all = families.of_plugin(plugin);
  MT_USER_CHECK(
      !all.empty(), ErrorClass::config,
      cat("the model plugin ", plugin, " has no file that says what ", file_name, " means"),
      cat("write model_", plugin, ".families/MODEL_TYPE.yaml next to the plugin"));
  return *all.front();
}

}  // namespace mtrain
