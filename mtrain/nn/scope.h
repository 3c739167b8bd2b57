// Scope: the place where a module is built: its path of names, the list for its parameters, and
// build settings that other frameworks keep in globals. Cheap to copy; refers to objects that
// outlive the model.
#pragma once
#include <optional>
#include <string>

#include "mtrain/nn/block_plan.h"
#include "mtrain/nn/coded_parameter.h"
#include "mtrain/nn/init.h"
#include "mtrain/nn/parameter.h"

namespace mtrain {

class AdapterPlan;
class PrecisionPlan;
class QuantizedProducts;

/// The settings that all modules of a model share.
struct BuildSettings {
  ExecutionContext& ctx;
  ParamList& parameters;
  DType dtype = DType::f32;   // of values and activations
  bool initialise = true;     // false: a checkpoint provides the values
  bool imported = false;      // an import provides the values, except those of adapters
  bool defer_memory = false;  // ParamBuckets allocates and initialises the parameters
  const ParallelContext* parallel = nullptr;  // null: nothing is sharded
  const BlockPlan* blocks = nullptr;          // null: everything is kept for backward
  PrecisionPlan* precision = nullptr;         // null: products are in `dtype`
  AdapterPlan* adapters = nullptr;            // null: all parameters are trained, without adapters
  bool frozen_all = false;                    // no parameter is trained: a teacher's model
  uint64_t seed_shift = 0;  // added to the context's seed: of two models in one context
  std::optional<CodedFormat> frozen = {};  // how frozen weights of blocks' linear layers are
                                           // stored; absent: in `dtype`
};

class MT_API Scope {
 public:
  explicit Scope(BuildSettings& settings, std::string path = {}, int64_t index = -1)
      : settings_(&settings), path_(std::move(path)), index_(index) {}

  Scope operator/(std::string_view name) const;
  Scope operator/(int64_t index) const {
    return Scope(*settings_, (*this / std::to_string(index)).path_, index);
  }

  /// The same scope, but settings that depend on the block number (window, precision, rotary
  /// positions) treat it as block `index`.
  Scope like_block(int64_t index) const { return Scope(*settings_, path_, index); }

  /// Adds a parameter named `<path>.<name>`; this rank holds its shard according to the axes of the
  /// dims. Initial values depend only on seed, name and the element's index in the whole tensor.
  /// Default role: `matrix` for two dimensions, otherwise `other`. Its logical matrices are
  /// plain_matrices(); a layer with fused matrices replaces them.
  Parameter& param(std::string_view name, const Dims& dims, const Init& init, bool decay,
                   std::optional<ParamRole> role = {}) const;

  /// The parameter "weight" [out,in] of a linear layer, which consists of `matrices` (none: it is
  /// one matrix). Within blocks, it is quantized if it is frozen and BuildSettings::frozen is set.
  Parameter& linear_weight(const Dim& out, const Dim& in, const Init& init,
                           const std::vector<LogicalMatrix>& matrices) const;

  /// Adds a buffer without gradient (state_buffer.h), filled with `value`. Every rank of a stage
  /// adds the same buffers.
  StateBuffer& buffer(std::string_view name, int64_t count, float value) const;
  /// The parameter `<path>.<name>` if another stage of this rank has added it; otherwise null.
  Parameter* find(std::string_view name) const {
    return settings_->parameters.find((*this / name).path());
  }

  ExecutionContext& context() const { return settings_->ctx; }
  const ParallelContext& parallel() const;
  const BlockPlan& blocks() const;
  DType dtype() const { return settings_->dtype; }
  /// Which weights have adapters; null: none.
  AdapterPlan* adapters() const { return settings_->adapters; }
  const std::string& path() const { return path_; }
  /// The last number in the path, which is the index of the block: 3 for "layers.3.attn"; 0 if
  /// there is none.
  int64_t index() const { return in_block() ? index_ : 0; }
  bool in_block() const { return index_ >= 0; }
  /// How products with this weight are computed (nn/precision.h); null: in dtype().
  const QuantizedProducts* quantized_products(Parameter& weight, bool head = false) const;

 private:
  Parameter describe(std::string_view name, const Dims& dims, const Init& init, bool decay,
                     std::optional<ParamRole> role) const;
  BuildSettings* settings_;
  std::string path_;
  int64_t index_;
};

}  // namespace mtrain
