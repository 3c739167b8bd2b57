#include "mtrain/nn/parameter.h"

#include <vector>

#include "mtrain/nn/scope.h"

namespace mtrain {

Parameter& ParamList::add(Parameter parameter) {
  MT_CHECK(find(parameter.name) == nullptr, "two parameters named ", parameter.name);
  return parameters_.emplace_back(std::move(parameter));
}

Parameter* ParamList::find(std::string_view name) {
  for (auto& p : parameters_)
    if (p.name == name) return &p;
  return nullptr;
}

int64_t ParamList::numel() const {
  int64_t n = 0;
  for (const auto& p : parameters_) n += p.numel();
  return n;
}

void ParamList::allocate_gradients(Run& run) {
  MemoryScope use(run.memory(), MemoryUse::gradients);
  gradients_ = run.zeros({numel()}, DType::f32);
  int64_t at = 0;
  for (auto& p : parameters_) {
    p.main_grad = gradients_.slice(0, at, at + p.numel()).view(p.master.shape());
    p.leaf->grad = p.main_grad;
    at += p.numel();
  }
}

void ParamList::clear_gradients() {
  for (auto& p : parameters_) p.leaf->has_grad = false;
}

void ParamList::settle_gradients(Run& run) {
  for (auto& p : parameters_)
    if (!p.leaf->has_grad) run.fill_zero(p.main_grad);
}

Scope Scope::operator/(std::string_view name) const {
  return Scope(*settings_, path_.empty() ? std::string(name) : cat(path_, ".", name));
}

Parameter& Scope::param(std::string_view name, const Dims& dims, const Init& init, bool decay) const {
  Parameter p;
  p.name = (*this / name).path();
  p.dims = dims;
  p.decay = decay;
  p.leaf = std::make_shared<Leaf>();
  Shape shape;
  for (const auto& dim : dims) {
    MT_USER_CHECK(dim.size > 0, ErrorClass::config, cat("parameter ", p.name, " has dimension ", dim.name, " = ", dim.size),
                  "check the sizes of the model section");
    shape.push_back(dim.size);
  }
  Run& run = settings_->run;
  MemoryScope use(run.memory(), MemoryUse::parameters);
  p.master = run.empty(shape, DType::f32);
  if (settings_->initialise) {
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    fill(init, run.seed(), p.name, values);
    run.upload(p.master, values.data());
  }
  if (settings_->dtype == DType::f32) {
    p.value = p.master;
  } else {
    p.value = run.empty(shape, settings_->dtype);
    if (settings_->initialise) run.copy(p.value, p.master);
  }
  return settings_->parameters.add(std::move(p));
}

}  // namespace mtrain
