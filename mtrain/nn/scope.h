// Scope: where a module is built — its path of names, the parameter list it adds to, and the run's
// settings that other systems keep global. Cheap to copy; refers to objects that outlive the model.
#pragma once
#include <optional>
#include <string>

#include "mtrain/nn/block_plan.h"
#include "mtrain/nn/init.h"
#include "mtrain/nn/parameter.h"

namespace mtrain {

class PrecisionPlan;
class QuantizedProducts;

/// What every module of one model shares.
struct BuildSettings {
  ExecutionContext& ctx;
  ParamList& parameters;
  DType dtype = DType::f32;   // of values and activations
  bool initialise = true;     // false: values come from a checkpoint anyway
  bool defer_memory = false;  // parameters get theirs, and their start values, from ParamBuckets
  const ParallelContext* parallel = nullptr;  // null: nothing is cut
  const BlockPlan* blocks = nullptr;          // null: everything is kept for backward
  PrecisionPlan* precision = nullptr;         // null: products are in `dtype`
};

class MT_API Scope {
 public:
  explicit Scope(BuildSettings& settings, std::string path = {}, int64_t index = -1)
      : settings_(&settings), path_(std::move(path)), index_(index) {}

  Scope operator/(std::string_view name) const;
  Scope operator/(int64_t index) const {
    return Scope(*settings_, (*this / std::to_string(index)).path_, index);
  }

  /// Adds a parameter named `<path>.<name>`, of which this rank holds what the axes of its dims
  /// leave to it. A start value depends on seed, name and the element's place in the whole only.
  /// Without a role, two dimensions are a matrix and anything else is `other`. Its logical matrices
  /// are plain_matrices(); a layer that fuses several replaces them.
  Parameter& param(std::string_view name, const Dims& dims, const Init& init, bool decay,
                   std::optional<ParamRole> role = {}) const;

  /// Adds numbers that no gradient moves (state_buffer.h), all of this value. Every rank of a stage
  /// adds the same ones.
  StateBuffer& buffer(std::string_view name, int64_t count, float value) const;
  /// The parameter `<path>.<name>` where another stage of this rank has added it, null otherwise.
  Parameter* find(std::string_view name) const {
    return settings_->parameters.find((*this / name).path());
  }

  ExecutionContext& context() const { return settings_->ctx; }
  const ParallelContext& parallel() const;
  const BlockPlan& blocks() const;
  DType dtype() const { return settings_->dtype; }
  const std::string& path() const { return path_; }
  /// The last number in the path: of a module in "layers.3.attn" its block's, 3; 0 where there is
  /// none.
  int64_t index() const { return in_block() ? index_ : 0; }
  bool in_block() const { return index_ >= 0; }
  /// How products with this weight are computed (nn/precision.h); null: in dtype().
  const QuantizedProducts* quantized_products(Parameter& weight, bool head = false) const;

 private:
  BuildSettings* settings_;
  std::string path_;
  int64_t index_;
};

}  // namespace mtrain
