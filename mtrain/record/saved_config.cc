#include "mtrain/record/saved_config.h"

#include <map>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/record/data_changes.h"
#include "mtrain/record/run_history.h"
#include "mtrain/record/train_state.h"

namespace mtrain {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr uint64_t kMaxText = 16 << 20;  // bytes of one saved text

constexpr const char* kWeights = "weights";

std::string dump(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace

std::string to_json(const SavedConfig& config) {
  OrderedJson files = OrderedJson::object();
  for (const auto& [name, text] : config.files) files[name] = text;
  return OrderedJson{{"raw", config.raw},
                     {"files", files},
                     {"overrides", config.overrides},
                     {"provenance", OrderedJson::parse(config.provenance)},
                     {"environment", OrderedJson::parse(config.environment)}}
      .dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

SavedConfig saved_config_from_json(const std::string& text, const std::string& where) {
  try {
    OrderedJson json = OrderedJson::parse(text);
    SavedConfig out;
    out.raw = json.at("raw").get<std::string>();
    for (const auto& [name, file] : json.at("files").items())
      out.files.emplace_back(name, file.get<std::string>());
    out.overrides = json.at("overrides").get<std::vector<std::string>>();
    out.provenance = dump(json.at("provenance"));
    out.environment = dump(json.at("environment"));
    return out;
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorClass::checkpoint,
                cat(where, " has no readable configuration of its run: ", printable(e.what())),
                "it was written by another version of mtrain");
  }
}

SavedConfig read_config_folder(const fs::path& folder) {
  SavedConfig out;
  auto text = [&](const char* name) { return read_file(folder / name, kMaxText); };
  out.raw = text("recipe.yaml");
  out.resolved = text("resolved.yaml");
  std::error_code ignored;
  for (auto [name, into] :
       {std::pair{"provenance.json", &out.provenance}, {"environment.json", &out.environment}})
    *into = fs::exists(folder / name, ignored) ? text(name) : "{}\n";
  out.overrides = split(text("overrides.txt"), '\n');
  if (!out.overrides.empty() && out.overrides.back().empty()) out.overrides.pop_back();
  for (fs::recursive_directory_iterator it(folder / "files", ignored), end; !ignored && it != end;
       it.increment(ignored))
    if (it->is_regular_file(ignored))
      out.files.emplace_back(
          it->path().lexically_relative(folder / "files").replace_extension().string(),
          read_file(it->path(), kMaxText));
  return out;
}

void write_saved_config(const SavedConfig& config, const fs::path& folder) {
  make_directories(folder);
  std::string overrides;
  for (const auto& override : config.overrides) overrides += override + "\n";
  // Recipes may contain private values, so only the owner can read the files.
  auto write = [](const fs::path& file, const std::string& text) {
    write_file_atomic(file, text, "file", Readers::owner);
  };
  write(folder / "recipe.yaml", config.raw);
  write(folder / "overrides.txt", overrides);
  write(folder / "resolved.yaml", config.resolved);
  write(folder / "provenance.json", config.provenance);
  write(folder / "environment.json", config.environment);
  for (const auto& [name, text] : config.files) {
    fs::path file = folder / "files" / (name + ".yaml");
    make_directories(file.parent_path());
    write(file, text);
  }
}

SavedConfig read_saved_config(const fs::path& path) {
  std::error_code ignored;
  if (auto parts = parts_of_history(run_history(path)); !parts.empty())
    return read_config_folder(parts.back().invocation.folder);
  if (fs::exists(path / "config" / "resolved.yaml", ignored))
    return read_config_folder(path / "config");
  CheckpointPlace place = locate_checkpoints(path);
  CheckpointStore store(place.folder);
  std::optional<int64_t> step = place.step;
  if (!step)
    for (const auto& info : store.list())
      if (info.problem.empty()) step = info.step;
  MT_USER_CHECK(step.has_value(), ErrorClass::checkpoint,
                cat(path.string(), " contains no readable checkpoint"),
                "give the folder of another run");
  std::string where = store.step_folder(*step).string();
  CheckpointMeta meta = meta_from_json(store.meta(*step), where);
  SavedConfig out = saved_config_from_json(meta.saved, where);
  out.resolved = meta.config;
  return out;
}

SavedIdentity identity_of(const SavedConfig& config) {
  OrderedJson json = OrderedJson::parse(config.environment, nullptr, false);
  auto text = [&](const char* key) {
    auto found = json.is_object() ? json.find(key) : json.end();
    return json.is_object() && found != json.end() && found->is_string() ? found->get<std::string>()
                                                                         : std::string();
  };
  std::map<std::string, std::string> weights;
  if (json.is_object() && json.contains(kWeights) && json[kWeights].is_object())
    for (const auto& [setting, digest] : json[kWeights].items())
      if (digest.is_string()) weights[setting] = digest;
  return {text("name"),    text("directory"),     text("data"),          text("tokenizer"),
          text("run"),     text("checkpoints"),   text("arithmetic"),    text("invocation"),
          text("exports"), text("chat_template"), text("source_config"), std::move(weights)};
}

void set_weights(SavedConfig& config, const std::map<std::string, std::string>& weights) {
  OrderedJson json = OrderedJson::parse(config.environment, nullptr, false);
  if (!json.is_object()) return;
  json[kWeights] = weights;
  config.environment = dump(json);
}

std::map<std::string, std::string> origins_of(const SavedConfig& config) {
  std::map<std::string, std::string> out;
  OrderedJson json = OrderedJson::parse(config.provenance, nullptr, false);
  if (!json.is_object()) return out;
  for (const auto& [path, leaf] : json.items())
    if (leaf.is_object() && leaf.contains("where") && leaf["where"].is_string())
      out[path] = leaf["where"];
  return out;
}

namespace {

std::vector<std::string> changed_programs(const OrderedJson& before, const OrderedJson& now) {
  std::vector<std::string> out;
  auto plugins = [](const OrderedJson& environment) {
    std::map<std::string, std::string> hashes;
    for (const auto& plugin : environment.value("plugins", OrderedJson::array()))
      if (plugin.is_object())
        hashes[cat(plugin.value("kind", ""), " ", plugin.value("name", ""))] =
            plugin.value("sha256", "");
    return hashes;
  };
  const OrderedJson programs = now.value("binaries", OrderedJson::object()),
                    old_programs = before.value("binaries", OrderedJson::object());
  for (const auto& [name, hash] : programs.items())
    if (old_programs.value(name, OrderedJson("")) != hash)
      out.push_back(cat("a different build of ", name));
  auto old_plugins = plugins(before), new_plugins = plugins(now);
  for (const auto& [name, hash] : new_plugins)
    if (auto old = old_plugins.find(name); old != old_plugins.end() && old->second != hash)
      out.push_back(cat("a different build of the plugin ", name));
  return out;
}

OrderedJson environment_json(const SavedConfig& config) {
  return OrderedJson::parse(config.environment, nullptr, false);
}

}  // namespace

std::vector<std::string> changed_programs(const SavedConfig& before, const SavedConfig& now) {
  OrderedJson a = environment_json(before), b = environment_json(now);
  return a.is_object() && b.is_object() ? changed_programs(a, b) : std::vector<std::string>();
}

std::vector<std::string> changed_since(const SavedConfig& before, const SavedConfig& now) {
  OrderedJson a = environment_json(before), b = environment_json(now);
  if (!a.is_object() || !b.is_object()) return {"the environment of the saved run is unknown"};
  std::vector<std::string> out = changed_programs(a, b);
  if (a.value("arithmetic", "") != b.value("arithmetic", ""))
    out.push_back(cat("different arithmetic: ", printable(b.value("arithmetic", ""), 200)));
  return out;
}

std::vector<std::string> changed_data(const SavedConfig& before, const SavedConfig& now) {
  if (!environment_json(before).is_object()) return {};
  const SavedIdentity a = identity_of(before), b = identity_of(now);
  std::vector<std::string> out;
  if (a.tokenizer != b.tokenizer)
    out.push_back(
        cat("tokenizer: ", printable(a.tokenizer, 200), " -> ", printable(b.tokenizer, 200)));
  for (const std::string& change : data_changes(a.data, b.data))
    out.push_back(cat("data: ", change));
  return out;
}

std::vector<std::string> changed_weights(const SavedConfig& before, const SavedConfig& now) {
  const auto then = identity_of(before).weights, here = identity_of(now).weights;
  std::vector<std::string> out;
  for (const auto& [setting, digest] : then) {
    const auto found = here.find(setting);
    if (found == here.end() || found->second != digest) out.push_back(setting);
  }
  return out;
}

}  // namespace mtrain
