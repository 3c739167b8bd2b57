// `mtrain --nproc N RECIPE …`: the ranks of a job as processes of this machine, started by this
// program (local_ranks.h), or through mpirun if dist.comm is mpi, with the arguments of this
// command line. Single-threaded.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// The command that starts `nproc` ranks: mpirun with its options for this machine, then this
/// program with `words` (a command line for take_rank_words) and the settings of such a job.
/// `mpirun` is the launcher's path, `version` its output for --version, `cores` the number of
/// physical cores.
std::vector<std::string> launch_command(const std::string& mpirun, const std::string& version,
                                        int64_t nproc, int cores, bool as_root,
                                        const std::vector<std::string>& words);

/// For a rank that this program started: removes from its command line what says so, and --nproc;
/// returns the words that the user typed, without the settings of the launcher. Else returns the
/// command line.
std::vector<std::string> take_rank_words(std::vector<std::string>& arguments);

/// Runs the job and returns its exit status: that of its ranks; 15 if a rank was killed, 128 + the
/// signal if a signal asked this process to stop. SIGINT, SIGTERM, SIGHUP and SIGUSR1 make the
/// ranks save and stop; a SIGINT a second later ends them. `comm`: the recipe's dist.comm. Throws
/// Error(usage) if that is mpi and there is no mpirun.
int launch_ranks(const Cli& cli, int64_t nproc, const std::optional<std::string>& comm);

/// The same for a recipe, whose errors are reported once, here, instead of by every rank. `cli` has
/// the arguments for the ranks. Throws Error(usage) if the recipe's ranks are threads.
int launch_recipe(const Cli& cli, RecipeRequest request, int64_t nproc);

/// The first of these programs in the PATH; empty when there is none.
std::string find_program(const std::vector<std::string>& names);
/// mpirun of MTRAIN_MPIRUN or of the PATH; empty when there is none.
std::string find_mpirun();
/// The first lines that a program prints for --version.
std::string version_of(const std::string& program);

}  // namespace mtrain
