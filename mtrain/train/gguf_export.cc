#include "mtrain/train/gguf_export.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/train/gguf_tokenizer.h"

namespace mtrain {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse_export(const std::string& what) {
  throw Error(ErrorClass::config, what, kExportFolderInstead);
}

/// The architecture of llama.cpp.
std::string architecture_of(const Json& config) {
  static const std::map<std::string, std::string> names = {
      {"llama", "llama"}, {"mistral", "llama"}, {"mixtral", "llama"},
      {"qwen2", "qwen2"}, {"qwen3", "qwen3"},   {"gemma", "gemma"}};
  const std::string type = config.value("model_type", "");
  const auto found = names.find(type);
  if (found == names.end())
    refuse_export(
        cat("a GGUF file is written for llama, mistral, mixtral, qwen2, qwen3 and gemma, and "
            "this model is of the family ",
            type));
  return found->second;
}

/// A number of config.json; absent: null there or not there.
std::optional<double> number_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
}
int64_t whole(const Json& config, const char* key) {
  const auto value = number_of(config, key);
  if (!value) refuse_export(cat("config.json has no ", key));
  return static_cast<int64_t>(*value);
}
int64_t head_dim_of(const Json& config) {
  return static_cast<int64_t>(
      number_of(config, "head_dim")
          .value_or(static_cast<double>(whole(config, "hidden_size") /
                                        whole(config, "num_attention_heads"))));
}
int64_t kv_heads_of(const Json& config) {
  return static_cast<int64_t>(
      number_of(config, "num_key_value_heads")
          .value_or(static_cast<double>(whole(config, "num_attention_heads"))));
}

/// The object with the type of rotary scaling; empty if there is none.
Json rope_of(const Json& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (config.contains(key) && config[key].is_object()) return config[key];
  return Json::object();
}
std::string rope_type_of(const Json& rope) {
  return rope.value("rope_type", rope.value("type", "default"));
}

class Metadata {
 public:
  Metadata(const Json& config, const GgufModel& model, GgufHeader& header)
      : config_(config), model_(model), architecture_(architecture_of(config)), header_(header) {}

  void add() {
    header_.text("general.architecture", architecture_);
    header_.text("general.type", "model");
    header_.text("general.name", model_.name);
    size("block_count", whole(config_, "num_hidden_layers"));
    size("context_length", whole(config_, "max_position_embeddings"));
    size("embedding_length", whole(config_, "hidden_size"));
    size("feed_forward_length", whole(config_, "intermediate_size"));
    size("attention.head_count", whole(config_, "num_attention_heads"));
    size("attention.head_count_kv", kv_heads_of(config_));
    add_rope();
    if (const auto epsilon = number_of(config_, "rms_norm_eps"))
      real("attention.layer_norm_rms_epsilon", *epsilon);
    if (number_of(config_, "num_local_experts")) {
      size("expert_count", whole(config_, "num_local_experts"));
      size("expert_used_count", whole(config_, "num_experts_per_tok"));
    }
    if (number_of(config_, "head_dim")) {
      size("attention.key_length", head_dim_of(config_));
      size("attention.value_length", head_dim_of(config_));
    }
    if (architecture_ == "llama") {
      size("vocab_size", whole(config_, "vocab_size"));
      size("rope.dimension_count", head_dim_of(config_));
    }
    header_.number("general.file_type", file_type());
    header_.number("general.quantization_version", 2);
    add_gguf_tokenizer(model_.tokenizer, model_.config, whole(config_, "vocab_size"),
                       architecture_ == "gemma", model_.chat_template, header_);
  }

 private:
  void size(const char* key, int64_t value) {
    header_.number(cat(architecture_, '.', key), static_cast<uint32_t>(value));
  }
  void real(const char* key, double value) {
    header_.real(cat(architecture_, '.', key), static_cast<float>(value));
  }

  uint32_t file_type() const {
    switch (model_.type) {
      case GgmlType::f32:
        return 0;
      case GgmlType::f16:
        return 1;
      case GgmlType::q8_0:
        return 7;
      default:
        return 32;
    }
  }

