#include "mtrain/recipe/make_saved_config.h"

#include <sys/utsname.h>

#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/config/json_write.h"
#include "mtrain/config/provenance.h"
#include "mtrain/plugin/stamp.h"
#include "mtrain/recipe/hf_source.h"

namespace mtrain {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMinSecret = 3;  // a shorter text is not a secret, and would match everywhere

std::string environment_text(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

/// The hash of a file that this process runs, computed once per process. "" if the file cannot be
/// read, which is not an error.
std::string hash_of_program(const fs::path& path) {
  static std::mutex mutex;
  static std::map<fs::path, std::string> known;
  std::lock_guard lock(mutex);
  auto [entry, first] = known.try_emplace(path);
  try {
    if (first) entry->second = sha256(MappedFile(path).bytes());
  } catch (const Error&) {
  }
  return entry->second;
}

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return std::string(trim(line.substr(line.find(':') + 1)));
  return "unknown";
}

OrderedJson environment_of(const Recipe& recipe, const PluginHost& plugins, const std::string& data,
                           const std::string& tokenizer, const std::string& arithmetic,
                           const std::string& invocation, const std::string& chat_template) {
  utsname system{};
  uname(&system);
  OrderedJson binaries = OrderedJson::object(), loaded = OrderedJson::array();
  for (const char* file : {"mtrain", "../lib/libmtrain_core.so"})
    binaries[fs::path(file).filename().string()] = hash_of_program(program_directory() / file);
  for (const auto& plugin : plugins.loaded())
    loaded.push_back({{"kind", plugin.kind},
                      {"name", plugin.name},
                      {"identity", plugin.identity},
                      {"path", plugin.path.string()},
                      {"sha256", hash_of_program(plugin.path)}});
  return {
      {"mtrain", MT_VERSION},
      {"name", recipe.name},
      {"recipe", recipe.config.composition().file},
      {"directory", fs::absolute(recipe.directory).lexically_normal().string()},
      {"run", fs::absolute(recipe.run_directory()).lexically_normal().string()},
      {"checkpoints", fs::absolute(recipe.checkpoint_directory()).lexically_normal().string()},
      {"exports", recipe.settings.checkpoint.hf.empty()
                      ? ""
                      : fs::absolute(recipe.settings.checkpoint.hf).lexically_normal().string()},
      {"invocation", invocation},
      {"host", system.nodename},
      {"system", cat(system.sysname, " ", system.release, " ", system.machine)},
      {"cpu", processor()},
      {"cpu_threads", std::thread::hardware_concurrency()},
      {"binaries", binaries},
      {"plugins", loaded},
      {"data", data},
      {"tokenizer", tokenizer},
      {"arithmetic", arithmetic},
      {"chat_template", chat_template},
      {"source_config", hf_source_config(recipe)}};
}

/// The current and shadowed values of settings that must not be saved.
std::vector<std::string> secret_values(const ConfigContainer& config) {
  std::vector<std::string> out;
  auto add = [&](const std::string& value) {
    if (value.size() >= kMinSecret) out.push_back(value);
  };
  for (const auto& path : config.secrets()) {
    for (const Node* root : {&config.root(), &config.composition().tree}) {
      const Node* node = root->find(path);
      if (!node) continue;
      add(node->as_text());
      for (const auto& old : node->history()) add(old.value);
    }
  }
  return out;
}

std::string redacted(std::string text, const std::vector<std::string>& secrets) {
  constexpr std::string_view kInstead = "???";
  for (const auto& secret : secrets)
    for (size_t at = 0; (at = text.find(secret, at)) != std::string::npos; at += kInstead.size())
      text.replace(at, secret.size(), kInstead);
  return text;
}

}  // namespace

SavedConfig make_saved_config(const Recipe& recipe, const PluginHost& plugins,
                              const std::string& data, const std::string& tokenizer,
                              const std::string& arithmetic, const std::string& invocation,
                              const std::string& chat_template) {
  const Composition& composition = recipe.config.composition();
  auto secrets = secret_values(recipe.config);
  SavedConfig out;
  out.raw = redacted(recipe.config.raw(), secrets);
  for (const auto& file : composition.files) {
    if (file.file == composition.file || !file.source) continue;
    std::string name = file.path.empty() ? fs::path(file.file).stem().string() : file.path;
    bool known = false;
    for (const auto& [other, text] : out.files) known = known || other == name;
    if (!known) out.files.emplace_back(name, redacted(file.source->text(), secrets));
  }
  for (const auto& override : recipe.config.overrides())
    if (override.given) out.overrides.push_back(redacted(override_line(override), secrets));
  out.resolved = recipe.config.to_yaml();
  out.provenance = redacted(write_json(provenance(recipe.config)) + "\n", secrets);
  out.environment = environment_text(
      environment_of(recipe, plugins, data, tokenizer, arithmetic, invocation, chat_template));
  return out;
}

}  // namespace mtrain
