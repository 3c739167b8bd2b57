#include "mtrain/data/dataset.h"

#include "mtrain/base/text.h"
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

bool AskedPrompt::trim_answer(std::string& text) const {
  const size_t end = end_text.empty() ? std::string::npos : text.find(end_text);
  if (end != std::string::npos) text.resize(end);
  if (turn) text = trim(text);
  return end != std::string::npos;
}

std::string Dataset::identity_until(int64_t /*consumed*/) const { return identity(); }

}  // namespace mtrain
