// The tape: coarse ops with hand-written backward. An op is a struct with
//   Tensor forward(ExecutionContext&, const Tensor& x, …);
//       saves what backward needs in members
//   void backward(ExecutionContext&, const Tensor& dy, Grads<N>& g);
//       follows forward; g[i] receives the gradient of input i
//   MaybePlacement placed(const Tensor& x, …) const;
//       optional; see result_placement.h
// `apply(Op{…}, inputs…)` runs the op and, if any input needs a gradient, attaches it to the
// result. The op object is the saved context; it is released as soon as its backward has run. There
// is one tape per ExecutionContext, used on the ExecutionContext's thread.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "mtrain/autograd/result_placement.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

/// Anything that receives a gradient: an op's result or a parameter.
class MT_API GradTarget : public NodeBase {
 public:
  ~GradTarget() override;
  /// The accumulated gradient: float for leaves, the result's own dtype otherwise.
  Tensor grad;
  /// False: `grad` holds nothing of this step yet and must be overwritten.
  bool has_grad = false;
  bool is_leaf = false;
};

/// Observer of parameters, for owners that keep values or gradients only while they are needed.
/// `leaf` is the number that the observer gave to the leaf. Called on the rank's thread, in the
/// order in which ops run, which is the same on all ranks of one program.
class MT_API LeafWatch {
 public:
  virtual ~LeafWatch();
  /// The value will be read next.
  virtual void before_value(int64_t leaf) = 0;
  /// The gradient will be written next.
  virtual void before_gradient(int64_t leaf) = 0;
};

/// A parameter on the tape: `grad` is its float main gradient, allocated by the parameter's owner.
class MT_API Leaf final : public GradTarget {
 public:
  Leaf() { is_leaf = true; }
  ~Leaf() override;
  LeafWatch* watch = nullptr;
  int64_t number = 0;  // number for `watch`
};

/// Gradients of parameters that a backward deferred: the W of pipeline schedules that separate it
/// from B (Qi et al. 2023, arXiv:2401.10241). Owns the tensors from which they are computed: inputs
/// of products and gradients of their outputs. For the thread of the tape; the parameters must
/// outlive it.
class MT_API DeferredGradients {
 public:
  /// Computes the deferred gradients in the order in which they were added, and releases each one's
  /// tensors.
  void run();
  bool empty() const { return work_.empty(); }
  void add(std::function<void()> work) { work_.push_back(std::move(work)); }

 private:
  std::vector<std::function<void()>> work_;
};

/// An op on the tape.
class MT_API TapeNode : public GradTarget {
 public:
  ~TapeNode() override;
  /// Whether recompute() can compute the result again from the saved context.
  virtual bool can_recompute() const { return false; }
  virtual Tensor recompute(ExecutionContext&) { return {}; }
  /// Runs the op's backward on `dy`, which passes gradients to the inputs, and releases the saved
  /// context.
  /// `later`: see backward().
  virtual void run_backward(const Tensor& dy, DeferredGradients* later) = 0;
  uint64_t order =
      0;  // creation number: nodes run in descending order, which is a valid topological order
  Shape shape;  // of the result; its gradient arrives with this shape and dtype
  DType dtype = DType::f32;
  bool queued = false;  // backward will run it
  bool spent = false;   // backward has run it
  std::vector<std::shared_ptr<NodeBase>> inputs;
};

/// One input as backward sees it: where to put its gradient.
class MT_API InputGrad {
 public:
  InputGrad() = default;
  explicit InputGrad(GradTarget* target, DeferredGradients* later = nullptr)
      : target_(target), later_(later) {}
  bool wanted() const { return target_ != nullptr; }

