// T5 (Raffel et al. 2019, arXiv:1910.10683): an encoder and a decoder with RMSNorm before each
// part, biases by relative distance in place of positions, and attention of the decoder to the
// encoder's output. Versions 1.0 (ReLU, a tied and scaled head) and 1.1 (Shazeer 2020,
// arXiv:2002.05202: a gated GELU, a head of its own). T tokens, D embed, S tokens of the encoder.
#include <memory>
#include <optional>

#include "mtrain/base/rng.h"
#include "mtrain/plugin/plugin.h"
#include "t5_blocks.h"

namespace mtrain::t5 {
namespace {

/// Sets the tokens that the rows of the stream represent, for dropout, while it exists.
class StreamTokens {
 public:
  StreamTokens(ExecutionContext& ctx, const ParallelContext& parallel, const Division& batch,
               bool of_decoder)
      : ctx_(ctx), before_(ctx.own_tokens) {
    const int64_t e = batch.encoder_length, d = batch.decoder_length, each = of_decoder ? d : e,
                  all = batch.samples * each;
    int64_t begin = 0, end = all;
    if (parallel.residual_placement() == Placement::S(0)) {
      const int64_t n = parallel.tp->size(), r = parallel.tp->index();
      begin = all * r / n, end = all * (r + 1) / n;
    }
    std::vector<RowRange> tokens;
    for (int64_t s = 0; s < batch.samples; ++s) {
      const int64_t from = std::max(begin, s * each), to = std::min(end, (s + 1) * each);
      if (from < to)
        tokens.push_back({s * (e + d) + (of_decoder ? e : 0) + from - s * each, to - from});
    }
    ctx.own_tokens = std::make_shared<const std::vector<RowRange>>(std::move(tokens));
  }
  ~StreamTokens() { ctx_.own_tokens = before_; }
  StreamTokens(const StreamTokens&) = delete;
  StreamTokens& operator=(const StreamTokens&) = delete;

 private:
  ExecutionContext& ctx_;
  std::shared_ptr<const std::vector<RowRange>> before_;
};

/// The blocks of encoder or decoder, and the norm after them.
template <class Block>
struct Stack {
  Stack(const T5Config& c, const Scope& s, int64_t count, int64_t length, bool bidirectional)
      : bias(c, s, length, bidirectional) {
    for (int64_t i = 0; i < count; ++i) blocks.push_back(std::make_unique<Block>(c, s / i, bias));
    norm.emplace(s / "norm", Norm::Kind::rms, c.embed(), c.eps());
  }
  RelativeBias bias;
  std::vector<std::unique_ptr<Block>> blocks;
  std::optional<Norm> norm;
};

class T5 final : public Model {
 public:
  T5(const T5Config& config, ModelContext& context)
      : config_(config),
        context_(context),
        vocab_{"vocab", context.vocab_size},
        embed_(checked(config, context) / "embed", vocab_, config.embed(),
               static_cast<float>(config.init_factor)),
        encoder_(config, context.scope / "encoder", config.encoder_layers,
                 context.max_positions - config.decoder_seq_length, true),
        decoder_(config, context.scope / "decoder", config.layers, config.decoder_seq_length,
                 false),
        head_(context.scope / "head", vocab_, config.embed(), context.valid_vocab,
              config.tie_embeddings ? &embed_.weight : nullptr, config.std_of(config.hidden_size),
              false, {.scale = output_scale(config)}) {}

  Tensor forward(const ModelInput& input, Tensor) override {
    auto batch =
        std::make_shared<const Division>(input, context_.max_positions, config_.decoder_seq_length);
    Tensor encoded = encode(batch, embed_(batch->encoder_part(input.tokens_T)));
    ModelInput decoder_input = input;
    if (input.targets_T.defined()) decoder_input.targets_T = batch->decoder_part(input.targets_T);
    return head_(decode(batch, embed_(batch->decoder_part(input.tokens_T)), encoded),
                 decoder_input);
  }

