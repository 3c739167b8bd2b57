#include "mtrain/train/launcher.h"

#include <algorithm>
#include <cstdlib>

namespace mtrain {

int64_t launched_ranks() {
  auto number = [](const char* variable) -> int64_t {
    const char* text = std::getenv(variable);
    return text ? std::atoll(text) : 0;
  };
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (int64_t ranks = number(variable); ranks > 0) return ranks;
  // srun --mpi=pmix says the number only in Slurm's own words, which a batch script has as well: there nobody
  // is a PMIx rank.
  if (std::getenv("PMIX_RANK")) return std::max<int64_t>(1, number("SLURM_STEP_NUM_TASKS"));
  return 1;
}

}  // namespace mtrain
