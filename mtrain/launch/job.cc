#include "mtrain/launch/job.h"

#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "mtrain/base/counted.h"
#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/base/text_stream.h"
#include "mtrain/comm/launcher.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/launch/dtype_choice.h"
#include "mtrain/launch/job_identity.h"
#include "mtrain/recipe/epochs.h"

namespace mtrain {
namespace {

/// Ends the process at once, since its rank may be blocked anywhere. The launcher then ends the
/// rest of the job, so a rank that does not report the error waits a moment for the rank that
/// reports it.
void end_process(const Error& error, bool reports, const std::function<void()>& before_exit) {
  set_log_level(LogLevel::error);  // suppresses warnings about the launcher's signals
  if (reports)
    log_error(error.message(), error.hint().empty() ? "" : cat("\n  help: ", error.hint()));
  std::this_thread::sleep_for(std::chrono::milliseconds(reports ? 250 : 200));
  flush_standard_error();
  if (before_exit) before_exit();
  _exit(error.exit_status());
}

CommContext comm_context(const DistSection& dist, const std::function<void()>& before_exit) {
  return {
      .timeout = std::chrono::milliseconds(static_cast<int64_t>(dist.timeout_minutes * 60000)),
      .watch = {
          .silence = std::chrono::milliseconds(static_cast<int64_t>(dist.silence_seconds * 1000)),
          .give_up = [before_exit](const Error& error,
                                   bool reports) { end_process(error, reports, before_exit); },
          .note = [](const std::string& text) { log_warn(text); }}};
}

/// If a launcher has started several processes but dist.comm does not connect them, each would run
/// the whole job in the same folder.
void require_no_launcher() {
  if (int64_t ranks = launched_ranks(); ranks > 1)
    throw Error(ErrorClass::config,
                cat("a launcher started ", counted(ranks, "rank"),
                    ", but dist.comm does not connect processes"),
                cat("set dist.comm=", host_comm(), " dist.nproc=", ranks));
}

/// A communicator for device memory needs a host communicator. NCCL reads its options from the
/// environment. If left to choose, it takes algorithms that do not add in a fixed order.
std::unique_ptr<Communicator> make_world(const DistSection& dist, bool deterministic,
                                         PluginHost& plugins,
                                         const std::function<void()>& before_exit) {
  CommContext context = comm_context(dist, before_exit);
  if (!plugins.load(Communicator::kKind, *dist.comm).schema.device_memory)
    return plugins.make<Communicator>(*dist.comm, Node::map(), context);
  const std::string algorithms =
      dist.nccl_algo.empty() && deterministic ? "Ring" : join(dist.nccl_algo, ",");
  if (!algorithms.empty()) ::setenv("NCCL_ALGO", algorithms.c_str(), 1);
  CommContext host = comm_context(dist, before_exit);
  context.host = dist.nproc == 1 && launched_ranks() <= 1
                     ? make_self_communicator()
                     : plugins.make<Communicator>(host_comm(), Node::map(), host);
  return plugins.make<Communicator>(*dist.comm, Node::map(), context);
}

/// True if the error is that of another rank, which reports it itself (peer_error in failure.h).
bool is_reported_elsewhere(const Error& error) {
  return error.error_class() == ErrorClass::peer && error.hint().starts_with("see what rank ");
}

/// On a failure, aborts the communicator before it is destroyed: otherwise the other ranks would
/// wait for this one. The abort may end the process, so the error is logged first.
void run_launched(Recipe& recipe, PluginHost& plugins,
                  const std::function<void(Communicator&)>& rank,
                  const std::function<void()>& before_exit) {
  const DistSection& dist = recipe.settings.dist;
  std::unique_ptr<Communicator> world =
      make_world(dist, recipe.settings.run.deterministic, plugins, before_exit);
  bool reports = true;
  try {
    MT_USER_CHECK(
        world->size() == dist.nproc, ErrorClass::config,
        cat(counted(world->size(), "rank"), world->size() == 1 ? " was" : " were",
            " started, but dist.nproc is ", dist.nproc),
        cat("set dist.nproc=", world->size(), ", or start ", counted(dist.nproc, "rank"),
            ": mtrain --nproc ", dist.nproc, " …, or mpirun -n ", dist.nproc, " mtrain …"));
    std::string differences = identity_differences(*world, job_identity(recipe, plugins));
    reports = differences.empty() || world->rank() == 0;
    if (!reports) world->barrier();  // rank 0 reports all differences; wait until it has done so
    MT_USER_CHECK(differences.empty(), ErrorClass::config,
                  cat("the ranks of this job differ:", differences),
                  "start all ranks with the same command line, and give them the same files and "
                  "the same installation of mtrain; ${now:…} and ${oc.env:…} may differ by rank: "
                  "write the value");
    resolve_dtype(recipe, plugins, *world);
    resolve_epochs(recipe, plugins, *world);
    rank(*world);
  } catch (const Error& error) {
    if (reports && !is_reported_elsewhere(error))
      log_error("rank ", world->rank(), ": ", error.message(),
                error.hint().empty() ? "" : cat("\n  help: ", error.hint()));
    if (before_exit) before_exit();
    world->abort(error.message(), error.error_class());
    throw;
  } catch (const std::exception& error) {
    log_error("rank ", world->rank(), ": ", error.what());
    if (before_exit) before_exit();
    world->abort(error.what(), ErrorClass::bug);
    throw;
  }
}

}  // namespace

void run_job(Recipe& recipe, PluginHost& plugins, const std::function<void(Communicator&)>& rank,
             const std::function<void()>& before_exit) {
  const DistSection& dist = recipe.settings.dist;
  if (dist.comm && *dist.comm != "thread") return run_launched(recipe, plugins, rank, before_exit);
  require_no_launcher();
  resolve_dtype(recipe, plugins);
  resolve_epochs(recipe, plugins);
  if (dist.nproc == 1) return rank(*make_self_communicator());
  run_ranks(static_cast<int>(dist.nproc), rank, comm_context(dist, before_exit));
}

}  // namespace mtrain
