#include "mtrain/checkpoint/hf_dir.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "mtrain/base/checked.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/checkpoint/refuse.h"
#include "mtrain/checkpoint/strict_json.h"

namespace mtrain {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr uint64_t kMaxTextBytes = 256u << 20;

/// Resolves `name`, which comes from an untrusted file, to a file in `folder`; refuses anything
/// else. A link may lead to another file of the folder or, in the cache of Hugging Face's tools
/// (<model>/snapshots/<revision>), to <model>/blobs.
fs::path contained(const fs::path& folder, const std::string& name, const fs::path& origin) {
  const char* hint = "use the plain name of a file in the same folder";
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos ||
      !bad_tensor_name(name).empty())
    refuse_file(origin, cat("'", printable(name), "' is not a plain file name"), hint);
  std::error_code error;
  fs::path real_folder = fs::canonical(folder, error);
  fs::path real = error ? fs::path() : fs::canonical(folder / name, error);
  if (error)
    refuse_file(origin,
                cat("names '", printable(name), "', which cannot be opened: ", error.message()),
                "fetch the missing file");
  bool cached = real_folder.parent_path().filename() == "snapshots" &&
                real.parent_path() == real_folder.parent_path().parent_path() / "blobs";
  if (real.parent_path() != real_folder && !cached)
    refuse_file(
        origin,
        cat("'", printable(name), "' is a link out of the folder, to ", printable(real.string())),
        "replace the link by the file, or use the path of the real folder");
  return real;
}

std::string read_text(const fs::path& file) {
  InputFile input(file);
  if (input.size() > kMaxTextBytes)
    refuse_file(file, cat("has ", input.size(), " bytes, over the limit of ", kMaxTextBytes),
                "is this the right file?");
  std::string text(input.size(), '\0');
  input.read(0, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

bool present(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

/// "model-00002-of-00005.safetensors"
bool is_shard_name(const std::string& name) {
  constexpr std::string_view kPattern = "model-#####-of-#####.safetensors";
  return name.size() == kPattern.size() &&
         std::equal(name.begin(), name.end(), kPattern.begin(),
                    [](char c, char p) { return p == '#' ? c >= '0' && c <= '9' : c == p; });
}

/// tensor -> file name, from the index.
using WeightMap = std::map<std::string, std::string>;

WeightMap weight_map_of(const nlohmann::json& index, const fs::path& file) {
  const char* hint = "fetch the index again, or write the model again with save_pretrained";
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    refuse_file(file, "wanted a JSON object with the object \"weight_map\"", hint);
  WeightMap out;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (std::string why = bad_tensor_name(tensor); !why.empty()) refuse_file(file, why, hint);
    if (!shard.is_string())
      refuse_file(file, cat("weight_map: tensor '", printable(tensor), "' must have a file name"),
                  hint);
    out.emplace(tensor, shard.get<std::string>());
  }
  if (out.empty()) refuse_file(file, "weight_map is empty", hint);
  return out;
}

/// metadata.total_size counts the bytes of all tensors.
void check_total(const nlohmann::json& index, uint64_t bytes, const fs::path& file) {
  if (!index.contains("metadata")) return;
  const auto& metadata = index["metadata"];
  if (!metadata.is_object())
    refuse_file(file, "\"metadata\" must be an object", "fetch the index again");
  if (!metadata.contains("total_size")) return;
  const auto& total = metadata["total_size"];
  // some tools write it as 1.0e9, so compare as numbers
  bool same = total.is_number_integer()
                  ? total == bytes
                  : total.is_number_float() && total == static_cast<double>(bytes);
  if (!same)
    refuse_file(file,
                cat("metadata.total_size says ", printable(total.dump(), 40), ", the tensors have ",
                    bytes, " bytes"),
                "a shard has another version: fetch the folder again, or correct total_size if the "
                "shards are right");
}

/// Of a path OWNER/NAME whose folder OWNER is not there either: it may be meant as the id of a hub.
std::string hub_help(const fs::path& path) {
  std::error_code ignored;
  const fs::path owner = path.parent_path();
  if (owner.empty() || path.filename().empty() || fs::exists(owner, ignored)) return "";
  const std::string id = printable((owner.filename() / path.filename()).string());
  return cat("; nothing is downloaded: if ", id,
             " is a model of a hub, fetch its folder first, e.g. "
             "hf download ",
             id, " --local-dir FOLDER, and give FOLDER");
}

}  // namespace

HfDir::HfDir(const fs::path& path) {
  std::error_code error;
  auto status = fs::status(path, error);
  if (!fs::exists(status))
    refuse_file(path, "no such file or folder",
                cat("give a run's folder or one of its checkpoints, a folder with config.json and "
                    "model.safetensors, or a .safetensors file",
                    hub_help(path)));
  if (!fs::is_directory(status)) {
    folder_ = path.parent_path().empty() ? fs::path(".") : path.parent_path();
    open_single(path);
    return;
  }
  folder_ = path;
  if (present(path /
              kSingle)) {  // like Hugging Face's own loader, the single file wins over an index
    open_single(contained(folder_, kSingle, folder_));
    return;
  }
  if (present(path / kIndex)) {
    open_index(contained(folder_, kIndex, folder_));
    return;
  }
  if (present(path / "adapter_config.json"))
    refuse_file(
        path, "has adapters (adapter_config.json), not the weights of a model",
        cat("give the folder of their model, and this one as ",
            shell_word(cat("peft.init_from=", path.string())),
            " to train the adapters further, or as --adapter to use them; `mtrain merge` adds "
            "them to the weights"));
  bool pickles =
      present(path / "pytorch_model.bin") || present(path / "pytorch_model.bin.index.json");
  refuse_file(path,
              cat("has neither ", kSingle, " nor ", kIndex,
                  pickles ? "; its pytorch_model.bin is a pickle" : ""),
              pickles
                  ? "pickles can run code when read and are never opened here; convert the weights "
                    "with the "
                    "Python package "
                    "safetensors, or save_pretrained(…, safe_serialization=True)"
                  : "give the folder of a model, or a .safetensors file");
}

void HfDir::open_single(const fs::path& file) {
  files_.push_back(std::make_unique<SafetensorsFile>(file));
  finish(file);
}

void HfDir::open_index(const fs::path& file) {
  const std::string hint = "fetch the folder again: index and shards belong to different versions";
  nlohmann::json index = parse_json_tree(
      read_text(file), {.path = file, .offset = 0, .hint = "fetch the index again"});
  WeightMap weight_map = weight_map_of(index, file);

  std::map<std::string, SafetensorsFile*> shards;
  for (const auto& [tensor, name] : weight_map) {
    if (shards.count(name)) continue;
    files_.push_back(std::make_unique<SafetensorsFile>(contained(folder_, name, file)));
    shards.emplace(name, files_.back().get());
  }
  for (const auto& entry : fs::directory_iterator(folder_)) {
    std::string name = entry.path().filename().string();
    if (is_shard_name(name) && !shards.count(name))
      refuse_file(file, cat("the folder has a shard ", name, " that the index does not list"),
                  hint + ", or remove it");
  }
  for (const auto& [tensor, name] : weight_map)
    if (!shards.at(name)->find(tensor))
      refuse_file(
          file,
          cat("says that '", printable(tensor), "' is in ", printable(name), ", but it is not"),
          hint);
  Checked<uint64_t> total(0);
  for (const auto& [name, shard] : shards) {
    for (const auto& tensor : shard->tensors()) {
      auto listed = weight_map.find(tensor.name);
      if (listed == weight_map.end())
        refuse_file(file,
                    cat("does not list tensor '", printable(tensor.name), "' of ", printable(name)),
                    hint);
      if (listed->second != name)
        refuse_file(file,
                    cat("tensor '", printable(tensor.name), "' is in two shards, ",
                        printable(listed->second), " and ", printable(name)),
                    hint);
      total = total + tensor.data.size();
    }
  }
  check_total(index, total.value(), file);
  finish(file);
}

void HfDir::finish(const fs::path& origin) {
  for (const auto& file : files_)
    for (const auto& tensor : file->tensors()) tensors_.push_back(&tensor);
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->name < b->name; });
  if (tensors_.empty()) refuse_file(origin, "holds no tensors", "is this the right file?");
}

