#include "mtrain/data/dataset.h"

#include "mtrain/data/answer_data.h"

namespace mtrain {

AnswerData::~AnswerData() = default;

const char* name(Split split) {
  switch (split) {
    case Split::train:
      return "train";
    case Split::valid:
      return "valid";
    case Split::test:
      return "test";
  }
  return "?";
}

std::string Dataset::identity_until(int64_t /*consumed*/) const { return identity(); }

}  // namespace mtrain