  void add_rope() {
    const Json rope = rope_of(config_);
    const std::string type = rope_type_of(rope);
    if (type == "linear" || type == "yarn") {
      header_.text(cat(architecture_, ".rope.scaling.type"), type);
      real("rope.scaling.factor", number_of(rope, "factor").value_or(1));
    }
    if (type == "yarn") {
      size("rope.scaling.original_context_length", whole(rope, "original_max_position_embeddings"));
      // llama.cpp multiplies this by 1 + 0.1 ln(factor), which attention_factor replaces.
      const double usual = 1 + 0.1 * std::log(std::max(1.0, number_of(rope, "factor").value_or(1)));
      if (const auto factor = number_of(rope, "attention_factor"))
        real("rope.scaling.attn_factor", *factor / usual);
      for (const auto& [theirs, ours] : {std::pair{"beta_fast", "rope.scaling.yarn_beta_fast"},
                                         {"beta_slow", "rope.scaling.yarn_beta_slow"}})
        if (const auto beta = number_of(rope, theirs)) real(ours, *beta);
    }
    const auto theta = number_of(config_, "rope_theta");
    if (theta || number_of(rope, "rope_theta"))
      real("rope.freq_base", theta ? *theta : *number_of(rope, "rope_theta"));
  }

  const Json& config_;
  const GgufModel& model_;
  const std::string architecture_;
  GgufHeader& header_;
};

/// A tensor of the file, made of one tensor of the folder, or of one for each expert.
struct Planned {
  std::string name;
  Shape shape;
  GgmlType type = GgmlType::f32;
  std::vector<size_t> sources;
  int64_t pair_rows = 0;     // rows of a head whose halves alternate; 0: as they are
  float plus = 0;            // added to each value
  std::vector<float> given;  // the values, if they are computed from the settings
};

/// Names of a block's tensors, in the folder and in the file.
const std::map<std::string, std::string>& block_names() {
  static const std::map<std::string, std::string> names = {
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"block_sparse_moe.gate", "ffn_gate_inp"},
      {"block_sparse_moe.w1", "ffn_gate_exps"},
      {"block_sparse_moe.w2", "ffn_down_exps"},
      {"block_sparse_moe.w3", "ffn_up_exps"}};
  return names;
}

class GgufPlan {
 public:
  GgufPlan(const Json& config, GgmlType type, const std::vector<TensorSpec>& specs)
      : config_(config), type_(type), specs_(specs), architecture_(architecture_of(config)) {}

  std::vector<Planned> all() {
    for (size_t i = 0; i < specs_.size(); ++i) add(i);
    if (rope_type_of(rope_of(config_)) == "llama3") add_rope_factors();
    return std::move(out_);
  }

 private:
  void add(size_t i) {
    const std::string& name = specs_[i].name;
    if (name.ends_with(".rotary_emb.inv_freq")) return;  // follows from the metadata
    if (name == "model.embed_tokens.weight") return add(i, "token_embd.weight");
    if (name == "model.norm.weight") return add(i, "output_norm.weight");
    if (name == "lm_head.weight") return add(i, "output.weight");
    const std::string prefix = "model.layers.";
    const size_t block_end = name.find('.', prefix.size()), ending = name.rfind('.');
    if (!name.starts_with(prefix) || block_end == std::string::npos || ending <= block_end)
      refuse_export(cat("the format has no tensor for ", name));
    std::string part = name.substr(block_end + 1, ending - block_end - 1);
    int64_t expert = -1;
    const std::string experts = "block_sparse_moe.experts.";
    if (part.starts_with(experts)) {
      const size_t dot = part.find('.', experts.size());
      expert = std::stoll(part.substr(experts.size(), dot - experts.size()));
      part = "block_sparse_moe" + part.substr(dot);
    }
    const auto known = block_names().find(part);
    if (known == block_names().end()) refuse_export(cat("the format has no tensor for ", name));
    const std::string ours = cat("blk.", name.substr(prefix.size(), block_end - prefix.size()), '.',
                                 known->second, name.substr(ending));
    if (expert >= 0) return add_expert(i, ours, expert);
    add(i, ours);
    if (architecture_ == "llama" && (known->second == "attn_q" || known->second == "attn_k"))
      out_.back().pair_rows = head_dim_of(config_);
  }

