// StateBuffer: state of a model that is not trained by gradients, such as the biases of a router (a
// "buffer" in PyTorch). It is on the host, equal on all ranks of a pipeline stage, and saved in
// checkpoints. Owned by the ParamList.
#pragma once
#include <string>
#include <vector>

namespace mtrain {

struct StateBuffer {
  std::string name;  // the path, like a parameter's name
  std::vector<float> values;
  bool is_primary = true;  // this rank saves it
  /// A checkpoint may lack it or have it in another size: then it keeps its current values.
  bool optional_in_checkpoint = false;
};

}  // namespace mtrain
