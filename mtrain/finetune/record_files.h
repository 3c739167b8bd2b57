// The files of a dataset of records, and their division into splits: settings that sft, preference
// and classification share. Values; safe from any thread.
#pragma once
#include <string>
#include <string_view>

#include "mtrain/config/fields.h"
#include "mtrain/data/dataset.h"

namespace mtrain::finetune {

struct MT_API RecordFiles {
  std::string path, valid_path, test_path, split = "95,5,0";
  /// `path_doc`, `example`: of the setting path.
  void bind_files(Fields& f, std::string_view path_doc, const std::string& example);
  /// Validation and test have files of their own, so that `split` is not applied.
  bool own_splits() const { return !valid_path.empty() || !test_path.empty(); }
};

/// Error(config) if the requested split has no data.
MT_API void require_split(bool there, Split which);

}  // namespace mtrain::finetune
