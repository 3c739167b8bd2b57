#include "mtrain/nn/model.h"

namespace mtrain {

Model::~Model() = default;

}  // namespace mtrain