  struct Slot {
    Tensor out;
    bool accumulate;  // "+=" onto contributions of other uses
  };
  /// The tensor for this input's gradient: float for parameters, `dtype` otherwise. REQUIRES:
  /// wanted().
  Slot slot(ExecutionContext& ctx, const Shape& shape, DType dtype);
  /// Like slot(), but zero-filled if there is no gradient yet, for kernels that always accumulate.
  Tensor accumulator(ExecutionContext& ctx, const Shape& shape, DType dtype);
  /// Passes a finished gradient on, without a copy if possible. The caller must not write to it
  /// afterwards.
  void give(ExecutionContext& ctx, const Tensor& gradient);
  /// Calls `work(InputGrad)`, which computes the gradient of this input. It runs at once, or later
  /// if the input is a parameter and this backward defers those. `work` must hold everything it
  /// needs by value, and that must stay unchanged until then. REQUIRES: wanted().
  template <class Work>
  void compute(Work work) {
    InputGrad now(target_);
    if (later_ == nullptr || !target_->is_leaf) return work(now);
    later_->add([now, work = std::move(work)]() mutable { work(now); });
  }
  /// Where this backward defers gradients of parameters; null if it does not.
  DeferredGradients* later() const { return later_; }
  /// The same input, deferred to `other` if this backward does not defer.
  InputGrad or_later(DeferredGradients& other) const {
    return InputGrad(target_, later_ ? later_ : &other);
  }

 private:
  void own(ExecutionContext& ctx);
  GradTarget* target_ = nullptr;
  DeferredGradients* later_ = nullptr;
};

template <size_t N>
using Grads = std::array<InputGrad, N>;

template <class Op, size_t N>
class OpNode final : public TapeNode {
 public:
  explicit OpNode(Op made) : op(std::move(made)) {}
  bool can_recompute() const override {
    return requires(Op & o, ExecutionContext & r) { o.recompute(r); };
  }
  Tensor recompute(ExecutionContext& ctx) override {
    if constexpr (requires { op.recompute(ctx); }) return op.recompute(ctx);
    return {};
  }
  void run_backward(const Tensor& dy, DeferredGradients* later) override {
    Grads<N> grads;
    for (size_t i = 0; i < N; ++i)
      grads[i] = InputGrad(static_cast<GradTarget*>(inputs[i].get()), later);
    op.backward(dy.context(), dy, grads);
    op = Op(std::move(blank_));
  }
  Op op;

 private:
  Op blank_{};
};

/// Runs an op; see the top of this file. Undefined inputs (an absent bias) are allowed.
template <class Op, class... Inputs>
Tensor apply(Op op, const Inputs&... in) {
  ExecutionContext& ctx = std::get<0>(std::forward_as_tuple(in...)).context();
  bool record = ctx.grad_enabled && (... || (in.node() != nullptr));
  constexpr bool kPlaces = requires { op.placed(in...); };
  MaybePlacement placed;
  if constexpr (kPlaces) {
    if (ctx.tracked_axis) placed = op.placed(in...);
  }
  auto result = [&](Tensor made) {
    Tensor out = made.detach();
    if (kPlaces && ctx.tracked_axis) out.set_placement(placed);
    return out;
  };
  if (!record) return result(op.forward(ctx, in...));
  auto node = std::make_shared<OpNode<Op, sizeof...(in)>>(std::move(op));
  Tensor out = result(node->op.forward(ctx, in...));
  node->order = ctx.next_node++;
  node->shape = out.shape();
  node->dtype = out.dtype();
  node->inputs = {in.node()...};
  out.set_node(std::move(node));
  return out;
}

/// Propagates `gradient` of `output` to all leaves. Consumes the tape: a second backward of the
/// same output is a bug. With `later`, ops that can compute gradients of parameters separately
/// (products, embeddings) defer them to it; other ops add them now. later->run() then gives the
/// same bits as a backward without it.
MT_API void backward(const Tensor& output, const Tensor& gradient,
                     DeferredGradients* later = nullptr);
/// The same, from the node of an output whose values are no longer needed.
MT_API void backward(std::shared_ptr<NodeBase> output, const Tensor& gradient,
                     DeferredGradients* later = nullptr);

/// Notifies the observers of parameters that the op of this node will read their values.
MT_API void before_values(const TapeNode& node);

/// Throws Error(config) if the backend does not have the kernel.
MT_API void require_kernel(const ExecutionContext& ctx, bool present, std::string_view kernel);

/// Turns the tape off (or on) within a scope.
class GradMode {
 public:
  GradMode(ExecutionContext& ctx, bool enabled)
      : ctx_(ctx), before_(std::exchange(ctx.grad_enabled, enabled)) {}
  ~GradMode() { ctx_.grad_enabled = before_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  ExecutionContext& ctx_;
  bool before_;
};

}  // namespace mtrain
