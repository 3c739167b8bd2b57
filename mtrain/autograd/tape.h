// The tape: coarse ops with hand-written backward. An op is a struct with
//   Tensor forward(Run&, const Tensor& …);                       keeps what backward needs as
//   members void backward(Run&, const Tensor& dy, Grads<N>& g);          directly under forward;
//   g[i] feeds input i MaybePlacement placed(const Tensor& …) const; optional: how the result is
//   placed over ranks (placed.h)
// and `apply(Op{…}, inputs…)` runs it and, when any input wants a gradient, hangs the op on the
// result. The op object is the saved context and is released as soon as its backward has run. One
// tape per Run, on its thread.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "mtrain/autograd/result_placement.h"
#include "mtrain/tensor/run.h"

namespace mtrain {

/// Anything a gradient can flow into: an op's result or a parameter.
class MT_API GradTarget : public NodeBase {
 public:
  ~GradTarget() override;
  /// Where the gradient adds up. Leaves keep float; results keep their own dtype.
  Tensor grad;
  /// False: `grad` holds nothing of this step yet and is to be overwritten.
  bool has_grad = false;
  bool is_leaf = false;
};

/// Who keeps values or gradients of parameters only while they are needed, or wants to know when a
/// gradient is complete. `leaf` is the number that it gave the leaf. Called on the rank's thread,
/// in the order in which ops run, which is the same on all ranks of one program.
class MT_API LeafWatch {
 public:
  virtual ~LeafWatch();
  /// The value is about to be read.
  virtual void before_value(int64_t leaf) = 0;
  /// The gradient is about to be written.
  virtual void before_gradient(int64_t leaf) = 0;
  /// A backward has run the last op on any tape that reads the parameter: nothing more is added to
  /// its gradient, unless further ops are recorded.
  virtual void gradient_complete(int64_t leaf) = 0;
};

/// A parameter's end of the tape: `grad` is its float main gradient, allocated by its owner.
class MT_API Leaf final : public GradTarget {
 public:
  Leaf() { is_leaf = true; }
  ~Leaf() override;
  LeafWatch* watch = nullptr;
  int64_t number = 0;  // watch's
  int64_t uses = 0;    // ops on tapes that read it and have not run backward
};

/// A use of a parameter that outlives its op on the tape: its gradient is not complete before it
/// ends.
class MT_API LeafUse {
 public:
  explicit LeafUse(GradTarget& leaf);
  /// What goes before end() was never added.
  ~LeafUse();
  LeafUse(const LeafUse&) = delete;
  LeafUse& operator=(const LeafUse&) = delete;
  /// The gradient has been added.
  void end();

 private:
  Leaf* leaf_;
};

/// Gradients of parameters that a backward has left for later: the W of a pipeline schedule that
/// has it apart (Qi et al. 2023, arXiv:2401.10241). Holds what they are computed from: inputs of
/// products and gradients of their outputs. For the thread of the tape; the parameters outlive it.
class MT_API DeferredGradients {
 public:
  /// Adds up what was put off, in the order in which it came, and lets go of it.
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
  /// Whether the result can be computed again from what the op keeps for backward; again() does so.
  virtual bool repeatable() const { return false; }
  virtual Tensor again(Run&) { return {}; }
  /// Runs the op's backward on `dy`, feeding the inputs, and drops what it kept. `later`: see
  /// backward().
  virtual void run_backward(const Tensor& dy, DeferredGradients* later) = 0;
  uint64_t order = 0;  // creation number: larger runs first, which is a valid order
  Shape shape;         // of the result; its gradient arrives in this shape and dtype
  DType dtype = DType::f32;
  bool queued = false, spent = false;
  std::vector<std::shared_ptr<NodeBase>> inputs;
  /// Sets the inputs, and counts the use of those that are leaves.
  void record(std::vector<std::shared_ptr<NodeBase>> nodes);
};

/// Backward's view of one input.
class MT_API InputGrad {
 public:
  InputGrad() = default;
  explicit InputGrad(GradTarget* target, DeferredGradients* later = nullptr)
      : target_(target), later_(later) {}
  bool wanted() const { return target_ != nullptr; }

