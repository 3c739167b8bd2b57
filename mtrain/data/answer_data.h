// AnswerData: what a dataset of answers says about its records in addition to Dataset. One whose
// objective() is Dataset::kPreferences may implement it. Const members are safe from any thread.
#pragma once
#include <string>

#include "mtrain/base/export.h"

namespace mtrain {

class MT_API AnswerData {
 public:
  virtual ~AnswerData();
  /// The location of the first record with a single answer, "labels.jsonl:1"; empty: all records
  /// are pairs.
  virtual std::string first_single_answer() const = 0;
};

}  // namespace mtrain
