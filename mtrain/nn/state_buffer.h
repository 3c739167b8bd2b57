// What a model keeps from step to step beside parameters: numbers that no gradient moves, such as
// the biases of a router. They lie on the host, alike on every rank of a pipeline stage, and go
// into checkpoints. Owned by the ParamList.
#pragma once
#include <string>
#include <vector>

namespace mtrain {

struct StateBuffer {
  std::string name;  // the path of scopes, like a parameter's
  std::vector<float> values;
  bool is_primary = true;       // this rank saves it
  bool may_begin_anew = false;  // where a checkpoint has none, or one of another size
};

}  // namespace mtrain
