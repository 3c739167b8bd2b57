// Decoder: the common parts of Llama-like models: the embedding, the blocks of a pipeline stage
// with their recomputation and offloading, the final norm and the output head. A model plugin says
// only how a block is made (TransformerBlock has the usual variants). The caller owns it; for the
// rank's own thread. Dimensions: T tokens (batch folded in), D embed, V vocab.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/nn/attention.h"
#include "mtrain/nn/attention_variants.h"
#include "mtrain/nn/block_settings.h"
#include "mtrain/nn/latent_attention.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/multi_token.h"
#include "mtrain/nn/rope_table.h"
#include "mtrain/nn/score_head.h"

namespace mtrain {

/// The settings of all decoders; each family adds its own.
struct MT_API DecoderSettings {
  int64_t layers = 32, hidden_size = 4096, heads = 32, kv_heads = 0, ffn_hidden_size = 11008,
          head_dim = 0, labels = 0;
  std::string labels_of = "sequence";
  double norm_eps = 1e-5, init_std = 0.02;
  bool tie_embeddings = false;
  RopeConfig rope;
  AttentionVariants attention;
  BlockSettings block;
  MtpSettings mtp;
  std::optional<LatentSizes> latent;  // no setting of this struct: models that have latent
                                      // attention set it from their own
  void bind(Fields& f);

  HeadLayout head_layout() const;
  /// The attention of block `index`. `rope` must outlive the layer.
  AttentionOptions attention_options(const RopeTable& rope, int64_t index) const;
  /// The factor of the attention logits with multi-head latent attention: 1 / sqrt(query width),
  /// times that of yarn.
  double latent_scale() const;
  /// The number of elements of a head to which rotary positions apply.
  int64_t rotary_head_dim() const { return latent ? latent->heads.rotary : head_layout().head_dim; }
  /// The rotary positions of block `index`; blocks with a window may have a base of their own
  /// (RopeConfig::local_theta).
  RopeConfig rope_of(int64_t index) const;
  Dim embed() const { return {"embed", hidden_size}; }
  Dim mlp() const { return {"mlp", ffn_hidden_size}; }
  float eps() const { return static_cast<float>(norm_eps); }
  float std() const { return static_cast<float>(init_std); }
  /// Whether the head shares the embedding's matrix; never for a head of scores.
  bool ties_head() const { return tie_embeddings && labels == 0; }
  /// The init_std of projections into the residual stream: smaller, so that its variance does not
  /// grow with depth (GPT-2, §2.3).
  float out_std() const;
  /// Throws Error(config) for settings that contradict each other, and what layout_of_heads()
  /// throws.
  void check() const;
};

class MT_API Decoder : public Model {
 public:
  /// Creates block `index` in `scope`, with the rotary positions of this block.
  using MakeBlock = std::function<std::unique_ptr<DecoderBlock>(const Scope& scope, int64_t index,
                                                                const RopeTable& rope)>;
  Decoder(const DecoderSettings& settings, const ModelContext& context, const MakeBlock& make);
  Tensor forward(const ModelInput& input, Tensor x_TD) override;
  /// Declares the parts of a stage with the blocks of multi-token prediction (MTP), which use the
  /// model's embedding, norm and head, too.
  std::vector<ComputedPart> parts() const override;
  bool continues_texts() const override { return true; }
  /// Reports the losses of multi-token prediction.
  std::vector<StepFigure> end_step(bool updated) override;

 protected:
  const ModelContext& context() const { return context_; }
  /// Multiply-adds of one token's forward in the attention of one block: its projections, and the
  /// scores that the causal mask and the block's window leave.
  double attention_products(int64_t seq_length, int64_t block) const;
  /// The same in an MLP of `width`, in all of its matrices.
  double mlp_products(int64_t width) const;
  /// The same in the output head.
  double head_products() const;
  /// The same in the projections, blocks and heads of multi-token prediction. `block`: the
  /// multiply-adds of the model's last block, whose shape these blocks have.
  double mtp_products(double block) const;

 private:
  void build_head(const Dim& vocab, Parameter* table);
  Tensor losses(const Tensor& normed_TD, const ModelInput& input);
  Tensor streams(const Tensor& normed_TD, const ModelInput& input) const;
  DecoderSettings settings_;
  ModelContext context_;
  RopeTable rope_, local_rope_;             // of blocks without and with a window
  float embedding_factor_ = 1, noise_ = 0;  // noise_: largest of the embeddings while training
  uint64_t noise_key_ = 0;
  std::optional<Embedding> embed_;
  std::vector<std::unique_ptr<DecoderBlock>> blocks_;
  std::optional<Norm> norm_;
  std::optional<LmHead> head_;      // of a model of tokens
  std::optional<ScoreHead> score_;  // of a model of scores
  std::optional<MultiTokenPrediction> mtp_;
  std::optional<MtpLosses> mtp_losses_;
};

}  // namespace mtrain
