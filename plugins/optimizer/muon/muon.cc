// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon): the running mean of a
// matrix's gradient, made orthogonal, is its step. Other parameters have an elementwise optimizer
// (other.h).
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "mtrain/plugin/plugin.h"
#include "newton_schulz.h"
#include "other.h"

namespace mtrain {
namespace {

using namespace optimizer_kernels;

struct MuonConfig {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t newton_schulz_steps = 5;
  std::string newton_schulz_dtype = "auto", scale = "rms";
  muon::OtherConfig other;
  void bind(Fields& f) {
    f("momentum", momentum, "decay of the running mean of a matrix's gradient")
        .min(0)
        .exclusive_max(1)
        .renamed_from({"muon_momentum"});
    f("nesterov", nesterov, "look ahead by one step of momentum")
        .renamed_from({"muon_use_nesterov"});
    f("newton_schulz_steps", newton_schulz_steps,
      "number of Newton-Schulz iterations that orthogonalize the update")
        .min(1)
        .max(100)
        .renamed_from({"muon_num_ns_steps"});
    f("newton_schulz_dtype", newton_schulz_dtype,
      "data type of their matrices, whose products are summed in fp32; auto: bf16 if the model "
      "computes in bf16 or fp16")
        .one_of({"auto", "fp32", "bf16"});
    f("scale", scale,
      "factor of an orthogonal update; rms: 0.2 x sqrt(max(rows, columns)), the root mean square "
      "of "
      "Adam's updates, so that its learning rates fit; spectral: sqrt(max(1, rows / columns))")
        .one_of({"rms", "spectral"})
        .renamed_from({"muon_scale_mode"});
    f.section("other", other);
  }
};

/// Elements of a logical matrix: those from `first` on are `pieces`, which start at element
/// `offset` of the parameter.
struct MatrixPart {
  int64_t first, offset;
  Pieces pieces;
};

/// One part if the rows are ranges of the same length at the same distance, as those of fused
/// projections are; otherwise one for each range.
std::vector<MatrixPart> parts_of(const LogicalMatrix& m) {
  const std::vector<RowRange>& rows = m.rows;
  const int64_t distance = rows.size() > 1 ? rows[1].first - rows[0].first : rows[0].rows;
  bool regular = distance >= rows[0].rows;
  for (size_t i = 1; i < rows.size(); ++i)
    regular =
        regular && rows[i].rows == rows[0].rows && rows[i].first - rows[i - 1].first == distance;
  if (regular)
    return {{0,
             rows[0].first * m.cols,
             {rows[0].rows * m.cols, distance * m.cols, static_cast<int64_t>(rows.size())}}};
  std::vector<MatrixPart> parts;
  int64_t first = 0;
  for (const RowRange& range : rows) {
    const int64_t count = range.rows * m.cols;
    parts.push_back({first, range.first * m.cols, {count, count, 1}});
    first += count;
  }
  return parts;
}

std::byte* element(const Tensor& tensor, int64_t index) {
  return static_cast<std::byte*>(tensor.raw()) +
         index * static_cast<int64_t>(size_of(tensor.dtype()));
}

class Muon final : public Optimizer {
 public:
  Muon(const MuonConfig& config, OptimizerContext& context)
      : config_(config),
        launch_(context.ctx, "muon"),
        other_(config.other, launch_),
        dtype_(config.newton_schulz_dtype == "bf16" ||
                       (config.newton_schulz_dtype == "auto" && context.compute_dtype != DType::f32)
                   ? DType::bf16
                   : DType::f32) {}

  std::vector<std::string> state_names(const ParamInfo& p) const override {
    if (is_matrix(p)) return {"momentum_buffer"};
    return other_.state_names();
  }

  UpdateScope scope(const ParamInfo& p) const override {
    return is_matrix(p) ? UpdateScope::whole_matrices : UpdateScope::elements;
  }

  std::vector<Shape> workspace(const ParamInfo& /*param*/, const LogicalMatrix& m) const override {
    const muon::Buffers buffers(m.num_rows(), m.cols);
    const auto in_floats = [&](const Shape& shape) {
      return dtype_ == DType::f32 ? shape : Shape{(shape.numel() + 1) / 2};
    };
    return {in_floats(buffers.like_x),
            {kPartials},
            in_floats(buffers.square),
            in_floats(buffers.square),
            in_floats(buffers.like_x)};
  }

  void update(const ParamUpdate& u) override {
    if (u.scope == UpdateScope::elements) return other_.update(u);
    for (const LogicalMatrix& matrix : u.matrices) update_matrix(u, matrix);
  }

 private:
  static bool is_matrix(const ParamInfo& p) {
    return (p.role == ParamRole::matrix || p.role == ParamRole::expert_matrix) &&
           !p.matrices.empty();
  }

  double scale_of(int64_t rows, int64_t cols) const {
    const auto r = static_cast<double>(rows), c = static_cast<double>(cols);
    if (config_.scale == "rms") return 0.2 * std::sqrt(std::max(r, c));
    return std::sqrt(std::max(1.0, r / c));
  }

  void update_matrix(const ParamUpdate& u, const LogicalMatrix& matrix) const {
    const int64_t rows = matrix.num_rows(), cols = matrix.cols;
    const std::vector<MatrixPart> parts = parts_of(matrix);
    Tensor x = u.ctx.empty({rows, cols}, dtype_);
    for (const MatrixPart& part : parts)
      launch_(u.ctx, &Kernels::direction,
              DirectionArgs{.grad = u.grad.data<float>() + part.offset,
                            .momentum = u.state[0].data<float>() + part.offset,
                            .x = element(x, part.first),
                            .pieces = part.pieces,
                            .share = static_cast<float>(1 - config_.momentum),
                            .grad_scale = u.grad_scale,
                            .nesterov = config_.nesterov,
                            .x_dtype = dtype_});
    const Tensor partials = u.ctx.empty({kPartials}, DType::f32);
    launch_(u.ctx, &Kernels::normalize,
            NormalizeArgs{.x = x.raw(),
                          .partials = partials.data<float>(),
                          .count = x.numel(),
                          .eps = 1e-7f,
                          .x_dtype = dtype_});
    const muon::Orthogonal found =
        muon::orthogonal(u.ctx, std::move(x), config_.newton_schulz_steps);
    for (const MatrixPart& part : parts)
      launch_(u.ctx, &Kernels::step,
              StepArgs{.param = u.master.data<float>() + part.offset,
                       .x = element(found.x, part.first),
                       .value = u.value.defined() ? element(u.value, part.offset) : nullptr,
                       .pieces = part.pieces,
                       .keep = static_cast<float>(1 - u.lr * u.weight_decay),
                       .step = static_cast<float>(u.lr * scale_of(rows, cols) * found.factor),
                       .x_dtype = dtype_,
                       .value_dtype = u.value.defined() ? u.value.dtype() : DType::f32});
  }

  MuonConfig config_;
  Launcher launch_;
  muon::Other other_;
  DType dtype_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("muon", "orthogonal updates of matrices") {
  using namespace mtrain;
  registry.add<Optimizer, Muon, MuonConfig>(
      "muon",
      "orthogonal updates of matrices (Jordan et al. 2024), an elementwise optimizer for "
      "all other parameters");
}
