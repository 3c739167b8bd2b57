#include "mtrain/plugin/sidecar.h"

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"
#include "mtrain/config/container.h"
#include "mtrain/config/schema.h"

namespace mtrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSidecarVersion = 1;
constexpr uint64_t kMaxSidecar = 1 << 20;  // bytes

Error bad_sidecar(const fs::path& path, const std::string& reason, const fs::path& plugin) {
  return {ErrorClass::plugin, cat(path.string(), ": ", reason),
          cat("write it again: mtrain plugins export-schema ", shell_word(plugin.string()))};
}

std::string text_at(const Json& object, const char* key) {
  auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Parses the outer object; files that are too deep or too large never reach the schema reader.
Json parse_sidecar(const fs::path& path, const fs::path& plugin) {
  std::string text;
  try {
    text = read_file(path, kMaxSidecar);
  } catch (const Error& error) {
    throw bad_sidecar(path, cat("cannot be read: ", error.message()), plugin);
  }
  constexpr int kMaxDepth = 16;
  bool too_deep = false;
  auto watch = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  Json json = Json::parse(text, watch, false);
  if (too_deep || !json.is_object()) throw bad_sidecar(path, "is damaged (no JSON object)", plugin);
  return json;
}

/// False if this process has asked about the same path before.
bool first_time(const fs::path& path) {
  static std::mutex mutex;
  static std::set<std::string> known;
  std::lock_guard lock(mutex);
  return known.insert(path.string()).second;
}

}  // namespace

fs::path sidecar_path(const fs::path& plugin) {
  fs::path out = plugin;
  return out.replace_extension(".json");
}

fs::path write_sidecar(const fs::path& plugin) {
  PluginHost host({});
  const Registry::Entry& entry = host.load_file(plugin);
  Json json;
  json["mtrain_sidecar"] = kSidecarVersion;
  json["kind"] = entry.kind;
  json["name"] = entry.name;
  json["built_from"] = host.loaded().front().identity;
  json["content"] = plugin_content_hash(host.loaded().front().path);
  json["schema"] = Json::parse(schema_to_json(entry.schema));
  fs::path path = sidecar_path(plugin);
  write_file_atomic(path, json.dump(2) + "\n", "sidecar");
  return path;
}

void require_undamaged(const PluginFileInfo& file) {
  fs::path path = sidecar_path(file.path);
  std::error_code error;
  if (!fs::exists(path, error)) return;
  Json json;
  try {
    json = parse_sidecar(path, file.path);
  } catch (const Error& error) {  // does not prove anything about the plugin
    if (first_time(path))
      log_warn(error.message(), "; ", file.path.string(), " is loaded unchecked (", error.hint(),
               ")");
    return;
  }
  std::string written = text_at(json, "content");
  if (written.empty() || text_at(json, "built_from") != file.identity ||
      written == plugin_content_hash(file.path))
    return;
  throw Error(
      ErrorClass::plugin,
      cat(file.path.string(), ": is damaged or was changed: its code is not what it was when ",
          path.filename().string(), " was written"),
      cat("build or copy it again; if the change is meant (patchelf moves code and data, too): "
          "mtrain plugins export-schema ",
          shell_word(file.path.string())));
}

Schema read_sidecar(const PluginFileInfo& file) {
  fs::path path = sidecar_path(file.path);
  std::error_code error;
  if (!fs::exists(path, error))
    throw bad_sidecar(
        path, cat("is missing: the settings of ", file.kind, " '", file.name, "' are not known"),
        file.path);
  Json json = parse_sidecar(path, file.path);
  if (json.value("mtrain_sidecar", Json()) != kSidecarVersion)
    throw bad_sidecar(path, "is not a sidecar of this version of mtrain", file.path);
  if (text_at(json, "kind") != file.kind || text_at(json, "name") != file.name)
    throw bad_sidecar(path,
                      cat("describes ", printable(text_at(json, "kind"), 64), " '",
                          printable(text_at(json, "name"), 64), "'"),
                      file.path);
  if (text_at(json, "built_from") != file.identity)
    throw bad_sidecar(path, "was made from another build of the plugin", file.path);
  try {
    return schema_from_json(json.value("schema", Json()).dump());
  } catch (const Error& bad) {
    throw bad_sidecar(path, cat("is damaged: ", bad.message()), file.path);
  } catch (const nlohmann::json::exception& bad) {
    throw bad_sidecar(path, cat("is damaged: ", printable(bad.what())), file.path);
  }
}

void add_components(const PluginHost& host, SchemaCatalog& catalog) {
  std::map<std::string, std::vector<std::string>> problems;
  for (const char* kind : kPluginKinds) problems[kind];
  auto pass_over = [&](const PluginFileInfo& file, const std::string& reason,
                       const std::string& remedy) {
    problems[file.kind].push_back(reason);
    catalog.add_unusable(file.kind, file.name, reason, remedy);
  };
  for (const auto& file : host.list()) {
    if (file.shadowed) continue;
    if (!file.problem.empty()) {
      pass_over(file, file.problem, file.remedy);
      continue;
    }
    try {
      Schema schema = read_sidecar(file);
      schema.name = file.name;
      catalog.add_component(file.kind, std::move(schema));
    } catch (const Error& error) {
      pass_over(file, error.message(), error.hint());
    }
  }
  std::vector<std::string> folders;
  for (const auto& folder : host.folders()) folders.push_back(folder.string());
  for (const auto& [kind, reasons] : problems) {
    std::string note = cat("searched: ", join(folders, ", "));
    note +=
        "; the folder of a plugin of your own is given by --plugin-path DIR or MTRAIN_PLUGIN_PATH";
    if (!reasons.empty()) note += cat("; cannot be used: ", join(reasons, "; "));
    catalog.explain_kind(kind, note);
  }
}

}  // namespace mtrain
