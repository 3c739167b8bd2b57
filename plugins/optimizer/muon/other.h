// The optimizer of the parameters that are not matrices: AdamW, Lion or SGD, element by element. A
// value; for the rank's own thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "../kernels/launcher.h"
#include "mtrain/config/fields.h"
#include "mtrain/optim/optimizer.h"

namespace mtrain::muon {

struct OtherConfig {
  std::string type = "adamw";
  double lr_ratio = 1, eps = 1e-8, momentum = 0.9;
  std::optional<double> beta1, beta2;
  bool nesterov = false;
  void bind(Fields& f);
};

class Other {
 public:
  Other(OtherConfig config, const optimizer_kernels::Launcher& launch);
  std::vector<std::string> state_names() const;
  void update(const ParamUpdate& u) const;

 private:
  void adamw(const ParamUpdate& u) const;
  void lion(const ParamUpdate& u) const;
  void sgd(const ParamUpdate& u) const;
  OtherConfig config_;
  double beta1_, beta2_;
  optimizer_kernels::Launcher launch_;
};

}  // namespace mtrain::muon
