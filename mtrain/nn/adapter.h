// Low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685): to a frozen weight w [out,in], an
// adapter adds s · b · a with trained a [rank,in] and b [out,rank]. With magnitudes (DoRA: Liu et
// al. 2024, arXiv:2402.09353), the rows of the sum get a trained norm. Vectors (IA3: Liu et al.
// 2022, arXiv:2205.05638) multiply the results of a layer, or its inputs. AdapterPlan says which
// weights have an adapter, and which parameters are trained; layers make their adapters by it, and
// refer to it. For the rank's own thread.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/autograd/expert_ops.h"
#include "mtrain/dist/overlapped_linear.h"
#include "mtrain/nn/adapted_norms.h"
#include "mtrain/nn/scope.h"

namespace mtrain {

/// The rank of an adapter, and s: alpha / rank, or alpha / sqrt(rank).
struct AdapterSize {
  int64_t rank = 0;
  double alpha = 0, scale = 1;
  bool operator==(const AdapterSize&) const = default;
};

/// A rank or an alpha for the matrices that match a pattern.
struct AdapterNumber {
  std::string pattern;
  double number = 0;
};

struct AdapterOptions {
  int64_t rank = 0;
  double alpha = 0;
  bool rslora = false;                                 // s is alpha / sqrt(rank)
  std::vector<AdapterNumber> ranks = {}, alphas = {};  // override rank and alpha
  float b_std = 0;             // standard deviation of the initial b; 0: zeros
  bool gaussian = false;       // the initial a has deviation 1 / rank; else uniform within
                               // 1 / sqrt(inputs)
  float dropout = 0;           // probability of dropping an element of x before a, while training
  bool principal = false;      // a and b start from singular vectors (train/principal_start.h)
  bool vectors = false;        // no a and b: a vector multiplies the results or the inputs
  bool magnitudes = false;     // the norm of each row of w + s · b · a is trained
  bool share_experts = false;  // all experts of a block have one adapter
  std::vector<std::string> targets;  // patterns of AdapterPlan::matrices_of
  std::vector<std::string> exclude;  // patterns of weights without adapters; override `targets`
  std::vector<std::string> feedforward = {};  // patterns of weights whose vector scales the inputs
  std::vector<std::string> train;             // patterns of further parameters that are trained
};

class MT_API AdapterPlan {
 public:
  explicit AdapterPlan(AdapterOptions options) : options_(std::move(options)) {}
  const AdapterOptions& options() const { return options_; }

  /// The matrices of a weight that get adapters, as indices of `matrices`. `weight`: the path of
  /// its layer, "layers.3.attn.qkv". A pattern matches the path within the block ("attn.qkv"), or
  /// this with the name of one matrix ("attn.qkv.q"), or with the block before it
  /// ("layers.3.attn.qkv.q"); * matches any characters. q_proj and the
  /// other names of Hugging Face's Llama, and all-linear, stand for such patterns.
  std::vector<size_t> matrices_of(const std::string& weight,
                                  const std::vector<LogicalMatrix>& matrices);
  /// The size of the adapter of a matrix with the name `matrix` ("q", or empty: the only one) in
  /// the weight of a layer. The first pattern of `ranks` and of `alphas` that matches counts; it
  /// matches as in matrices_of().
  AdapterSize size_of(const std::string& weight, const std::string& matrix);
  /// Whether the vector of a weight multiplies its inputs. Error(config) if `feedforward` matches
  /// only some of the weight's matrices, since all of them share the inputs.
  bool scales_input(const std::string& weight, const std::vector<LogicalMatrix>& matrices);
  /// Whether the matrices of experts get adapters. Only patterns of `targets` that contain the word
  /// "experts" can match them, so mlp.* does not. `weight`: "layers.3.mlp.experts.up".
  bool adapts_experts(const std::string& weight);
  /// Whether a parameter is trained: true for adapters, and for parameters that match a pattern of
  /// `train`.
  bool trains(const std::string& parameter);
  /// "layers.3.attn.qkv.lora_a", "layers.3.mlp.down.ia3_l"
  static bool is_adapter(std::string_view parameter);

  /// Switches all adapters on or off. While they are off, layers compute as if they had none.
  /// Initially on.
  void turn(bool on) { on_ = on; }
  bool is_on() const { return on_; }

  /// The names that patterns could match, within blocks: "attn.qkv", "attn.qkv.q", …
  const std::set<std::string>& candidates() const { return candidates_; }
  /// A pattern of the list "targets", "exclude", "feedforward", "train", "ranks" or "alphas".
  struct Unmatched {
    std::string list, pattern;
  };
  /// Patterns that nothing has matched so far.
  std::vector<Unmatched> unmatched() const;
  /// The number of matrices with adapters so far.
  int64_t num_adapters() const { return num_adapters_; }

 private:
  using List = std::vector<std::string> AdapterOptions::*;
  static std::string list_name(List list);
  bool matches(List list, const std::string& name, const std::string& path);
  double number_of(const char* list, const std::vector<AdapterNumber>& numbers,
                   const std::string& weight, const std::string& matrix, double otherwise);

