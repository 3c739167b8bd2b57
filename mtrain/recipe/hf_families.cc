#include "mtrain/recipe/hf_families.h"

#include <algorithm>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/not_built.h"
#include "mtrain/config/yaml_load.h"

namespace mtrain {
namespace {

constexpr std::string_view kFolderPrefix = "model_", kFolderEnding = ".families";
constexpr const char* kCommonFile = "model.families/common.yaml";

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    out.push_back(at->path());
  std::sort(out.begin(), out.end());
  return out;
}

const HfKey* find_key(const std::vector<HfKey>& keys, std::string_view name) {
  for (const HfKey& key : keys)
    if (key.name == name || std::find(key.also.begin(), key.also.end(), name) != key.also.end())
      return &key;
  return nullptr;
}

/// The families of one plugin, which may be like each other.
class PluginReader {
 public:
  explicit PluginReader(std::string plugin) : plugin_(std::move(plugin)) {}
  /// Adds the files of a folder, except those whose families an earlier folder has.
  void add(const fs::path& folder) {
    for (const fs::path& file : entries_of(folder))
      if (file.extension() == ".yaml") files_.emplace(file.stem().string(), file);
  }
  std::vector<HfFamily> read(std::map<std::string, Report>& faulty) {
    std::vector<HfFamily> out;
    for (const auto& [type, file] : files_)
      if (const HfFamily* family = get(type)) out.push_back(*family);
    faulty.merge(faulty_);
    return out;
  }

 private:
  const HfFamily* get(const std::string& type) {
    const auto file = files_.find(type);
    if (file == files_.end()) return nullptr;
    if (done_.contains(type)) return found_.contains(type) ? &found_.at(type) : nullptr;
    done_.insert(type);  // a family that is like itself finds nothing
    Report report;
    auto family = read_hf_family(file->second, plugin_, report,
                                 [&](const std::string& other) { return get(other); });
    if (!family) {
      faulty_[type] = std::move(report);
      return nullptr;
    }
    return &found_.emplace(type, std::move(*family)).first->second;
  }

  std::string plugin_;
  std::map<std::string, Report> faulty_;
  std::map<std::string, fs::path> files_;
  std::map<std::string, HfFamily> found_;
  std::set<std::string> done_;
};

}  // namespace

const HfKey* HfFamily::key(std::string_view name) const { return find_key(keys, name); }

std::string lacking_part(const HfFamily& family, const Schema* schema) {
  if (!family.needs.empty()) return family.needs;
  if (!schema) return cat("the model plugin ", family.plugin);
  for (const auto& [path, value] : family.settings) {
    const auto field = std::find_if(schema->fields.begin(), schema->fields.end(),
                                    [&](const FieldSpec& spec) { return spec.path == path; });
    if (field == schema->fields.end())
      return cat("the setting model.", path, " of the model plugin ", family.plugin);
    if (needs_part(*field, value)) return field->needs;
  }
  return {};
}

bool is_training_setting(const HfFamily& family, const FieldSpec& spec) {
  const auto is_lost = [&](const auto& entry) { return entry.first == spec.path; };
  return spec.training_only || spec.resume == ResumeClass::safe ||
         spec.resume == ResumeClass::start ||
         std::find(family.training_settings.begin(), family.training_settings.end(), spec.path) !=
             family.training_settings.end() ||
         std::any_of(family.lost_settings.begin(), family.lost_settings.end(), is_lost);
}

HfFamilies HfFamilies::read(const std::vector<fs::path>& plugin_folders) {
  HfFamilies out;
  std::map<std::string, PluginReader> plugins;
  std::set<std::string> found;  // plugins of earlier folders: later ones of the name are not used
  for (const fs::path& folder : plugin_folders) {
    std::error_code error;
    if (const fs::path common = folder / kCommonFile;
        out.common_.empty() && fs::exists(common, error))
      if (auto keys = read_hf_family(common, "", out.faults_)) out.common_ = std::move(keys->keys);
    std::set<std::string> here;
    for (const fs::path& entry : entries_of(folder)) {
      const std::string name = entry.filename().string();
      if (!name.starts_with(kFolderPrefix)) continue;
      const std::string plugin = entry.stem().string().substr(kFolderPrefix.size());
      if (name.ends_with(".so")) here.insert(plugin);
      if (name.ends_with(kFolderEnding) && !found.contains(plugin))
        plugins.try_emplace(plugin, plugin).first->second.add(entry);
    }
    found.merge(here);
  }
  std::vector<HfFamily> all;
  for (auto& [plugin, reader] : plugins)
    for (HfFamily& family : reader.read(out.faulty_)) all.push_back(std::move(family));
  // Of two plugins with families of one name, the one in the earlier folder has it.
  auto place = [&](const HfFamily& family) {
    return std::find(plugin_folders.begin(), plugin_folders.end(),
                     family.file.parent_path().parent_path());
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const HfFamily& a, const HfFamily& b) { return place(a) < place(b); });
  for (HfFamily& family : all)
    if (std::none_of(out.families_.begin(), out.families_.end(),
                     [&](const HfFamily& f) { return f.model_type == family.model_type; }))
      out.families_.push_back(std::move(family));
  for (const auto& [type, report] : out.faulty_) out.faults_.add(report);
  std::sort(out.families_.begin(), out.families_.end(),
            [](const HfFamily& a, const HfFamily& b) { return a.model_type < b.model_type; });
  return out;
}

const HfFamily* HfFamilies::find(std::string_view model_type, std::string_view architecture) const {
  if (const auto bad = faulty_.find(std::string(model_type)); bad != faulty_.end())
    throw Error(ErrorClass::plugin,
                cat("the file of the family ", bad->first, " is faulty:\n", bad->second.text()),
                "correct the file; `mtrain families` lists the faults of all");
  for (const HfFamily& family : families_) {
    const bool named = std::find(family.architectures.begin(), family.architectures.end(),
                                 architecture) != family.architectures.end() ||
                       (!architecture.empty() && (family.classification == architecture ||
                                                  family.token_classification == architecture));
    if (model_type.empty() ? named
                           : family.model_type == model_type && (architecture.empty() || named))
      return &family;
  }
  return nullptr;
}

const HfKey* HfFamilies::key(const HfFamily* family, std::string_view name) const {
  if (const HfKey* own = family ? family->key(name) : nullptr) return own;
  return find_key(common_, name);
}

std::vector<const HfFamily*> HfFamilies::of_plugin(std::string_view plugin) const {
  std::vector<const HfFamily*> out;
  for (const HfFamily& family : families_)
    if (family.plugin == plugin) out.push_back(&family);
  std::stable_partition(out.begin(), out.end(),
                        [&](const HfFamily* f) { return f->model_type == plugin; });
  return out;
}

}  // namespace mtrain
