#include "mtrain/autograd/tape.h"

#include <queue>

namespace mtrain {

GradTarget::~GradTarget() = default;
Leaf::~Leaf() = default;
Node::~Node() = default;

// A gradient that another holder still reads must not be added to in place.
void InputGrad::own(Run& run) {
  if (target_->grad.unique() || target_->is_leaf) return;
  Tensor copy = run.empty(target_->grad.shape(), target_->grad.dtype());
  run.copy(copy, target_->grad);
  target_->grad = copy;
}

InputGrad::Slot InputGrad::slot(Run& run, const Shape& shape, DType dtype) {
  bool accumulate = std::exchange(target_->has_grad, true);
  if (accumulate) own(run);
  else if (!target_->is_leaf) target_->grad = run.empty(shape, dtype);
  MT_CHECK(target_->grad.defined(), "a parameter without main gradient");
  MT_CHECK_EQ(target_->grad.numel(), shape.numel());
  return {target_->grad, accumulate};
}

Tensor InputGrad::accumulator(Run& run, const Shape& shape, DType dtype) {
  Slot s = slot(run, shape, dtype);
  if (!s.accumulate) run.fill_zero(s.out);
  return s.out;
}

void InputGrad::give(Run& run, const Tensor& gradient) {
  if (!target_->has_grad && !target_->is_leaf) {
    target_->grad = gradient.detach();
    target_->has_grad = true;
    return;
  }
  Slot s = slot(run, gradient.shape(), gradient.dtype());
  if (s.accumulate) run.accumulate(s.out, gradient);
  else run.copy(s.out, gradient);
}

void backward(const Tensor& output, const Tensor& gradient) {
  MT_CHECK(output.shape() == gradient.shape(), output.shape(), " vs ", gradient.shape());
  auto root = std::dynamic_pointer_cast<Node>(output.node());
  MT_CHECK(root != nullptr, "nothing on the tape leads to a parameter");
  auto later = [](const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) { return a->order < b->order; };
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, decltype(later)> ready(later);
  InputGrad(root.get()).give(output.run(), gradient);
  ready.push(std::move(root));
  while (!ready.empty()) {
    std::shared_ptr<Node> node = ready.top();
    ready.pop();
    Tensor dy = std::exchange(node->grad, {});
    node->has_grad = false;
    node->run_backward(dy);
    for (auto& input : std::exchange(node->inputs, {})) {
      auto next = std::dynamic_pointer_cast<Node>(input);
      if (!next || !next->has_grad || std::exchange(next->queued, true)) continue;
      ready.push(std::move(next));
    }
  }
}

void require_kernel(const Run& run, bool present, std::string_view kernel) {
  MT_USER_CHECK(present, ErrorClass::config,
                cat("the backend '", run.backend().name(), "' has no kernel '", kernel, "', which this model needs"),
                "choose another backend (dist.backend=cpu) or a model without it");
}

}  // namespace mtrain
