#include "mtrain/launch/dtype_choice.h"

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/recipe/continued.h"
#include "mtrain/record/train_state.h"
#include "mtrain/tensor/device_backend.h"

namespace mtrain {
namespace {

constexpr const char* kSetting = "mixed_precision.dtype";
constexpr std::string_view kSourcePrefix =
    "auto: ";  // prefix of the source location of a value that auto chose

Bf16Products ask_backend(const Recipe& recipe, PluginHost& plugins) {
  const std::string& name = recipe.settings.dist.backend;
  if (name == "cpu") return make_cpu_backend(1)->bf16_products();
  try {
    BackendContext context;
    return plugins.make<DeviceBackend>(name, Node::map(), context)->bf16_products();
  } catch (const Error&) {
    // A training run reports the error when it opens the backend. Other commands, such as the
    // comparison of layouts, do not need the device.
    return {true,
            cat("bf16 is assumed, since the backend ", name, " is not available on this machine")};
  }
}

DtypeChoice fastest(const Recipe& recipe, PluginHost& plugins) {
  const MixedPrecisionSection& p = recipe.settings.mixed_precision;
  if (p.quantized_products())
    return {"bf16",
            cat("everything except the ", p.fp8 != "none" ? "FP8" : "FP4",
                " matrix products is computed in bf16"),
            ""};
  Bf16Products products = ask_backend(recipe, plugins);
  return {products.fast ? "bf16" : "fp32", products.reason, ""};
}

/// The dtype of a checkpoint's run; empty if it is not recorded.
std::string type_of(const CheckpointStore& store, int64_t step) {
  try {
    const std::string place = store.step_folder(step).string();
    Node config =
        parse_yaml(meta_from_json(store.meta(step), place).config, cat(place, " (its recipe)"));
    const Node* dtype = config.find(kSetting);
    return dtype && dtype_from_name(dtype->as_text()) ? dtype->as_text() : "";
  } catch (const Error&) {
    return {};
  }
}

/// The dtype of the run that this recipe continues. Empty for a new run, and if the checkpoint
/// cannot be read, which resuming reports.
std::string type_of_continued(const Recipe& recipe) {
  return read_continued(recipe, type_of).value_or("");
}

std::string kept_note(const std::string& kept, const std::string& here) {
  return cat(kSetting, ": ", kept, ", the dtype in which this run began; auto would choose ", here,
             " on this machine");
}

void settle(Recipe& recipe, const DtypeChoice& choice) {
  recipe.settings.mixed_precision.dtype = choice.dtype;
  recipe.dtype_reason = choice.reason;
  auto source = std::make_shared<Source>(SourceKind::built_in, cat(kSourcePrefix, choice.reason),
                                         choice.dtype);
  recipe.config.resolve(kSetting, Node::string(choice.dtype).set_location({source, 0, 0}));
}

bool is_auto(const Recipe& recipe) {
  return recipe.settings.mixed_precision.dtype == MixedPrecisionSection::kAuto;
}

DtypeChoice choose_and_log(const Recipe& recipe, PluginHost& plugins) {
  DtypeChoice choice = choose_dtype(recipe, plugins);
  if (!choice.note.empty()) log_info(choice.note);
  return choice;
}

void broadcast(Communicator& ranks, std::string& text) {
  auto length = static_cast<int64_t>(text.size());
  ranks.broadcast(Buffer(&length, 1, DType::i64), 0);
  std::vector<uint8_t> bytes(text.begin(), text.end());
  bytes.resize(static_cast<size_t>(length));
  ranks.broadcast(bytes, 0);
  text.assign(bytes.begin(), bytes.end());
}

}  // namespace

DtypeChoice choose_dtype(const Recipe& recipe, PluginHost& plugins) {
  DtypeChoice here = fastest(recipe, plugins);
  std::string kept = type_of_continued(recipe);
  if (kept.empty() || kept == here.dtype) return here;
  if (recipe.settings.mixed_precision.quantized_products() && kept == "fp32")
    return here;  // FP8 or FP4 products were enabled after the run began
  return {kept, "the dtype in which this run began", kept_note(kept, here.dtype)};
}

void resolve_dtype(Recipe& recipe, PluginHost& plugins) {
  if (is_auto(recipe)) settle(recipe, choose_and_log(recipe, plugins));
}

void resolve_dtype(Recipe& recipe, PluginHost& plugins, Communicator& ranks) {
  if (!is_auto(recipe)) return;
  DtypeChoice choice;
  if (ranks.rank() == 0) choice = choose_and_log(recipe, plugins);
  broadcast(ranks, choice.dtype);
  broadcast(ranks, choice.reason);
  settle(recipe, choice);
}

void note_kept_dtype(const Recipe& recipe, const SavedConfig& saved, PluginHost& plugins) {
  auto origins = origins_of(saved);
  auto origin = origins.find(kSetting);
  const Node* now = recipe.config.root().find(kSetting);
  if (origin == origins.end() || !origin->second.starts_with(kSourcePrefix) || !now) return;
  if (now->loc() && now->loc().source->kind() == SourceKind::command_line)
    return;  // the user's own choice
  std::string kept = now->as_text(), here = fastest(recipe, plugins).dtype;
  if (kept != here) log_info(kept_note(kept, here));
}

}  // namespace mtrain
