// What differs between the data of a checkpoint and those that a run has now.
#pragma once
#include <string>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

/// Two of Dataset::identity()'s texts, one line for each value that differs, "split: 9,1,0 ->
/// 8,1,1", and for each file, "corpus has other contents: corpus.bin had 96 bytes and has 98", at
/// most `limit`. Of texts that are no JSON, the parts around the first difference. Empty when they
/// are equal.
MT_API std::vector<std::string> data_changes(const std::string& before, const std::string& now,
                                             size_t limit = 6);
/// The same of the files alone. Empty, too, for texts that list none.
MT_API std::vector<std::string> data_file_changes(const std::string& before,
                                                  const std::string& now);

}  // namespace mtrain
