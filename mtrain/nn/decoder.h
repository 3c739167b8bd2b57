// Decoder: what Llama and its relatives have around their blocks — the embedding, the blocks of a
// pipeline stage with their recomputation and offloading, the last norm and the head. A family
// writes its block. Owned by the code that made it; for its rank's own thread. Legend: T tokens
// (batch folded in), D embed, V vocab.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/nn/attention_variants.h"
#include "mtrain/nn/layers.h"

namespace mtrain {

/// The settings of all such decoders; a family adds its own.
struct MT_API DecoderSettings {
  int64_t layers = 32, hidden_size = 4096, heads = 32, kv_heads = 0, ffn_hidden_size = 11008,
          head_dim = 0;
  double norm_eps = 1e-5, init_std = 0.02;
  bool tie_embeddings = false;
  RopeConfig rope;
  AttentionVariants attention;
  void bind(Fields& f);

  HeadLayout head_layout() const;
  /// Rotary grouped-query attention without biases. `rope` must outlive the layer.
  AttentionOptions attention_options(const RopeTable& rope) const;
  Dim embed() const { return {"embed", hidden_size}; }
  Dim mlp() const { return {"mlp", ffn_hidden_size}; }
  float eps() const { return static_cast<float>(norm_eps); }
  float std() const { return static_cast<float>(init_std); }
  /// Of projections into the residual stream: smaller, so that its variance does not grow with
  /// depth (GPT-2, §2.3).
  float out_std() const;
  /// Refuses heads that do not come out even. Throws Error(config).
  void check() const;
};

/// A block of a family: the residual stream in, the residual stream out. Its call may run again in
/// backward, and then has to give the same.
class MT_API DecoderBlock {
 public:
  virtual ~DecoderBlock();
  virtual Tensor operator()(Tensor x_TD, const ModelInput& input) const = 0;
};

class MT_API Decoder : public Model {
 public:
  /// Makes block `index` at `scope`.
  using MakeBlock = std::function<std::unique_ptr<DecoderBlock>(const Scope& scope, int64_t index,
                                                                const RopeTable& rope)>;
  Decoder(const DecoderSettings& settings, const ModelContext& context, const MakeBlock& make);
  Tensor forward(const ModelInput& input, Tensor x_TD) override;

 protected:
  const ModelContext& context() const { return context_; }
  /// Multiply-adds of one token in the attention of one block, and in the head.
  double attention_products(int64_t seq_length) const;
  double head_products() const;
  /// Llama's names, for parameters that are called as in LlamaBlock: embed, norm, head and, of each
  /// block, norm1, attn and norm2. For the rest of a block `add` is called: (block, our prefix,
  /// theirs, list).
  using AddHalf = std::function<void(int64_t, const std::string&, const std::string&,
                                     std::vector<HfParameter>&)>;
  std::vector<HfParameter> hf_names(const AddHalf& add) const;
  /// Llama's names of a gated MLP.
  static void add_hf_mlp(const std::string& ours, const std::string& theirs,
                         std::vector<HfParameter>& map);

 private:
  DecoderSettings settings_;
  ModelContext context_;
  RopeTable rope_;
  std::optional<Embedding> embed_;
  std::vector<std::unique_ptr<DecoderBlock>> blocks_;
  std::optional<Norm> norm_;
  std::optional<LmHead> head_;
};

}  // namespace mtrain
