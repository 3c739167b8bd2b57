#include "mtrain/base/shape.h"

namespace mtrain {

void throw_too_many_elements(const Shape& shape) {
  throw Error(ErrorClass::config,
              cat("a tensor of the shape ", shape, " was requested, but a tensor has at most ",
                  Shape::kMostElements, " elements"),
              "make the model or its batch smaller (model.hidden_size, model.ffn_hidden_size, "
              "model.vocab_size, model.seq_length, "
              "train.micro_batch_size)");
}

}  // namespace mtrain
