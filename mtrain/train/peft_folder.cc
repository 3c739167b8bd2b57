// Folders of PyPI's peft: adapter_config.json and adapter_model.safetensors.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/recipe/hf_json.h"
#include "mtrain/train/file_values.h"
#include "mtrain/train/peft_adapter.h"

namespace mtrain {
namespace {

using Json = nlohmann::json;

constexpr const char *kConfig = "adapter_config.json", *kWeights = "adapter_model.safetensors",
                     *kRoot = "base_model.model.", *kA = ".lora_A.weight", *kB = ".lora_B.weight";

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

std::string config_text(const PeftAdapter& adapter) {
  std::set<std::string> targets;
  for (const PeftModule& m : adapter.modules) targets.insert(m.module());
  const bool transposed =
      std::ranges::any_of(adapter.modules, [](const PeftModule& m) { return m.transposed; });
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
                       {"use_dora", false},
                       {"bias", "none"},
                       {"fan_in_fan_out", transposed},
                       {"init_lora_weights", true},
                       {"inference_mode", true},
                       {"modules_to_save", nullptr},
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
      specs_.push_back({cat(kRoot, m.module(), kA), dtype, Shape{m.rank, m.in}});
      specs_.push_back({cat(kRoot, m.module(), kB), dtype, Shape{m.out, m.rank}});
      values_.push_back(&m.a), values_.push_back(&m.b);
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
                                     "ensure_weight_tying"};
/// Keys that are read.
constexpr const char* kRead[] = {
    "peft_type",     "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern",
    "fan_in_fan_out"};
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
  if (key == "peft_type") return value == "LORA";
  if (key == "use_rslora" || key == "fan_in_fan_out") return value.is_boolean() || value.is_null();
  if (key == "rank_pattern" || key == "alpha_pattern") return value.is_object() || value.is_null();
  return among(key, kHarmless) || among(key, kRead) || is_off(value);
}

/// A positive number, for r a whole one.
double positive(const Json& config, const char* key, bool whole, const fs::path& file) {
  constexpr double kMost = 1 << 20;
  const Json value = config.contains(key) ? config.at(key) : Json();
  const double number = value.is_number() ? value.get<double>() : 0;
  MT_USER_CHECK(number > 0 && number <= kMost && (!whole || number == std::floor(number)),
                ErrorClass::checkpoint,
                cat(printable(file.string()), ": ", key, " is not a positive ",
                    whole ? "whole number" : "number", " of at most ", kMost),
                "get the adapter's folder again");
  return number;
}

bool flag(const Json& config, const char* key) {
  return config.contains(key) && config.at(key) == true;
}

Json read_config(const fs::path& folder) {
  const fs::path file = folder / kConfig;
  const Json config = hf::parse(read_file(file), file.string());  // limits nesting
  std::vector<std::string> refused;
  if (!config.contains("peft_type")) refused.emplace_back("peft_type is missing");
  for (const auto& [key, value] : config.items())
    if (!is_supported(key, value))
      refused.push_back(cat(printable(key, 60), ": ", printable(value.dump(), 60)));
  MT_USER_CHECK(refused.empty(), ErrorClass::checkpoint,
                cat(printable(file.string()), " has settings that are not supported:\n  ",
                    join(refused, "\n  ")),
                "adapters of LoRA and rsLoRA are supported; merge others with peft itself "
                "(merge_and_unload), and use the merged model");
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
    if (ends && (module.size() == key.size() || module[module.size() - key.size() - 1] == '.'))
      return value.get<double>();
  }
  return otherwise;
}

std::vector<float> values_of(const SafetensorsFile& file, const TensorInfo& tensor) {
  MT_USER_CHECK(tensor.dtype && is_floating(*tensor.dtype) && *tensor.dtype != DType::f64 &&
                    tensor.shape.rank() == 2,
                ErrorClass::checkpoint,
                cat(file.path().string(), ": tensor ", tensor.name, " ", tensor.file_dtype, " ",
                    tensor.shape, " is not a matrix of fp32, bf16 or fp16"),
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
  m.alpha = pattern_value(config, "alpha_pattern", module, out.alpha);
  m.scale = m.alpha / (out.rslora ? std::sqrt(r) : r);
  out.modules.push_back(std::move(m));
}

}  // namespace

std::string PeftModule::module() const {
  return weight.substr(0, weight.size() - std::string_view(".weight").size());
}

bool is_peft_folder(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kConfig, error);
}

PeftAdapter read_peft_folder(const fs::path& folder) {
  const Json config = read_config(folder);
  const SafetensorsFile file(folder / kWeights);
  PeftAdapter out{.modules = {},
                  .rank = static_cast<int64_t>(positive(config, "r", true, folder / kConfig)),
                  .alpha = positive(config, "lora_alpha", false, folder / kConfig),
                  .rslora = flag(config, "use_rslora")};
  if (config.contains("base_model_name_or_path") &&
      config.at("base_model_name_or_path").is_string())
    out.base = config.at("base_model_name_or_path").get<std::string>();
  std::vector<std::string> unknown;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.name.ends_with(kA))
      add_module(file, tensor, config, out);
    else if (!tensor.name.ends_with(kB) ||
             !file.find(tensor.name.substr(0, tensor.name.size() - std::string_view(kB).size()) +
                        kA))
      unknown.push_back(cat(tensor.name, " ", tensor.shape));
  }
  MT_USER_CHECK(
      unknown.empty(), ErrorClass::checkpoint,
      cat(file.path().string(), " has tensors that are not supported:\n  ", join(unknown, "\n  ")),
      "only lora_A and lora_B of linear layers are supported");
  std::ranges::sort(out.modules, {}, &PeftModule::weight);
  const auto twice = std::ranges::adjacent_find(out.modules, {}, &PeftModule::weight);
  MT_USER_CHECK(twice == out.modules.end(), ErrorClass::checkpoint,
                cat(file.path().string(), " has two adapters of ", twice->module()),
                "get the adapter's folder again");
  return out;
}

HfExported write_peft_folder(const PeftAdapter& adapter, DType dtype, const fs::path& to) {
  HfFolderWriter out(to);
  AdapterTensors tensors(adapter, dtype);
  HfExported done{.files = 1, .tensors = tensors.specs().size()};
  for (const TensorSpec& spec : tensors.specs())
    done.bytes += static_cast<uint64_t>(spec.shape.numel()) * size_of(spec.dtype);
  out.file(kWeights, tensors.specs(), tensors);
  out.text(kConfig, config_text(adapter));
  out.commit();
  return done;
}

}  // namespace mtrain
