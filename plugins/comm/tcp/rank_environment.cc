#include "rank_environment.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"

namespace mtrain::tcp {

namespace {

constexpr int kDefaultPort = 29500;  // torchrun's
constexpr int kMostRanks = 1 << 20, kMostPort = 65535;

int number_of(std::initializer_list<const char*> variables, int otherwise, int most) {
  for (const char* name : variables) {
    const char* text = std::getenv(name);
    if (!text) continue;
    int value = -1;
    auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
    MT_USER_CHECK(
        error == std::errc() && *end == '\0' && value >= 0 && value <= most, ErrorClass::config,
        cat(name, " is '", printable(text, 40), "', but a number up to ", most, " is required"),
        "check how the launcher was called");
    return value;
  }
  return otherwise;
}

/// The variables of torchrun and Slurm.
bool on_one_machine(int size) {
  if (number_of({"LOCAL_WORLD_SIZE"}, 0, kMostRanks) == size) return true;
  return std::getenv("SLURM_PROCID") &&
         number_of({"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}, 0, kMostRanks) == 1;
}

}  // namespace

bool RankEnvironment::here_only() const {
  return one_machine || address == "localhost" || address == "::1" || address.starts_with("127.");
}

RankEnvironment rank_environment() {
  RankEnvironment environment{
      .rank = number_of({"RANK", "SLURM_PROCID"}, 0, kMostRanks),
      .size = number_of({"WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1, kMostRanks),
      .address = {},
      .port = number_of({"MASTER_PORT"}, kDefaultPort, kMostPort - 1),
      .job = {},
      .secret = {}};
  MT_USER_CHECK(environment.size >= 1 && environment.rank < environment.size, ErrorClass::config,
                cat("the rank is ", environment.rank, ", but the job has ",
                    counted(environment.size, "rank"), ", numbered from 0"),
                "check how RANK and WORLD_SIZE are set");
  if (environment.size == 1) return environment;
  const char* address = std::getenv("MASTER_ADDR");
  MT_USER_CHECK(
      address && *address, ErrorClass::config,
      cat("rank ", environment.rank, " of ", environment.size,
          " does not know the address of the first rank"),
      "set MASTER_ADDR to the name or address of the first rank's machine, as torchrun does");
  environment.address = address;
  // torchrun listens on MASTER_PORT itself.
  if (const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
      agent && std::string_view(agent) == "True")
    ++environment.port;
  for (const char* name : {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"})
    if (const char* word = std::getenv(name); word && environment.job.empty())
      environment.job = word;
  environment.one_machine = on_one_machine(environment.size);
  environment.secret = find_secret(environment.here_only());
  return environment;
}

}  // namespace mtrain::tcp