  void add(size_t i, const std::string& ours) {
    Planned tensor{
        .name = ours, .shape = specs_[i].shape, .type = GgmlType::f32, .sources = {i}, .given = {}};
    tensor.type = type_of(ours, tensor.shape);
    if (architecture_ == "gemma" && ours.ends_with("norm.weight")) tensor.plus = 1;
    out_.push_back(std::move(tensor));
  }

  void add_expert(size_t i, const std::string& ours, int64_t expert) {
    const int64_t experts = whole(config_, "num_local_experts");
    auto stacked =
        std::find_if(out_.begin(), out_.end(), [&](const Planned& t) { return t.name == ours; });
    if (stacked == out_.end()) {
      const Shape& one = specs_[i].shape;
      const Shape shape{experts, one[0], one[1]};
      out_.push_back({.name = ours,
                      .shape = shape,
                      .type = type_of(ours, shape),
                      .sources = std::vector<size_t>(static_cast<size_t>(experts)),
                      .given = {}});
      stacked = out_.end() - 1;
    }
    MT_CHECK(expert < experts, ours);
    stacked->sources[static_cast<size_t>(expert)] = i;
  }

  /// Vectors, norms and routers are f32; rows that q8_0 cannot divide are f16.
  GgmlType type_of(const std::string& ours, const Shape& shape) const {
    if (shape.rank() <= 1 || ours.ends_with("_norm.weight") ||
        ours.ends_with("ffn_gate_inp.weight"))
      return GgmlType::f32;
    return type_ == GgmlType::q8_0 && shape[shape.rank() - 1] % 32 != 0 ? GgmlType::f16 : type_;
  }

  /// Llama 3.1's scaling of rotary frequencies, as one divisor for each.
  void add_rope_factors() {
    const Json rope = rope_of(config_);
    const double base =
        number_of(config_, "rope_theta").value_or(number_of(rope, "rope_theta").value_or(10000));
    const double factor = number_of(rope, "factor").value_or(8),
                 low = number_of(rope, "low_freq_factor").value_or(1),
                 high = number_of(rope, "high_freq_factor").value_or(4),
                 context = number_of(rope, "original_max_position_embeddings").value_or(8192);
    const int64_t width = head_dim_of(config_);
    Planned tensor{
        .name = "rope_freqs.weight", .shape = Shape{width / 2}, .sources = {}, .given = {}};
    for (int64_t i = 0; i < width; i += 2) {
      const double frequency =
          1.0 / std::pow(base, static_cast<double>(i) / static_cast<double>(width));
      const double length = 2 * std::numbers::pi / frequency;
      double divisor = 1;
      if (length > context / low) {
        divisor = factor;
      } else if (length >= context / high) {
        const double smooth = (context / length - low) / (high - low);
        divisor = 1 / ((1 - smooth) / factor + smooth);
      }
      tensor.given.push_back(static_cast<float>(divisor));
    }
    out_.push_back(std::move(tensor));
  }

  const Json& config_;
  const GgmlType type_;
  const std::vector<TensorSpec>& specs_;
  const std::string architecture_;
  std::vector<Planned> out_;
};

/// Writes the values of one tensor, which come in pieces.
class TensorWriter {
 public:
  TensorWriter(const Planned& tensor, FileWriter& file) : tensor_(tensor), file_(file) {
    const int64_t width = tensor.shape[tensor.shape.rank() - 1];
    unit_ = static_cast<size_t>(tensor.pair_rows == 0      ? 32
                                : tensor.shape.rank() == 1 ? tensor.pair_rows
                                                           : tensor.pair_rows * width);
    width_ = static_cast<size_t>(tensor.shape.rank() == 1 ? 1 : width);
  }

