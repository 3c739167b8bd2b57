// Folders of PyPI's peft: adapter_config.json and adapter_model.safetensors.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/recipe/hf_json.h"
#include "mtrain/record/saved_step.h"
#include "mtrain/train/file_values.h"
#include "mtrain/train/peft_adapter.h"

namespace mtrain {
namespace {

using Json = nlohmann::json;

constexpr const char *kConfig = "adapter_config.json", *kWeights = "adapter_model.safetensors",
                     *kRoot = "base_model.model.", *kA = ".lora_A.weight", *kB = ".lora_B.weight",
                     *kMagnitude = ".lora_magnitude_vector", *kVector = ".ia3_l";

/// "q_proj" of "model.layers.0.self_attn.q_proj"
std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

/// Names with which peft finds exactly these modules: the last parts of their paths if the modules
/// of each last part are alike, otherwise whole paths.
template <class Value>
Json by_name(const std::vector<PeftModule>& modules, const Value& value) {
  std::map<std::string, std::set<Json>> of_last;
  for (const PeftModule& m : modules) of_last[last_part(m.module())].insert(value(m));
  Json out = Json::object();
  for (const PeftModule& m : modules) {
    const std::string last = last_part(m.module());
    const bool alike = of_last[last].size() == 1;
    if (const Json its = value(m); !its.is_null()) out[alike ? last : m.module()] = its;
  }
  return out;
}

/// "lm_head" of "lm_head.weight"
std::string module_name(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

bool is_adapted(const PeftAdapter& adapter, const std::string& module) {
  return std::ranges::any_of(adapter.modules,
                             [&](const PeftModule& m) { return m.module() == module; });
}

/// The name of a tensor that is saved whole: as a module of modules_to_save, or as the bias of a
/// module with an adapter. Error(config) for others.
std::string whole_name(const PeftAdapter& adapter, const PeftWhole& whole) {
  const std::string module = module_name(whole.tensor), last = last_part(whole.tensor);
  const bool adapted = is_adapted(adapter, module);
  const bool fits = last == "bias" ? !(adapter.ia3 && adapted) : last == "weight" && !adapted;
  MT_USER_CHECK(fits, ErrorClass::config,
                cat("peft.train: the run trains ", whole.tensor, ", which ",
                    adapted && last == "bias" ? "also has a vector"
                    : adapted                 ? "also has an adapter"
                                              : "is not the weight or the bias of a module",
                    ": peft's format cannot store it"),
                "merge the adapters into a folder of the whole model: mtrain merge RUN --into DIR");
  MT_USER_CHECK(whole.copies.empty(), ErrorClass::config,
                cat("peft.train: the run trains ", whole.tensor,
                    ", which is also the output head, and peft unties the two"),
                "merge the adapters into a folder of the whole model: mtrain merge RUN --into DIR");
  return cat(kRoot, module, adapted ? ".base_layer." : ".", last);
}

/// adapter_config.json of adapters that are vectors. `saved`: modules_to_save.
std::string vectors_config(const PeftAdapter& adapter, const std::set<std::string>& targets,
                           const Json& saved, bool transposed) {
  std::set<std::string> of_input;
  for (const PeftModule& m : adapter.modules)
    if (m.of_input) of_input.insert(m.module());
  const Json config = {{"peft_type", "IA3"},
                       {"task_type", adapter.task.empty() ? Json() : Json(adapter.task)},
                       {"base_model_name_or_path", adapter.base},
                       {"fan_in_fan_out", transposed},
                       {"init_ia3_weights", true},
                       {"inference_mode", true},
                       {"modules_to_save", saved},
                       {"feedforward_modules", of_input},
                       {"target_modules", targets}};
  return config.dump(2) + "\n";
}

std::string config_text(const PeftAdapter& adapter) {
  std::set<std::string> targets;
  for (const PeftModule& m : adapter.modules) targets.insert(m.module());
  std::set<std::string> saved;
  bool biases = false;
  for (const PeftWhole& w : adapter.whole) {
    const bool adapted = is_adapted(adapter, module_name(w.tensor));
    if (!adapted) saved.insert(module_name(w.tensor));
    biases = biases || adapted;
  }
  const bool transposed =
      std::ranges::any_of(adapter.modules, [](const PeftModule& m) { return m.transposed; });
  if (adapter.ia3)
    return vectors_config(adapter, targets, saved.empty() ? Json() : Json(saved), transposed);
  const auto ranks = by_name(adapter.modules, [&](const PeftModule& m) {
    return m.rank == adapter.rank ? Json() : Json(m.rank);
  });
  const auto alphas = by_name(adapter.modules, [&](const PeftModule& m) {
    return m.alpha == adapter.alpha ? Json() : Json(m.alpha);
  });
  const Json config = {{"peft_type", "LORA"},
                       {"task_type", adapter.task.empty() ? Json() : Json(adapter.task)},
                       {"base_model_name_or_path", adapter.base},
                       {"r", adapter.rank},
                       {"lora_alpha", adapter.alpha},
                       {"lora_dropout", adapter.dropout},
                       {"use_rslora", adapter.rslora},
                       {"use_dora", adapter.dora},
                       {"bias", biases ? "lora_only" : "none"},
                       {"fan_in_fan_out", transposed},
                       {"init_lora_weights", true},
                       {"inference_mode", true},
                       {"modules_to_save", saved.empty() ? Json() : Json(saved)},
                       {"target_modules", targets},
                       {"rank_pattern", ranks},
                       {"alpha_pattern", alphas}};
  return config.dump(2) + "\n";
}

/// The tensors of adapter_model.safetensors.
class AdapterTensors final : public HfTensorReader {
 public:
  AdapterTensors(const PeftAdapter& adapter, DType dtype) {
    for (const PeftModule& m : adapter.modules) {
      MT_USER_CHECK(
          !m.experts, ErrorClass::config,
          cat("the run has adapters of experts, such as ", m.weight, ", which peft does not load"),
          "merge the adapters into a folder of the whole model: mtrain merge RUN --into "
          "DIR");
      if (adapter.ia3) {
        specs_.push_back({cat(kRoot, m.module(), kVector), dtype,
                          m.of_input ? Shape{1, m.in} : Shape{m.out, 1}});
        values_.push_back(&m.gains);
        continue;
      }
      specs_.push_back({cat(kRoot, m.module(), kA), dtype, Shape{m.rank, m.in}});
      specs_.push_back({cat(kRoot, m.module(), kB), dtype, Shape{m.out, m.rank}});
      values_.push_back(&m.a), values_.push_back(&m.b);
      if (!adapter.dora) continue;
      specs_.push_back({cat(kRoot, m.module(), kMagnitude), dtype, Shape{m.out}});
      values_.push_back(&m.magnitude);
    }
    for (const PeftWhole& w : adapter.whole) {
      specs_.push_back({whole_name(adapter, w), dtype, w.shape});
      values_.push_back(&w.values);
    }
  }
  const std::vector<TensorSpec>& specs() const { return specs_; }
  void read(size_t i, const HfSink& out) override {
    out(as_file_type(*values_[i], 0, specs_[i], bytes_));
  }

 private:
  std::vector<TensorSpec> specs_;
  std::vector<const std::vector<float>*> values_;
  std::vector<std::byte> bytes_;
};

/// Keys that say how an adapter was trained, or where it came from.
constexpr const char* kHarmless[] = {"auto_mapping",
                                     "base_model_name_or_path",
                                     "revision",
                                     "task_type",
                                     "inference_mode",
                                     "lora_dropout",
                                     "layers_to_transform",
                                     "layers_pattern",
                                     "exclude_modules",
                                     "target_modules",
                                     "megatron_config",
                                     "megatron_core",
                                     "qalora_group_size",
                                     "peft_version",
                                     "runtime_config",
                                     "ensure_weight_tying",
                                     "init_ia3_weights",
                                     "feedforward_modules"};  // shapes of tensors say this
/// Keys that are read.
constexpr const char* kRead[] = {
    "peft_type",      "r",        "lora_alpha", "use_rslora",     "rank_pattern", "alpha_pattern",
    "fan_in_fan_out", "use_dora", "bias",       "modules_to_save"};
/// Values of init_lora_weights with which the weights of the base stay. PiSSA, OLoRA, CorDA, LoftQ
/// and LoRA-GA change them, so that their adapters belong to other weights than the folder has.
constexpr const char* kPlainStarts[] = {"gaussian", "eva", "orthogonal"};

bool among(const std::string& key, auto& keys) {
  return std::ranges::any_of(keys, [&](const char* other) { return key == other; });
}

/// Absent, false, empty or "none": the feature of this key is off.
bool is_off(const Json& value) {
  return value.is_null() || value == false || value == "none" ||
         ((value.is_array() || value.is_object()) && value.empty());
}

bool is_supported(const std::string& key, const Json& value) {
  if (key == "init_lora_weights")
    return value.is_boolean() ||
           (value.is_string() && among(value.get<std::string>(), kPlainStarts));
  if (key == "eva_config") return true;  // how the first a was chosen
  if (key == "peft_type") return value == "LORA" || value == "IA3";
  if (key == "use_rslora" || key == "fan_in_fan_out" || key == "use_dora")
    return value.is_boolean() || value.is_null();
  if (key == "rank_pattern" || key == "alpha_pattern") return value.is_object() || value.is_null();
  if (key == "bias") return value == "none" || value == "lora_only" || value == "all";
  if (key == "modules_to_save") return value.is_array() || value.is_null();
  return among(key, kHarmless) || among(key, kRead) || is_off(value);
}

constexpr double kMostNumber = 1 << 20;

/// A positive number, for r a whole one.
double positive(const Json& config, const char* key, bool whole, const fs::path& file) {
  const Json value = config.contains(key) ? config.at(key) : Json();
  const double number = value.is_number() ? value.get<double>() : 0;
  MT_USER_CHECK(number > 0 && number <= kMostNumber && (!whole || number == std::floor(number)),
                ErrorClass::checkpoint,
                cat(printable(file.string()), ": ", key, " is not a positive ",
                    whole ? "whole number" : "number", " of at most ", kMostNumber),
                "get the adapter's folder again");
  return number;
}

bool flag(const Json& config, const char* key) {
  return config.contains(key) && config.at(key) == true;
}

std::string help_of_refused(const Json& config) {
  const auto start = config.find("init_lora_weights");
  if (start != config.end() && !is_supported("init_lora_weights", *start))
    return "this start changed the weights of the base: convert the adapters to plain LoRA with "
           "peft (save_pretrained with path_initial_model_for_weight_conversion), or merge them "
           "with peft (merge_and_unload) and use the merged model";
  return "adapters of LoRA, rsLoRA, DoRA and IA3 are supported; merge others with peft itself "
         "(merge_and_unload), and use the merged model";
}

Json read_config(const fs::path& folder) {
  const fs::path file = folder / kConfig;
  MT_USER_CHECK(is_peft_folder(folder) || !is_saved_run(folder), ErrorClass::usage,
                cat(printable(folder.string()), " is a run, not a folder of peft"),
                cat("`mtrain export ", shell_word(folder.string()), " DIR` writes its adapters"));
  const Json config = hf::parse(read_file(file), file.string());  // limits nesting
  std::vector<std::string> refused;
  if (!config.contains("peft_type")) refused.emplace_back("peft_type is missing");
  for (const auto& [key, value] : config.items())
    if (!is_supported(key, value))
      refused.push_back(cat(printable(key, 60), ": ", printable(value.dump(), 60)));
  MT_USER_CHECK(refused.empty(), ErrorClass::checkpoint,
                cat(printable(file.string()), " has settings that are not supported:\n  ",
                    join(refused, "\n  ")),
                help_of_refused(config));
  return config;
}

/// The value for a module in rank_pattern or alpha_pattern: that of the first key with which its
/// path ends. To peft, keys are regular expressions; others than names are refused.
double pattern_value(const Json& config, const char* patterns, const std::string& module,
                     double otherwise) {
  const Json all = config.contains(patterns) && config.at(patterns).is_object()
                       ? config.at(patterns)
                       : Json::object();
  for (const auto& [key, value] : all.items()) {
    MT_USER_CHECK(key.find_first_of("^$*+?()[]{}|\\") == std::string::npos && value.is_number(),
                  ErrorClass::checkpoint,
                  cat(kConfig, ": ", patterns, " has the entry ", printable(key, 60), ": ",
                      printable(value.dump(), 60)),
                  "only names of modules with numbers are supported, not regular expressions");
    const bool ends = module.ends_with(key);
    if (!ends || (module.size() > key.size() && module[module.size() - key.size() - 1] != '.'))
      continue;
    const double number = value.get<double>();
    MT_USER_CHECK(number > 0 && number <= kMostNumber, ErrorClass::checkpoint,
                  cat(kConfig, ": ", patterns, " of ", printable(key, 60),
                      " is not a positive number of at most ", kMostNumber),
                  "get the adapter's folder again");
    return number;
  }
  return otherwise;
}

/// `rank`: of the tensor; -1: any.
std::vector<float> values_of(const SafetensorsFile& file, const TensorInfo& tensor, int rank = 2) {
  MT_USER_CHECK(tensor.dtype && is_floating(*tensor.dtype) && *tensor.dtype != DType::f64 &&
                    (rank < 0 || tensor.shape.rank() == rank),
                ErrorClass::checkpoint,
                cat(file.path().string(), ": tensor ", tensor.name, " ", tensor.file_dtype, " ",
                    tensor.shape, " is not a ",
                    rank == 2   ? "matrix"
                    : rank == 1 ? "vector"
                                : "tensor",
                    " of fp32, bf16 or fp16"),
                "get the adapter's folder again");
  return file_values(file, tensor);
}

/// Adds the adapter of a module, whose a is this tensor.
void add_module(const SafetensorsFile& file, const TensorInfo& tensor, const Json& config,
                PeftAdapter& out) {
  const std::string path = tensor.name.substr(0, tensor.name.size() - std::string_view(kA).size());
  const TensorInfo& b = file.at(path + kB);
  PeftModule m;
  const std::string module =
      path.starts_with(kRoot) ? path.substr(std::string_view(kRoot).size()) : path;
  m.weight = module + ".weight";
  m.transposed = flag(config, "fan_in_fan_out");
  m.a = values_of(file, tensor), m.b = values_of(file, b);
  m.rank = tensor.shape[0], m.in = tensor.shape[1], m.out = b.shape[0];
  const double r = pattern_value(config, "rank_pattern", module, static_cast<double>(out.rank));
  MT_USER_CHECK(b.shape[1] == m.rank && static_cast<double>(m.rank) == r, ErrorClass::checkpoint,
                cat(file.path().string(), ": ", module, " has lora_A ", tensor.shape,
                    " and lora_B ", b.shape, ", and adapter_config.json says rank ", r),
                "get the adapter's folder again: its files do not belong together");
  if (out.dora) {
    const TensorInfo& magnitude = file.at(path + kMagnitude);
    m.magnitude = values_of(file, magnitude, 1);
    MT_USER_CHECK(magnitude.shape[0] == m.out, ErrorClass::checkpoint,
                  cat(file.path().string(), ": ", module, " has lora_B ", b.shape,
                      " and lora_magnitude_vector ", magnitude.shape),
                  "get the adapter's folder again: its files do not belong together");
  }
  m.alpha = pattern_value(config, "alpha_pattern", module, out.alpha);
  m.scale = m.alpha / (out.rslora ? std::sqrt(r) : r);
  out.modules.push_back(std::move(m));
}

/// Adds the vector of a module.
void add_vector(const SafetensorsFile& file, const TensorInfo& tensor, const Json& config,
                PeftAdapter& out) {
  PeftModule m;
  std::string module = tensor.name.substr(0, tensor.name.size() - std::string_view(kVector).size());
  if (module.starts_with(kRoot)) module = module.substr(std::string_view(kRoot).size());
  m.weight = module + ".weight";
  m.transposed = flag(config, "fan_in_fan_out");
  m.gains = values_of(file, tensor);
  const bool row = tensor.shape[0] == 1, column = tensor.shape[1] == 1;
  MT_USER_CHECK(row != column, ErrorClass::checkpoint,
                cat(file.path().string(), ": ", printable(tensor.name), " ", tensor.shape,
                    " is neither of the inputs [1, n] nor of the results [n, 1] of a module"),
                "get the adapter's folder again");
  m.of_input = row;
  (row ? m.in : m.out) = std::ssize(m.gains);
  out.modules.push_back(std::move(m));
}

/// Whether a tensor of the file is one of modules_to_save, or a bias with `bias`. If so, adds it.
bool add_whole(const SafetensorsFile& file, const TensorInfo& tensor, const Json& config,
               PeftAdapter& out) {
  constexpr std::string_view kBase = ".base_layer";
  std::string name = tensor.name;
  if (name.starts_with(kRoot)) name = name.substr(std::string_view(kRoot).size());
  if (name.find('.') == std::string::npos) return false;
  std::string module = module_name(name);
  const std::string last = last_part(name);
  bool known = last == "bias" && config.contains("bias") && config.at("bias") != "none";
  if (known && module.ends_with(kBase)) module.resize(module.size() - kBase.size());
  if (config.contains("modules_to_save"))
    for (const Json& saved : config.at("modules_to_save"))
      known = known || (saved.is_string() && module.ends_with(saved.get<std::string>()));
  if (known)
    out.whole.push_back({cat(module, ".", last), tensor.shape, values_of(file, tensor, -1)});
  return known;
}

/// Whether a tensor repeats one of modules_to_save: peft saves a trained embedding that stays the
/// output head (ensure_weight_tying) under both names. If so, notes the name.
bool add_copy(const SafetensorsFile& file, const TensorInfo& tensor, PeftAdapter& out) {
  if (!out.tied || !tensor.name.ends_with(".weight")) return false;
  for (PeftWhole& whole : out.whole)
    if (whole.shape == tensor.shape && whole.values == values_of(file, tensor, -1)) {
      std::string name = tensor.name;
      if (name.starts_with(kRoot)) name = name.substr(std::string_view(kRoot).size());
      whole.copies.push_back(std::move(name));
      return true;
    }
  return false;
}

}  // namespace

std::string PeftModule::module() const {
  return weight.substr(0, weight.size() - std::string_view(".weight").size());
}

std::string type_of(const PeftAdapter& adapter) {
  return adapter.ia3 ? "ia3" : adapter.dora ? "dora" : "lora";
}

bool is_peft_folder(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kConfig, error);
}

std::string peft_base(const fs::path& folder) {
  const fs::path file = folder / kConfig;
  const Json config = hf::parse(read_file(file), file.string());
  const auto base = config.find("base_model_name_or_path");
  return base != config.end() && base->is_string() ? base->get<std::string>() : std::string();
}

PeftAdapter read_peft_folder(const fs::path& folder) {
  const Json config = read_config(folder);
  const SafetensorsFile file(folder / kWeights);
  const bool ia3 = config.at("peft_type") == "IA3";
  const fs::path place = folder / kConfig;
  PeftAdapter out{.modules = {},
                  .rank = ia3 ? 0 : static_cast<int64_t>(positive(config, "r", true, place)),
                  .alpha = ia3 ? 0 : positive(config, "lora_alpha", false, place),
                  .rslora = flag(config, "use_rslora"),
                  .dora = flag(config, "use_dora"),
                  .ia3 = ia3,
                  .tied = flag(config, "ensure_weight_tying")};
  if (config.contains("base_model_name_or_path") &&
      config.at("base_model_name_or_path").is_string())
    out.base = config.at("base_model_name_or_path").get<std::string>();
  std::vector<const TensorInfo*> others;
  auto belongs = [&](const std::string& name, std::string_view part) {  // to an adapter
    return name.ends_with(part) && file.find(name.substr(0, name.size() - part.size()) + kA);
  };
  for (const TensorInfo& tensor : file.tensors()) {
    if (ia3 && tensor.name.ends_with(kVector))
      add_vector(file, tensor, config, out);
    else if (!ia3 && tensor.name.ends_with(kA))
      add_module(file, tensor, config, out);
    else if (!belongs(tensor.name, kB) && !(out.dora && belongs(tensor.name, kMagnitude)) &&
             !add_whole(file, tensor, config, out))
      others.push_back(&tensor);
  }
  std::vector<std::string> unknown;
  for (const TensorInfo* tensor : others)
    if (!add_copy(file, *tensor, out)) unknown.push_back(cat(tensor->name, " ", tensor->shape));
  MT_USER_CHECK(
      unknown.empty(), ErrorClass::checkpoint,
      cat(file.path().string(), " has tensors that are not supported:\n  ", join(unknown, "\n  ")),
      "only lora_A and lora_B of linear layers, lora_magnitude_vector with use_dora, ia3_l with "
      "peft_type IA3, biases with "
      "bias, and tensors of modules_to_save are supported");
  std::ranges::sort(out.modules, {}, &PeftModule::weight);
  const auto twice = std::ranges::adjacent_find(out.modules, {}, &PeftModule::weight);
  MT_USER_CHECK(twice == out.modules.end(), ErrorClass::checkpoint,
                cat(file.path().string(), " has two adapters of ", twice->module()),
                "get the adapter's folder again");
  std::ranges::sort(out.whole, {}, &PeftWhole::tensor);
  const auto again = std::ranges::adjacent_find(out.whole, {}, &PeftWhole::tensor);
  MT_USER_CHECK(
      again == out.whole.end(), ErrorClass::checkpoint,
      cat(file.path().string(), " has ", again == out.whole.end() ? "" : again->tensor, " twice"),
      "get the adapter's folder again");
  return out;
}

HfExported write_peft_folder(const PeftAdapter& adapter, DType dtype, const fs::path& to,
                             const std::function<void(HfFolderWriter&)>& add_files) {
  HfFolderWriter out(to);
  AdapterTensors tensors(adapter, dtype);
  HfExported done{.files = 1, .tensors = tensors.specs().size()};
  for (const TensorSpec& spec : tensors.specs())
    done.bytes += static_cast<uint64_t>(spec.shape.numel()) * size_of(spec.dtype);
  out.file(kWeights, tensors.specs(), tensors);
  if (add_files) add_files(out);
  out.text(kConfig, config_text(adapter));
  out.commit();
  return done;
}

}  // namespace mtrain
