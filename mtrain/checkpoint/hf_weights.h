// The weights of a Hugging Face folder as floating-point tensors. Quantized weights are dequantized
// while they are read. They appear as bf16 tensors with the names and shapes that the parameters
// have in the code of the model:
// - FP8 in blocks (DeepSeek-V3, arXiv:2412.19437): X is F8_E4M3, and X_scale_inv has a factor for
//   each block of its last two dimensions, of the size that quantization_config.weight_block_size
//   gives; the last blocks of a row or column may be smaller;
// - MXFP4 (OCP Microscaling Formats 1.0, as in GPT-OSS): X_blocks [experts, rows, groups, 16] has
//   two E2M1 codes in each byte, the lower one first, and X_scales [experts, rows, groups] an E8M0
//   factor for each group of 32; X is [experts, groups * 32, rows].
// Refers to the folder. Immutable: const members are safe from any thread.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/checkpoint/hf_dir.h"

namespace mtrain {

/// How a folder's quantization_config says that its weights are stored.
struct HfQuantization {
  enum class Method : uint8_t { none, fp8, mxfp4 };
  Method method = Method::none;
  int64_t block_rows = 0, block_columns = 0;  // fp8
  std::string fault = {}, fix = {};           // why the weights cannot be read; empty: they can
};

/// Reads quantization_config of a config.json, which may be absent. REQUIRES: the text is JSON.
MT_API HfQuantization read_hf_quantization(const std::string& config_json);

/// The dtype of the folder's tensors by its config.json: bf16 if they are quantized; nothing if it
/// names none that is supported.
MT_API std::optional<DType> hf_config_dtype(const std::string& config_json);

class MT_API HfWeights {
 public:
  /// `folder` must outlive it. Error(checkpoint) that names a quantized tensor and its scales if
  /// one of them is missing or they do not fit. Without quantization_config, or if that has a
  /// fault, tensors are as they are stored.
  explicit HfWeights(const HfDir& folder);

  const fs::path& path() const { return folder_.path(); }
  const HfQuantization& quantization() const { return quantization_; }
  /// All tensors, sorted by name; of a quantized one, name, dtype (bf16) and shape, without data.
  const std::vector<const TensorInfo*>& tensors() const { return tensors_; }
  /// Null when absent.
  const TensorInfo* find(std::string_view name) const;
  bool is_quantized(const TensorInfo& tensor) const { return packed_.contains(&tensor); }

  /// Elements of a tensor from `begin` on. A dequantized value is the exact product of code and
  /// scale, rounded to float. Error(checkpoint) for a scale that is not finite or is negative.
  /// REQUIRES: the type is a floating-point one.
  void floats(const TensorInfo& tensor, int64_t begin, std::span<float> out) const;
  std::vector<float> floats(const TensorInfo& tensor, int64_t begin, int64_t count) const;
  /// Bytes of a tensor that is stored as it is, from the byte `begin` on.
  void read(const TensorInfo& tensor, uint64_t begin, std::span<std::byte> out) const;

 private:
  struct Packed {
    const TensorInfo *codes, *scales;
  };

  void add_fp8(const TensorInfo& codes);
  void add_mxfp4(const TensorInfo& codes);
  void fp8(const Packed& packed, int64_t begin, std::span<float> out) const;
  void mxfp4(const Packed& packed, int64_t begin, std::span<float> out) const;
  void plain(const TensorInfo& tensor, int64_t begin, std::span<float> out) const;
  [[noreturn]] void refuse(const std::string& what) const;

  const HfDir& folder_;
  HfQuantization quantization_;
  std::deque<TensorInfo> made_;  // dequantized tensors
  std::map<const TensorInfo*, Packed> packed_;
  std::vector<const TensorInfo*> tensors_;
};

}  // namespace mtrain
