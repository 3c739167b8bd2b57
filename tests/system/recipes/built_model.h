// The model of a recipe, built without memory: its parameters and its figures of work.
#pragma once
#include "built_plugins.h"
#include "mtrain/base/error.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/nn/model.h"
#include "mtrain/nn/scope.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/tensor/planning.h"

namespace mtrain::testing {

inline const fs::path kRecipes = source_root() / "recipes";

class BuiltModel {
 public:
  /// REQUIRES: the build has the recipe's model. `plugins` must outlive it.
  BuiltModel(const Recipe& recipe, PluginHost& plugins)
      : real_(make_cpu_backend(1)),
        backend_(make_planning_backend(*real_)),
        ctx_(*backend_),
        build_{.ctx = ctx_,
               .parameters = parameters_,
               .dtype = DType::bf16,
               .initialise = false,
               .defer_memory = true} {
    const Node& section = recipe.config.root().at("model");
    const int64_t given = section.at("vocab_size").as_int();
    // Without a size of its own: the byte tokenizer's 257 tokens in a multiple of 64.
    const int64_t vocab = given > 0 ? given : 320;
    ModelContext context{.scope = Scope(build_),
                         .stage = {},
                         .vocab_size = vocab,
                         .valid_vocab = vocab,
                         .max_positions = section.at("seq_length").as_int()};
    model_ = plugins.make<Model>(section.at("type").as_text(), recipe.component("model"), context);
  }
  int64_t parameters() {
    int64_t count = 0;
    for (const Parameter& p : parameters_.all()) count += p.global.numel();
    for (const StateBuffer& buffer : parameters_.buffers())
      count += static_cast<int64_t>(buffer.values.size());
    return count;
  }
  const ParamList& list() const { return parameters_; }
  /// The floating-point operations of a token. A length of 0 is without attention scores.
  double flops(int64_t seq_length) const { return model_->flops_per_token(seq_length); }

 private:
  std::unique_ptr<Backend> real_, backend_;
  ExecutionContext ctx_;
  ParamList parameters_;
  BuildSettings build_;
  std::unique_ptr<Model> model_;
};

}  // namespace mtrain::testing