const TensorInfo* HfDir::find(std::string_view name) const {
  auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const TensorInfo* t, std::string_view wanted) { return t->name < wanted; });
  return found != tensors_.end() && (*found)->name == name ? *found : nullptr;
}

const TensorInfo& HfDir::at(std::string_view name) const {
  if (const TensorInfo* found = find(name)) return *found;
  std::vector<std::string> names;
  for (const TensorInfo* tensor : tensors_) names.push_back(tensor->name);
  auto close = nearest(name, names);
  refuse_file(folder_, cat("has no tensor '", printable(name), "' among its ", names.size()),
              close.empty() ? "is this the checkpoint of another model?"
                            : cat("did you mean ", join(close, ", "), "?"));
}

void HfDir::read(const TensorInfo& tensor, uint64_t begin, std::span<std::byte> out) const {
  const std::less<const TensorInfo*> before;
  for (const auto& file : files_) {
    const auto& own = file->tensors();
    if (before(&tensor, own.data()) || !before(&tensor, own.data() + own.size())) continue;
    return file->read(tensor, begin, out);
  }
  MT_CHECK(false, "tensor ", tensor.name, " is not of ", folder_.string());
}

std::string HfDir::config_text() const {
  if (auto found = text("config.json")) return *std::move(found);
  refuse_file(folder_ / "config.json", "no such file",
              "a model folder holds its config.json next to the weights");
}

std::optional<std::string> HfDir::text(std::string_view file_name) const {
  if (!present(folder_ / file_name)) return std::nullopt;
  return read_text(contained(folder_, std::string(file_name), folder_));
}

void require_inside(const fs::path& folder, const std::string& name) {
  contained(folder, name, folder);
}

}  // namespace mtrain
