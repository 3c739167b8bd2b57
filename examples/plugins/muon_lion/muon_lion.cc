// Muon for matrices (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): the momentum,
// made orthogonal by a few Newton-Schulz iterations, is the step. Lion for everything else (Chen et
// al. 2023, arXiv:2302.06675), which needs one state tensor as well. Products are those of the
// backend; the other kernels are the plugin's own (kernels.h).
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels.h"
#include "mtrain/optim/optimizer.h"
#include "mtrain/plugin/plugin.h"
#include "mtrain/tensor/execution_context.h"

namespace {

using namespace mtrain;

struct MuonLionConfig {
  double momentum = 0.95, beta1 = 0.9, beta2 = 0.99, lion_lr = 0.2;
  bool nesterov = true;
  int64_t newton_schulz_steps = 5;
  void bind(Fields& f) {
    f("momentum", momentum, "decay of a matrix's running sum").min(0).exclusive_max(1);
    f("nesterov", nesterov, "look ahead by one step of momentum");
    f("newton_schulz_steps", newton_schulz_steps, "iterations towards an orthogonal step")
        .min(1)
        .max(100);
    f("beta1", beta1, "of what is no matrix: share of the momentum in the step's direction")
        .min(0)
        .exclusive_max(1);
    f("beta2", beta2, "of what is no matrix: decay of the momentum").min(0).exclusive_max(1);
    f("lion_lr", lion_lr, "learning rate of what is no matrix, as a multiple of that of matrices")
        .exclusive_min(0);
  }
};

/// The kernels for a backend; null where the plugin has none.
const muon_lion::Kernels* kernels_for(std::string_view backend) {
  if (backend == "cpu") return &muon_lion::kCpuKernels;
  if (backend == "cuda") return muon_lion::kCudaKernels;
  return nullptr;
}

class MuonLion final : public Optimizer {
 public:
  MuonLion(const MuonLionConfig& config, OptimizerContext& context)
      : config_(config), kernels_(kernels_for(context.ctx.backend().name())) {
    MT_USER_CHECK(kernels_, ErrorClass::config,
                  cat("optimizer 'muon_lion' has no kernels for the backend '",
                      context.ctx.backend().name(), "'"),
                  "build the plugin where nvcc is found, or choose optimizer.type=adamw");
  }

  std::vector<std::string> state_names(const ParamInfo& /*param*/) const override {
    return {"momentum"};
  }

  UpdateScope scope(const ParamInfo& p) const override {
    const bool matrix = p.role == ParamRole::matrix || p.role == ParamRole::expert_matrix;
    return matrix ? UpdateScope::whole_matrices : UpdateScope::elements;
  }

  std::vector<Shape> workspace(const ParamInfo&, const LogicalMatrix& matrix) const override {
    const int64_t rows = matrix.num_rows(), cols = matrix.cols, n = std::min(rows, cols);
    const bool copied = matrix.rows.size() > 1;  // matrix_of() copies rows that lie apart
    std::vector<Shape> shapes = {
        {rows, cols}, {muon_lion::kPartials}, {n, n}, {n, n}, {rows, cols}};
    if (copied) shapes.insert(shapes.end(), 3, Shape{rows, cols});
    return shapes;
  }

  void update(const ParamUpdate& u) override {
    if (u.scope == UpdateScope::elements)
      lion(u);
    else
      for (const LogicalMatrix& matrix : u.matrices) muon(u, matrix);
    if (u.value.defined()) u.ctx.copy(u.value, u.master);
  }

 private:
  /// Queues a kernel of the plugin's own after the work that the backend has so far.
  template <class Args>
  void call(ExecutionContext& ctx, const char* (*kernel)(void*, const Args&),
            const Args& args) const {
    const char* fault = kernel(ctx.stream().native(), args);
    MT_USER_CHECK(!fault, ErrorClass::plugin, cat("a kernel of 'muon_lion' did not start: ", fault),
                  "build the plugin for this device: -DCMAKE_CUDA_ARCHITECTURES=native");
  }

  void lion(const ParamUpdate& u) const {
    const auto lr = static_cast<float>(u.lr * config_.lion_lr);
    call(u.ctx, kernels_->lion,
         muon_lion::LionArgs{.param = u.master.data<float>(),
                             .grad = u.grad.data<float>(),
                             .momentum = u.state[0].data<float>(),
                             .count = u.master.numel(),
                             .beta1 = static_cast<float>(config_.beta1),
                             .beta2 = static_cast<float>(config_.beta2),
                             .grad_scale = u.grad_scale,
                             .keep = 1 - lr * static_cast<float>(u.weight_decay),
                             .lr = lr});
  }

