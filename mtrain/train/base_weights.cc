#include "mtrain/train/base_weights.h"

#include <algorithm>
#include <array>

#include "mtrain/base/file.h"
#include "mtrain/base/hash.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/recipe/teacher.h"
#include "mtrain/record/saved_step.h"

namespace mtrain {
namespace {

/// Samples of a tensor's bytes: kSamples pieces at equal distances, the first and the last
/// included.
void add_samples(const HfDir& folder, const TensorInfo& tensor, Sha256& out) {
  constexpr uint64_t kSamples = 8, kPiece = 4096;
  const uint64_t bytes = tensor.data.size(), piece = std::min(bytes, kPiece);
  std::array<std::byte, kPiece> buffer;
  for (uint64_t i = 0; i < kSamples; ++i) {
    const std::span<std::byte> part(buffer.data(), piece);
    folder.read(tensor, (bytes - piece) * i / (kSamples - 1), part);
    out.update(part);
  }
}

}  // namespace

std::string base_identity(const fs::path& from) {
  Sha256 out;
  if (is_saved_run(from)) {
    const SavedStep saved = find_saved_step(from, "model.init_from");
    const CheckpointStore store(saved.checkpoints);
    out.update(read_file(store.step_folder(saved.step) / "manifest.json"));
    return out.hex();
  }
  const HfDir folder(from);
  for (const TensorInfo* tensor : folder.tensors()) {
    out.update(cat(tensor->name, ' ', tensor->file_dtype, ' ', tensor->shape, '\n'));
    add_samples(folder, *tensor, out);
  }
  return out.hex();
}

std::string base_identity(const Recipe& recipe) {
  const Settings& s = recipe.settings;
  if (!s.peft.frozen()) return "";
  const bool random = s.model.init_from.empty();
  std::string out = random ? "random" : base_identity(recipe.resolve(s.model.init_from));
  if (random || s.model.init_upcycle) out += cat(", seed ", s.rng.seed);  // of routers, too
  // The frozen weights are what adapters of this rank and factor leave of them.
  if (s.peft.starts_principal()) {
    out += cat(", pissa ", s.peft.rank, " x ", s.peft.scale());
    for (const auto* numbers : {&s.peft.ranks, &s.peft.alphas})
      if (!numbers->empty()) out += cat("; ", join(*numbers, ", "));
  }
  return out;
}

std::map<std::string, std::string> weights_at_start(const Recipe& recipe) {
  const Settings& s = recipe.settings;
  std::map<std::string, std::string> out;
  if (!s.model.init_from.empty())
    out["model.init_from"] = base_identity(recipe.resolve(s.model.init_from));
  if (const auto distillation = distillation_of(recipe);
      distillation && !distillation->teacher.empty())
    out["objective.teacher"] = base_identity(recipe.resolve(distillation->teacher));
  if (s.peft.frozen() && !s.peft.init_from.empty()) {
    Sha256 digest;
    const fs::path folder = recipe.resolve(s.peft.init_from);
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      digest.update(MappedFile(folder / file).bytes());
    out["peft.init_from"] = digest.hex();
  }
  return out;
}

void require_base(const Recipe& recipe, const std::string& trained_on,
                  const std::string& checkpoint) {
  if (base_identity(recipe) == trained_on) return;
  throw Error(
      ErrorClass::checkpoint,
      cat(checkpoint, " has adapters of other weights than those of model.init_from, ",
          printable(recipe.resolve(recipe.settings.model.init_from).string())),
      cat("set model.init_from to the folder or run with which the adapters were trained; if "
          "its weights have changed, restore them or train the adapters anew",
          recipe.settings.peft.starts_principal()
              ? "; with peft.init=pissa, peft.alpha and peft.rslora must be the same, too"
              : ""));
}

}  // namespace mtrain
