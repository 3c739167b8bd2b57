#include "mtrain/autograd/tape.h"

#include <queue>

#include "mtrain/base/plugin_call.h"

namespace mtrain {

GradTarget::~GradTarget() = default;
Leaf::~Leaf() = default;
LeafWatch::~LeafWatch() = default;
TapeNode::~TapeNode() = default;

namespace {

Leaf* as_leaf(NodeBase* node) {
  auto target = static_cast<GradTarget*>(node);
  return target && target->is_leaf ? static_cast<Leaf*>(target) : nullptr;
}

class InBackward {
 public:
  explicit InBackward(ExecutionContext& ctx) : ctx_(ctx) { ++ctx_.backwards; }
  ~InBackward() { --ctx_.backwards; }
  InBackward(const InBackward&) = delete;
  InBackward& operator=(const InBackward&) = delete;

 private:
  ExecutionContext& ctx_;
};

}  // namespace

void before_values(const TapeNode& node) {
  for (const auto& input : node.inputs)
    if (Leaf* leaf = as_leaf(input.get()); leaf && leaf->watch)
      leaf->watch->before_value(leaf->number);
}

// A gradient that another holder still reads must be copied before it is added to.
void InputGrad::own(ExecutionContext& ctx) {
  if (target_->grad.unique() || target_->is_leaf) return;
  Tensor copy = ctx.empty(target_->grad.shape(), target_->grad.dtype());
  ctx.copy(copy, target_->grad);
  target_->grad = copy;
}

InputGrad::Slot InputGrad::slot(ExecutionContext& ctx, const Shape& shape, DType dtype) {
  if (Leaf* leaf = as_leaf(target_); leaf && leaf->watch)
    leaf->watch->before_gradient(leaf->number);
  bool accumulate = std::exchange(target_->has_grad, true);
  if (accumulate)
    own(ctx);
  else if (!target_->is_leaf)
    target_->grad = ctx.empty(shape, dtype);
  MT_CHECK(target_->grad.defined(), "a parameter without main gradient");
  MT_CHECK_EQ(target_->grad.numel(), shape.numel());
  return {target_->grad, accumulate};
}

Tensor InputGrad::accumulator(ExecutionContext& ctx, const Shape& shape, DType dtype) {
  Slot s = slot(ctx, shape, dtype);
  if (!s.accumulate) ctx.fill_zero(s.out);
  return s.out;
}

void InputGrad::give(ExecutionContext& ctx, const Tensor& gradient) {
  if (!target_->has_grad && !target_->is_leaf) {
    target_->grad = gradient.detach();
    target_->has_grad = true;
    return;
  }
  Slot s = slot(ctx, gradient.shape(), gradient.dtype());
  if (s.accumulate)
    ctx.accumulate(s.out, gradient);
  else
    ctx.copy(s.out, gradient);
}

namespace {

// Returns the gradient in the form that the op's backward expects. The result may have been used
// through views, and float gradients of norm weights can come from a result of another dtype. A
// slice of the result has no backward and is refused here.
Tensor take_gradient(TapeNode& node) {
  node.has_grad = false;
  node.spent = true;
  Tensor dy = std::exchange(node.grad, {}).view(node.shape);
  if (dy.dtype() == node.dtype) return dy;
  Tensor converted = dy.context().empty(node.shape, node.dtype);
  dy.context().copy(converted, dy);
  return converted;
}

}  // namespace

void DeferredGradients::run() {
  for (auto& work : work_)
    std::exchange(work, {})();  // each releases its tensors before the next one starts
  work_.clear();
}

void backward(const Tensor& output, const Tensor& gradient, DeferredGradients* later) {
  MT_CHECK(output.shape() == gradient.shape(), output.shape(), " vs ", gradient.shape());
  backward(output.node(), gradient, later);
}

void backward(std::shared_ptr<NodeBase> output, const Tensor& gradient, DeferredGradients* later) {
  auto root = std::dynamic_pointer_cast<TapeNode>(std::move(output));
  MT_CHECK(root != nullptr, "nothing on the tape leads to a parameter");
  MT_CHECK(!root->spent, "backward of this tape ran already");
  auto older = [](const std::shared_ptr<TapeNode>& a, const std::shared_ptr<TapeNode>& b) {
    return a->order < b->order;
  };
  std::priority_queue<std::shared_ptr<TapeNode>, std::vector<std::shared_ptr<TapeNode>>,
                      decltype(older)>
      ready(older);
  InBackward in_backward(gradient.context());
  MT_CHECK(root->shape.numel() == gradient.numel(), root->shape, " vs ", gradient.shape());
  InputGrad(root.get()).give(gradient.context(), gradient);
  ready.push(std::move(root));
  while (!ready.empty()) {
    std::shared_ptr<TapeNode> node = ready.top();
    ready.pop();
    before_values(*node);
    call_plugin(*node, "backward()", [&] { node->run_backward(take_gradient(*node), later); });
    for (auto& input : std::exchange(node->inputs, {})) {
      auto next = std::dynamic_pointer_cast<TapeNode>(input);
      if (!next || !next->has_grad) continue;
      MT_CHECK(!next->spent,
               "two results share a part of the tape, and backward of one ran already");
      if (std::exchange(next->queued, true)) continue;
      ready.push(std::move(next));
    }
  }
}

void require_kernel(const ExecutionContext& ctx, bool present, std::string_view kernel) {
  MT_USER_CHECK(present, ErrorClass::config,
                cat("the backend '", ctx.backend().name(), "' has no kernel '", kernel,
                    "', which this model needs"),
                "choose another backend (dist.backend=cpu) or a model without it");
}

}  // namespace mtrain
