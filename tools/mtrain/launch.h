// `mtrain --nproc N RECIPE …`: the ranks of a job as processes of this machine, started by this
// program (local_ranks.h), or through mpirun where dist.comm is mpi, with the words of this command
// line. Single-threaded.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// The command that starts `nproc` ranks: mpirun with what it needs on this machine, then this
/// program with `words` (the command line without --nproc) and the settings of such a job. `mpirun`
/// is the launcher's path and `version` what it prints for --version; `cores` are physical ones.
std::vector<std::string> launch_command(const std::string& mpirun, const std::string& version,
                                        int64_t nproc, int cores, bool as_root,
                                        const std::vector<std::string>& words);

/// Runs the job and returns its exit status: that of its ranks; 15 where a rank was killed, 128 +
/// the signal where this process was asked to stop by one. SIGINT, SIGTERM, SIGHUP and SIGUSR1 make
/// the ranks save and stop; a SIGINT a second later ends them. `comm`: the recipe's dist.comm.
/// Throws Error(usage) where that is mpi and there is no mpirun.
int launch_ranks(const Cli& cli, int64_t nproc, const std::optional<std::string>& comm);

/// The same for a recipe, whose faults are reported once, here, and not by every rank. `cli` has
/// the words that its ranks get. Throws Error(usage) where the recipe makes ranks threads.
int launch_recipe(const Cli& cli, RecipeRequest request, int64_t nproc);

/// The first of these programs in the PATH; empty when there is none.
std::string find_program(const std::vector<std::string>& names);
/// mpirun of MTRAIN_MPIRUN or of the PATH; empty when there is none.
std::string find_mpirun();
/// The first lines that a program prints for --version.
std::string version_of(const std::string& program);

}  // namespace mtrain
