#include "mtrain/chat/template_file.h"

#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"

namespace mtrain::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kGiveOne =
    "give a template's file, or one that comes with mtrain by its name, such as chatml: "
    "--template, or "
    "dataset.template_path and dataset.chat_template";

Json read_settings(const fs::path& file) {
  Json settings = Json::parse(read_file(file), nullptr, false);
  MT_USER_CHECK(settings.is_object(), ErrorClass::data, cat(file.string(), " is not a JSON object"),
                "wanted a tokenizer_config.json");
  return settings;
}

/// A token is a string, or an object with the string in "content".
void add_special(const Json& settings, std::map<std::string, std::string>& special) {
  for (const auto& [key, value] : settings.items()) {
    if (!key.ends_with("_token")) continue;
    const Json* text = &value;
    if (value.is_object() && value.contains("content")) text = &value["content"];
    if (text->is_string()) special[key] = text->get<std::string>();
  }
}

std::string template_of(const Json& settings, const fs::path& file, const std::string& which) {
  auto found = settings.find("chat_template");
  MT_USER_CHECK(found != settings.end(), ErrorClass::data,
                cat(file.string(), " has no chat_template"), kGiveOne);
  if (found->is_string()) return found->get<std::string>();
  std::vector<std::string> names;
  if (found->is_array())
    for (const auto& entry : *found) {
      if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string()) continue;
      names.push_back(entry["name"].get<std::string>());
      if (names.back() == which && entry.contains("template") && entry["template"].is_string())
        return entry["template"].get<std::string>();
    }
  throw Error(ErrorClass::data,
              cat(file.string(), ": chat_template has none named '", printable(which), "'"),
              names.empty() ? "wanted text, or a list of {name, template}"
                            : cat("there are: ", printable(join(names, ", "))));
}

}  // namespace

TemplateFile read_template(const std::filesystem::path& path, const std::string& which) {
  bool folder = fs::is_directory(path), settings_file = path.extension() == ".json";
  fs::path directory = folder ? path : path.parent_path();
  fs::path settings_path = settings_file ? path : directory / "tokenizer_config.json";
  fs::path own = folder ? path / "chat_template.jinja" : path;
  TemplateFile out;
  Json settings = Json::object();
  if (settings_file || fs::exists(settings_path)) settings = read_settings(settings_path);
  add_special(settings, out.special);
  if (!settings_file && (!folder || fs::exists(own))) {
    out.name = own.filename().string();
    out.source = read_file(own);
    return out;
  }
  MT_USER_CHECK(settings_file || fs::exists(settings_path), ErrorClass::data,
                cat(path.string(), " has neither chat_template.jinja nor tokenizer_config.json"),
                kGiveOne);
  out.name = settings_path.filename().string();
  out.source = template_of(settings, settings_path, which);
  out.has_names = settings["chat_template"].is_array();
  return out;
}

}  // namespace mtrain::chat
