// JobIdentity: the inputs that must be equal on all ranks of a job: the resolved recipe, the
// program and its plugins. Stored as texts that are compared over ranks before anything is built.
// Values; safe from any thread.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

struct JobIdentity {
  std::string recipe;  // resolved, as YAML
  std::vector<std::pair<std::string, std::string>>
      builds;  // {"executable" or "plugin model/llama", the id of its build}
};

/// The identity of this process. Build ids are the linker's ids of the code that is loaded or will
/// be, or hashes of the files.
MT_API JobIdentity job_identity(const Recipe& recipe, const PluginHost& plugins);

/// Collective, with the same result on every rank: empty when all identities are equal; otherwise
/// one line for each rank that differs from rank 0, with its machine and the difference.
MT_API std::string identity_differences(Communicator& ranks, const JobIdentity& mine);

}  // namespace mtrain