  std::vector<ComputedPart> parts() const override {
    const Scope& s = context_.scope;
    std::vector<ComputedPart> all = {{"embed"}};
    for (int64_t i = 0; i < config_.encoder_layers; ++i)
      all.push_back({(s / "encoder" / i).path(), {"encoder.relative_bias"}});
    all.push_back({"encoder.norm"});
    all.push_back({"embed"});
    for (int64_t i = 0; i < config_.layers; ++i)
      all.push_back({(s / "decoder" / i).path(), {"decoder.relative_bias"}});
    all.push_back({"head", {"decoder.norm"}});
    if (config_.tie_embeddings) all.back().reads.emplace_back("embed");
    return all;
  }

  double flops_per_token(int64_t seq_length) const override {
    auto wide = [](int64_t n) { return static_cast<double>(n); };
    const double d = wide(config_.hidden_size), h = wide(config_.heads * config_.head_dim),
                 to = wide(config_.decoder_seq_length),
                 from = wide(seq_length - config_.decoder_seq_length),
                 mlp = (config_.activation == "relu" ? 2 : 3) * d * wide(config_.ffn_hidden_size);
    // Scores and values of every pair; half of the pairs in the decoder.
    const double encoder = from * (4 * d * h + mlp + 2 * h * from);
    const double decoder =
        to * (4 * d * h + mlp + h * to) + to * (2 * d * h + 2 * h * from) + from * 2 * d * h;
    const double head = to * d * wide(context_.vocab_size);
    return 6 * (wide(config_.encoder_layers) * encoder + wide(config_.layers) * decoder + head) /
           wide(seq_length);
  }

 private:
  using Batch = std::shared_ptr<const Division>;

  static float output_scale(const T5Config& c) {
    return c.scale_output ? 1 / std::sqrt(static_cast<float>(c.hidden_size)) : 1.0f;
  }
  static const Scope& checked(const T5Config& c, const ModelContext& context) {
    MT_CHECK(context.stage.stages == 1, "a pipeline stage of an encoder and a decoder");
    c.check(context.max_positions);
    return context.scope;
  }

  Tensor drop(const Tensor& x, std::string_view name) const {
    return dropout(x, config_.drop(), name_key((context_.scope / name).path()));
  }

  Tensor encode(const Batch& batch, Tensor x) const {
    const StreamTokens tokens(context_.scope.context(), context_.scope.parallel(), *batch, false);
    auto block = [this, batch](int64_t i, const Tensor& in) {
      return (*encoder_.blocks[static_cast<size_t>(i)])(in, *batch);
    };
    x = run_blocks(context_.scope.blocks(), 0, config_.encoder_layers, block,
                   drop(x, "encoder.drop"));
    return drop((*encoder_.norm)(x), "encoder.norm.drop");
  }

  /// As run_blocks(), for blocks with two inputs.
  Tensor decode(const Batch& batch, Tensor x, const Tensor& encoded) const {
    const StreamTokens tokens(context_.scope.context(), context_.scope.parallel(), *batch, true);
    const BlockPlan& plan = context_.scope.blocks();
    const int64_t step = plan.full && !plan.first_only ? plan.recompute_layers : 1;
    x = drop(x, "decoder.drop");
    for (int64_t begin = 0; begin < config_.layers; begin += step) {
      auto blocks = [this, batch, begin, end = std::min(config_.layers, begin + step)](
                        const Tensor& in, const Tensor& from) {
        Tensor y = in;
        for (int64_t i = begin; i < end; ++i)
          y = (*decoder_.blocks[static_cast<size_t>(i)])(y, from, *batch);
        return y;
      };
      const bool again = plan.full && (!plan.first_only || begin < plan.recompute_layers);
      x = again ? recompute(blocks, x, encoded) : blocks(x, encoded);
    }
    return drop((*decoder_.norm)(x), "decoder.norm.drop");
  }

  T5Config config_;
  ModelContext context_;
  Dim vocab_;
  Embedding embed_;
  Stack<EncoderBlock> encoder_;
  Stack<DecoderBlock> decoder_;
  LmHead head_;
};

}  // namespace
}  // namespace mtrain::t5

MT_PLUGIN("t5", "T5 family: encoders with decoders") {
  using namespace mtrain;
  registry.add<Model, t5::T5, t5::T5Config>("t5",
                                            "encoder and decoder with biases by relative distance");
}