  void muon(const ParamUpdate& u, const LogicalMatrix& matrix) const {
    Tensor weight = matrix_of(u.master, matrix), grad = matrix_of(u.grad, matrix),
           momentum = matrix_of(u.state[0], matrix);
    const int64_t rows = matrix.num_rows(), cols = matrix.cols;
    Tensor step = u.ctx.empty({rows, cols}, DType::f32);
    call(u.ctx, kernels_->momentum,
         muon_lion::MomentumArgs{.grad = grad.data<float>(),
                                 .momentum = momentum.data<float>(),
                                 .out = step.data<float>(),
                                 .count = step.numel(),
                                 .decay = static_cast<float>(config_.momentum),
                                 .grad_scale = u.grad_scale,
                                 .nesterov = config_.nesterov});
    step = orthogonal(u.ctx, step, rows, cols);
    // The root mean square of an orthogonal matrix's elements is 1 / sqrt(max(rows, cols)): with
    // this factor it is 0.2, as in Adam's steps (Liu et al. 2025, arXiv:2502.16982).
    const double factor = 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
    call(u.ctx, kernels_->step,
         muon_lion::StepArgs{.param = weight.data<float>(),
                             .x = step.data<float>(),
                             .count = step.numel(),
                             .keep = static_cast<float>(1 - u.lr * u.weight_decay),
                             .step = static_cast<float>(u.lr * factor)});
    set_matrix(u.master, matrix, weight);
    set_matrix(u.state[0], matrix, momentum);
  }

  /// The nearest orthogonal matrix, about: X = a X + (b S + c S²) X with S = X Xᵀ, repeated. Where
  /// there are more rows than columns S = Xᵀ X is smaller, and the factor stands on the right.
  Tensor orthogonal(ExecutionContext& ctx, Tensor x, int64_t rows, int64_t cols) const {
    constexpr float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    const bool tall = rows > cols;
    const int64_t n = std::min(rows, cols);
    Tensor partials = ctx.empty({muon_lion::kPartials}, DType::f32);
    call(ctx, kernels_->normalize,
         muon_lion::NormalizeArgs{x.data<float>(), partials.data<float>(), x.numel(), 1e-7f});
    Tensor s = ctx.empty({n, n}, DType::f32), poly = ctx.empty({n, n}, DType::f32),
           next = ctx.empty({rows, cols}, DType::f32);
    for (int64_t i = 0; i < config_.newton_schulz_steps; ++i) {
      product(ctx, {.a = x, .b = x, .c = s, .transpose_a = tall, .transpose_b = !tall});
      ctx.copy(poly, s);
      product(ctx, {.a = s, .b = s, .c = poly, .alpha = c, .beta = b});
      ctx.copy(next, x);
      product(ctx, {.a = tall ? x : poly, .b = tall ? poly : x, .c = next, .beta = a});
      std::swap(x, next);
    }
    return x;
  }

  /// C = alpha op(A) op(B) + beta C, by the backend.
  struct Product {
    const Tensor &a, &b, &c;
    bool transpose_a = false, transpose_b = false;
    float alpha = 1, beta = 0;
  };
  static void product(ExecutionContext& ctx, const Product& p) {
    ctx.kernels().gemm(ctx.stream(), {.a = p.a.raw(),
                                      .b = p.b.raw(),
                                      .c = p.c.raw(),
                                      .transpose_a = p.transpose_a,
                                      .transpose_b = p.transpose_b,
                                      .m = p.c.shape()[0],
                                      .n = p.c.shape()[1],
                                      .k = p.a.shape()[p.transpose_a ? 0 : 1],
                                      .lda = p.a.shape()[1],
                                      .ldb = p.b.shape()[1],
                                      .ldc = p.c.shape()[1],
                                      .alpha = p.alpha,
                                      .beta = p.beta});
  }

  MuonLionConfig config_;
  const muon_lion::Kernels* kernels_;
};

}  // namespace

MT_PLUGIN("muon_lion", "orthogonal steps of matrices, steps of equal size elsewhere") {
  registry.add<Optimizer, MuonLion, MuonLionConfig>(
      "muon_lion", "orthogonal steps of matrices, steps of equal size elsewhere");
}
