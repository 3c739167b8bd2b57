// Completion of paths: files, folders, token pairs, models. Looks at the file system alone; never
// throws.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/recipe/complete.h"

namespace mtrain {

/// Files and folders.
std::vector<Candidate> complete_path(const std::string& typed);
/// Prefixes of .bin/.idx pairs, and folders.
std::vector<Candidate> complete_pair(const std::string& typed);
/// Folders of models, which are runs, their checkpoints and Hugging Face folders, and other
/// folders, for further completion.
std::vector<Candidate> complete_model(const std::string& typed);

/// Values after "key=" of a setting that names a file or folder; empty for another setting.
std::vector<Candidate> complete_path_setting(const FieldSpec& spec, const std::string& typed);
/// Whether a candidate is a path that cannot lead to a valid value.
bool is_dead_path(const FieldSpec& spec, const std::string& value);

}  // namespace mtrain