  AdapterOptions options_;
  std::set<std::string> candidates_;
  std::map<std::string, std::set<std::string>> matched_;  // patterns, by the name of their list
  int64_t num_adapters_ = 0;
  bool on_ = true;
};

/// The adapters of one weight, which may hold several matrices (LogicalMatrix): each has its own a
/// and b. Their a are the rows of one parameter `lora_a` [matrices · rank, in]; their b are the
/// rows of `lora_b` [out, rank] that the matrices have in the weight. If the matrices have several
/// ranks, `rank` is the largest, and the rows of a and columns of b beyond a matrix's own are
/// zeros, which have no gradient. If the weight is sharded over
/// tensor-parallel ranks, so is the parameter that has the same dimension; the gradients of the
/// other one are partial sums. The magnitudes m are those of the rows of the weight:
/// `lora_magnitude` [out] is m - ‖w‖, which starts as zeros, so that initialization needs no norms
/// and bf16 keeps its digits. With vectors (IA3), there are no a, b and m, but a vector l, stored
/// as `ia3_l` = l - 1: [out] for the results, bias included, or [in] for the inputs, sharded like
/// that dimension of the weight; rows of matrices without an adapter are multiplied by 1.
class MT_API Adapter {
 public:
  /// The adapters of a weight according to the plan of `scope`, the scope of its layer; nothing if
  /// it has none. `out`, `in`: the weight's dimensions.
  static std::optional<Adapter> of(const Scope& scope, const Parameter& weight, const Dim& out,
                                   const Dim& in);
  /// The output of the layer with its adapters: y[T,out] = x[T,in] · wᵀ + s · (dropout(x) · aᵀ) ·
  /// bᵀ, plus bias and `residual`, which may be undefined. With magnitudes, the sum before bias and
  /// residual is multiplied by m / ‖w + s·b·a‖, where the gradient treats the norm as a constant;
  /// as in peft, the part of y that differs from x · wᵀ then uses dropout(x) in the product with w,
  /// too. In a tensor-parallel region, x and y are sharded as for the product with the weight
  /// alone. While the plan's adapters are off: the output of the layer without them.
  Tensor product(const Tensor& x, const LinearWeights& layer, const Tensor& residual = {}) const;
  /// product() in two parts, for layers whose inputs are sharded: partial() gives the summand that
  /// is reduced over ranks, finish() turns the sum into the output.
  Tensor partial(const Tensor& x, const LinearWeights& layer) const;
  Tensor finish(const Tensor& sum, const Tensor& bias, const Tensor& residual) const;
  /// REQUIRES: no vector.
  Parameter& a() const { return *a_; }
  /// Its parameters that have a row for each row of the weight.
  std::vector<Parameter*> of_rows() const;

 private:
  Adapter(const Scope& scope, const Parameter& weight, const Dim& out, const Dim& in,
          const std::vector<size_t>& matrices, AdapterPlan& plan);
  /// The vector of the results or of the inputs.
  void make_vector(const Scope& scope, const Parameter& weight, const Dim& out, const Dim& in,
                   const std::vector<size_t>& matrices, bool of_input);
  bool scales(bool inputs) const { return vector_ && plan_->is_on() && inputs == of_input_; }
  Tensor times_vector(const Tensor& x) const { return scale_columns(x, vector_->use(), gain_); }
  /// The parameters of a and b for matrices of these sizes.
  void make_factors(const Scope& scope, const Parameter& weight, const Dim& out, const Dim& in,
                    const std::vector<size_t>& matrices, const std::vector<AdapterSize>& sizes);
  void set_scales(ExecutionContext& ctx, const std::vector<AdapterSize>& sizes);
  Tensor add_to(const Tensor& y, const Tensor& x) const;
  Tensor kept(const Tensor& x) const;
  Tensor scaled(const Tensor& sum) const;
  Tensor all_of_b() const;
  bool has_norms() const { return magnitudes_ && plan_->is_on(); }
  const AdapterPlan* plan_;
  Parameter *a_ = nullptr, *b_ = nullptr, *magnitudes_ = nullptr, *vector_ = nullptr;
  bool of_input_ = false;  // the vector multiplies the inputs, not the results
  ColumnGain gain_ = {};   // 1 + vector, where the rows have an adapter
  float scale_ = 1, dropout_;
  Tensor scales_;  // float [matrices · rank], where the matrices have several factors: then
                   // scale_ is 1
  uint64_t dropout_key_;
  Tensor rows_;  // int32 [out · matrices]: the row of b for each block of `rank` columns of the
                 // block matrix [out, matrices · rank]; -1: a block of zeros. Undefined: the block
                 // matrix is b itself
  std::optional<AdaptedNorms> norms_;  // of layers with magnitudes
};

/// The adapters of the matrices of experts [experts, out, in]: one for each expert, with `lora_a`
/// [experts, rank, in] and `lora_b` [experts, out, rank], sharded like the experts; or one that all
/// experts share, with 1 in place of `experts`.
class MT_API ExpertAdapter {
 public:
  /// Nothing if the plan of `scope`, the scope of the weight, gives it no adapters. Error(config)
  /// with dropout or magnitudes, or for a shared adapter of experts that are sharded over etp.
  static std::optional<ExpertAdapter> of(const Scope& scope, const Parameter& weight);
  /// y[R,out] + s · (x[R,in] · aᵀ) · bᵀ, or y while the plan's adapters are off; the rows of an
  /// expert are consecutive.
  Tensor add_to(const Tensor& y, const Tensor& x, const RowCounts& rows) const;

 private:
  ExpertAdapter(const Scope& scope, const Parameter& weight, AdapterPlan& plan);
  const AdapterPlan* plan_;
  Parameter *a_, *b_;
  float scale_ = 1;
  bool shared_;
};

}  // namespace mtrain
