// JobIdentity: what the ranks of a job must have alike to compute the same thing — the resolved
// recipe, the program and its plugins — as short texts that can be compared over ranks before
// anything is built. Values; thread-safe.
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
      builds;  // "executable", "plugin model/llama": which build it is
};

/// That of this process: the builds are the linker's ids of the code that is loaded or about to be,
/// or hashes of the files.
MT_API JobIdentity job_identity(const Recipe& recipe, const PluginHost& plugins);

/// Collective: empty on every rank when all have the same; otherwise, on every rank, a line for
/// each rank that differs from the first, with its machine and in what.
MT_API std::string identity_differences(Communicator& ranks, const JobIdentity& mine);

}  // namespace mtrain