  struct Slot {
    Tensor out;
    bool accumulate;  // "+=" into what other uses left there
  };
  /// The tensor to write this input's gradient into: float for parameters, `dtype` otherwise.
  /// REQUIRES: wanted().
  Slot slot(Run& run, const Shape& shape, DType dtype);
  /// As slot(), but already zero when nothing is there yet, for kernels that always add.
  Tensor accumulator(Run& run, const Shape& shape, DType dtype);
  /// Hands over a finished gradient without copying where that is possible. The giver must not
  /// write it afterwards.
  void give(Run& run, const Tensor& gradient);
  /// Calls `work(InputGrad)`, which feeds this input: at once, or, where it is a parameter and this
  /// backward puts those off, when their time comes. `work` holds by value what it needs; that
  /// stays as it is until then. REQUIRES: wanted().
  template <class Work>
  void compute(Work work) {
    InputGrad now(target_);
    if (later_ == nullptr || !target_->is_leaf) return work(now);
    later_->add([now, use = std::make_shared<LeafUse>(*target_), work = std::move(work)]() mutable {
      work(now);
      use->end();
    });
  }
  /// Where this backward puts gradients of parameters off to, null when it does not.
  DeferredGradients* later() const { return later_; }
  /// The same input, whose gradient is put off to `other` where this backward does not put it off.
  InputGrad or_later(DeferredGradients& other) const {
    return InputGrad(target_, later_ ? later_ : &other);
  }

 private:
  void own(Run& run);
  GradTarget* target_ = nullptr;
  DeferredGradients* later_ = nullptr;
};

template <size_t N>
using Grads = std::array<InputGrad, N>;

template <class Op, size_t N>
class OpNode final : public TapeNode {
 public:
  explicit OpNode(Op made) : op(std::move(made)) {}
  bool repeatable() const override {
    return requires(Op & o, Run & r) { o.again(r); };
  }
  Tensor again(Run& run) override {
    if constexpr (requires { op.again(run); }) return op.again(run);
    return {};
  }
  void run_backward(const Tensor& dy, DeferredGradients* later) override {
    Grads<N> grads;
    for (size_t i = 0; i < N; ++i)
      grads[i] = InputGrad(static_cast<GradTarget*>(inputs[i].get()), later);
    op.backward(dy.run(), dy, grads);
    op = Op(std::move(blank_));
  }
  Op op;

 private:
  Op blank_{};
};

/// Runs an op; see the head of this file. Undefined inputs (an absent bias) are allowed.
template <class Op, class... Inputs>
Tensor apply(Op op, const Inputs&... in) {
  Run& run = std::get<0>(std::forward_as_tuple(in...)).run();
  bool record = run.grad_enabled && (... || (in.node() != nullptr));
  constexpr bool kPlaces = requires { op.placed(in...); };
  MaybePlacement placed;
  if constexpr (kPlaces) {
    if (run.typed) placed = op.placed(in...);
  }
  auto result = [&](Tensor made) {
    Tensor out = made.detach();
    if (kPlaces && run.typed) out.set_placement(placed);
    return out;
  };
  if (!record) return result(op.forward(run, in...));
  auto node = std::make_shared<OpNode<Op, sizeof...(in)>>(std::move(op));
  Tensor out = result(node->op.forward(run, in...));
  node->order = run.next_node++;
  node->shape = out.shape();
  node->dtype = out.dtype();
  node->record({in.node()...});
  out.set_node(std::move(node));
  return out;
}

/// Propagates `gradient` of `output` to all leaves. Consumes the tape: a second backward of the
/// same output is a bug. With `later`, ops that can compute gradients of parameters apart
/// (products, embeddings) leave them there; the others add them up now. later->run() then gives the
/// same bits as a backward without it.
MT_API void backward(const Tensor& output, const Tensor& gradient,
                     DeferredGradients* later = nullptr);
/// The same from the node of an output whose values are not needed any more.
MT_API void backward(std::shared_ptr<NodeBase> output, const Tensor& gradient,
                     DeferredGradients* later = nullptr);

/// Tells those who keep values of parameters that the op of this node is about to read them.
MT_API void before_values(const TapeNode& node);

/// Throws Error(config) when the backend has no such kernel.
MT_API void require_kernel(const Run& run, bool present, std::string_view kernel);

/// Turns the tape off (or on) for a scope.
class GradMode {
 public:
  GradMode(Run& run, bool enabled) : run_(run), before_(std::exchange(run.grad_enabled, enabled)) {}
  ~GradMode() { run_.grad_enabled = before_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  Run& run_;
  bool before_;
};

}  // namespace mtrain