  void take(std::span<const std::byte> bytes) {
    const size_t before = values_.size(), count = bytes.size() / sizeof(float);
    values_.resize(before + count);
    std::memcpy(values_.data() + before, bytes.data(), bytes.size());
    pass(values_.size() / unit_ * unit_);
  }

  /// Writes the rest, and zeros up to the place of the next tensor.
  void finish() {
    MT_CHECK(tensor_.pair_rows == 0 || values_.empty(), tensor_.name);
    pass(values_.size());
    const std::string zeros(
        (GgufHeader::kAlignment - written_ % GgufHeader::kAlignment) % GgufHeader::kAlignment,
        '\0');
    file_.write(zeros);
  }

 private:
  void pass(size_t count) {
    if (count == 0) return;
    const std::span<float> values(values_.data(), count);
    for (float& x : values) x += tensor_.plus;
    if (tensor_.pair_rows > 0)
      for (size_t at = 0; at < count; at += unit_) alternate(values.subspan(at, unit_));
    const std::vector<std::byte> bytes = gguf_packed(tensor_.type, values, tensor_.name);
    file_.write(bytes);
    written_ += bytes.size();
    values_.erase(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  /// Row i of the first half of a head, then row i of the second half: llama.cpp rotates neighbours
  /// where transformers rotates halves.
  void alternate(std::span<float> head) const {
    const std::vector<float> rows(head.begin(), head.end());
    const size_t half = head.size() / width_ / 2;
    for (size_t i = 0; i < half; ++i)
      for (size_t side = 0; side < 2; ++side)
        std::copy_n(rows.data() + (side * half + i) * width_, width_,
                    head.data() + (2 * i + side) * width_);
  }

  const Planned& tensor_;
  FileWriter& file_;
  size_t unit_ = 1, width_ = 1;  // elements that are written together; of a row
  std::vector<float> values_;
  uint64_t written_ = 0;
};

void require_gguf(const Json& config) {
  const std::string architecture = architecture_of(config), rope = rope_type_of(rope_of(config));
  if (rope != "default" && rope != "linear" && rope != "yarn" &&
      !(rope == "llama3" && architecture == "llama"))
    refuse_export(
        cat("a GGUF file of ", architecture, " has no rotary positions of the type ", rope));
  const auto window = number_of(config, "sliding_window");
  const bool used = !config.contains("use_sliding_window") || config["use_sliding_window"] == true;
  if (window && used && *window < static_cast<double>(whole(config, "max_position_embeddings")))
    log_warn("llama.cpp attends to all earlier tokens of a ", architecture,
             ", and this model only to the last ", static_cast<int64_t>(*window));
}

}  // namespace

HfExported write_gguf(const fs::path& to, const GgufModel& model, HfTensorSource& source) {
  const Json config = Json::parse(model.config, nullptr, false);
  if (!config.is_object()) refuse_export("config.json is not a JSON object");
  require_gguf(config);
  GgufHeader header;
  Metadata(config, model, header).add();
  const std::vector<Planned> tensors = GgufPlan(config, model.type, source.specs()).all();
  HfExported done{.files = 1, .tensors = tensors.size()};
  for (const Planned& tensor : tensors) {
    header.tensor(tensor.name, tensor.shape, tensor.type);
    done.bytes += gguf_bytes(tensor.type, tensor.shape.numel());
  }
  const fs::path place = fs::absolute(to).lexically_normal(), temporary = unfinished_place(place);
  try {
    FileWriter file(temporary, kExportSite);
    file.write(header.bytes());
    for (const Planned& tensor : tensors) {
      TensorWriter writer(tensor, file);
      const HfSink sink = [&](std::span<const std::byte> bytes) { writer.take(bytes); };
      for (size_t i : tensor.sources) source.read(i, sink);
      if (!tensor.given.empty()) writer.take(std::as_bytes(std::span(tensor.given)));
      writer.finish();
    }
    file.sync();
    file.close();
    require_absent(place);
    durable_rename(temporary, place, kExportSite);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
  return done;
}

}  // namespace mtrain
