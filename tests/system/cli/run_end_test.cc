// How a run ends if it cannot save its state, and that it ends at all: a state that is not
// finite, a disk that takes nothing, signals that come twice, a reader who has stopped reading.
#include <fcntl.h>

#include <algorithm>
#include <csignal>

#include "roots.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

Words command(const std::string& recipe, const fs::path& folder, const Words& words = {}) {
  return with({mtrain_binary(), "train", recipe, "run.dir=" + folder.string()}, words);
}

/// The checkpoints of a run, by name.
Words saved(const fs::path& folder) {
  Words out;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints", absent))
    if (entry.is_directory()) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

/// A pipe that takes nothing more and that nobody reads.
class FullPipe {
 public:
  FullPipe() {
    REQUIRE(::pipe2(ends_, O_NONBLOCK | O_CLOEXEC) == 0);
    const std::string lines(4096, '\n');
    while (::write(ends_[1], lines.data(), lines.size()) > 0) {
    }
  }
  ~FullPipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;
  /// For a shell, which opens it anew: writes to it wait.
  std::string path() const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(ends_[1]);
  }

 private:
  int ends_[2] = {-1, -1};
};

std::string quoted(const Words& words) {
  std::string out;
  for (const auto& word : words) out += "'" + word + "' ";
  return out;
}

}  // namespace

TEST_CASE("a state that is not finite is never saved, and no good checkpoint goes for it") {
  Scratch scratch("mtrain-end-finite");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const Words base = {"checkpoint.interval=2", "checkpoint.keep=2"};
  for (const Words& words : {Words{}, Words{"checkpoint.async=true"},
                             Words{"dist.nproc=2", "dist.zero=1", "dist.silence_seconds=120"}}) {
    CAPTURE(text(words));
    fs::path folder = scratch / ("run" + std::to_string(words.size()));
    train(recipe, folder, with(with(base, words), {"train.steps=6"}));
    const Words before = saved(folder);
    CHECK(before == Words{"step-4", "step-6"});
    // The first update of the second run makes every weight infinite.
    Outcome diverged = run_training(recipe, folder,
                                    with(with(base, words), {"train.steps=20", "optimizer.lr=1e300",
                                                             "train.on_nonfinite=skip"}));
    CHECK_MESSAGE(diverged.status == 14, diverged.err);
    CHECK_MESSAGE(has(diverged.err, "the state of step 8 is not saved: tensor '"), diverged.err);
    CHECK(saved(folder) == before);
    Outcome deep = cli({"checkpoint", "verify", folder.string(), "--deep"});
    CHECK_MESSAGE(deep.status == 0, deep.out);
    CHECK(run_training(recipe, folder, with(with(base, words), {"train.steps=8"})).status == 0);
  }
}

TEST_CASE("updates that are skipped in a row are bounded, and a finite one begins the count anew") {
  Scratch scratch("mtrain-end-skips");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  const Words skip = {"train.on_nonfinite=skip", "train.max_skips=3", "train.steps=9",
                      "checkpoint.interval=0"};
  Outcome always = run({.arguments = command(recipe, scratch / "always", skip),
                        .environment = {"MTRAIN_FAULT=train.loss:0:nan"}});
  CHECK_MESSAGE(always.status == 14, always.err);
  CHECK_MESSAGE(has(always.err, "at step 4 "), always.err);
  CHECK_MESSAGE(has(always.err, "the 3 updates before it were skipped"), always.err);
  CHECK_MESSAGE(has(always.err, "no checkpoint was saved"), always.err);
  CHECK(rows(scratch / "always").size() == 3);
  std::string faults = "MTRAIN_FAULT=train.loss:1:nan";
  for (int step : {2, 3, 5, 6, 7}) faults += ",train.loss:" + std::to_string(step) + ":nan";
  Outcome between =
      run({.arguments = command(recipe, scratch / "between", skip), .environment = {faults}});
  CHECK_MESSAGE(between.status == 0, between.err);
  // A nan that was computed has a sign, which says nothing.
  Outcome diverged =
      run_training(recipe, scratch / "diverged",
                   {"train.steps=5", "optimizer.lr=1e30", "scheduler.warmup_steps=0"});
  CHECK(diverged.status == 14);
  CHECK_MESSAGE(has(diverged.err, " nan at step "), diverged.err);
  // The message names what is kept.
  Outcome first = run({.arguments = command(recipe, scratch / "first"),
                       .environment = {"MTRAIN_FAULT=train.loss:1:nan"}});
  CHECK(first.status == 14);
  CHECK_MESSAGE(has(first.err, "no checkpoint was saved"), first.err);
  Outcome later = run({.arguments = command(recipe, scratch / "later"),
                       .environment = {"MTRAIN_FAULT=train.loss:7:nan"}});
  CHECK_MESSAGE(
      has(later.err, "the newest checkpoint is of step 5, and the same command continues from it"),
      later.err);
}

TEST_CASE("fp16 whose scale can fall no further ends as any other run does") {
  Scratch scratch("mtrain-end-scale");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  // Gradients overflow at this scale, which is also the least: nothing but the run is to blame.
  Outcome out = run_training(
      recipe, scratch / "run",
      {"mixed_precision.dtype=fp16", "mixed_precision.initial_loss_scale=16777216",
       "mixed_precision.min_loss_scale=16777216", "train.steps=6", "checkpoint.interval=0"});
  CHECK_MESSAGE(has(out.err, "non-finite gradient norm"), out.err);
  CHECK_MESSAGE(has(out.err, "lower mixed_precision.min_loss_scale"), out.err);
  CHECK_MESSAGE(out.status == 14, out.err);
  // A constant scale at which gradients overflow is named as a likely cause.
  out = run_training(recipe, scratch / "constant",
                     {"mixed_precision.dtype=fp16", "mixed_precision.loss_scale=1e9",
                      "train.steps=2", "checkpoint.interval=0"});
  CHECK_MESSAGE(out.status == 14, out.err);
  CHECK_MESSAGE(has(out.err, "help: the loss scale 1"), out.err);
  CHECK_MESSAGE(has(out.err, "lower mixed_precision.loss_scale, or set it to 0"), out.err);
}

TEST_CASE("a run whose last state is not saved ends with 18 and says why") {
  Scratch scratch("mtrain-end-unsaved");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  int number = 0;
  for (const auto& [fault, why] :
       {std::pair{"ckpt.shard.write:0:errno=ENOSPC", "No space left on device"},
        {"ckpt.p1:0:errno=EROFS", "Read-only file system"},
        {"ckpt.copy:0:errno=ENOMEM", "not enough memory"},
        {"ckpt.manifest.write:0:errno=EFBIG", "raise the limit (ulimit -f)"}}) {
    CAPTURE(std::string(fault));
    fs::path folder = scratch / std::to_string(number++);
    Outcome out = run({.arguments = command(recipe, folder, {"train.steps=6"}),
                       .environment = {std::string("MTRAIN_FAULT=") + fault}});
    CHECK_MESSAGE(out.status == 18, out.err);
    CHECK_MESSAGE(has(out.err, "the last state of the run, of step 6, is not saved"), out.err);
    CHECK_MESSAGE(has(out.err, why), out.err);
    CHECK_MESSAGE(has(out.err, "no checkpoint was saved"), out.err);
    CHECK_FALSE(has(out.out, "done: "));
    CHECK(saved(folder).empty());
  }
  // What was saved before is named, and the same command continues from it.
  Outcome late =
      run({.arguments = command(recipe, scratch / "late", {"train.steps=7"}),
           .environment = {"MTRAIN_FAULT=ckpt.p2:2:errno=ENOSPC,ckpt.p2:3:errno=ENOSPC"}});
  CHECK_MESSAGE(late.status == 18, late.err);
  CHECK_MESSAGE(has(late.err, "the newest checkpoint is of step 5"), late.err);
  CHECK(run({.arguments = command(recipe, scratch / "late", {"train.steps=7"})}).status == 0);
  // A folder that somebody removes; a stop that cannot save; several ranks.
  Outcome removed =
      run({.arguments = command(recipe, scratch / "removed"),
           .environment = {"MTRAIN_FAULT=train.step:37:stop"},
           .while_stopped = [&](pid_t) { fs::remove_all(scratch / "removed" / "checkpoints"); }});
  CHECK_MESSAGE(removed.status == 18, removed.err);
  Outcome stopped = run({.arguments = command(recipe, scratch / "stopped"),
                         .environment = {"MTRAIN_FAULT=train.step:7:stop,ckpt.p2:0:errno=ENOSPC"},
                         .while_stopped = [](pid_t pid) { ::kill(pid, SIGTERM); }});
  CHECK_MESSAGE(stopped.status == 18, stopped.err);
  Outcome ranks = run({.arguments = command(recipe, scratch / "ranks",
                                            {"dist.nproc=2", "dist.zero=1", "train.steps=6",
                                             "dist.silence_seconds=120"}),
                       .environment = {"MTRAIN_FAULT=ckpt.shard.write:0:errno=ENOSPC"}});
  CHECK_MESSAGE(ranks.status == 18, ranks.err);
}

TEST_CASE("a folder that takes no file is reported before the first step") {
  Scratch scratch("mtrain-end-probe");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  for (const char* fault : {"ckpt.probe.open:1:errno=EROFS", "ckpt.probe.write:1:errno=ENOSPC",
                            "ckpt.probe.fsync:1:errno=EIO"}) {
    CAPTURE(std::string(fault));
    fs::path folder = scratch / fault;
    Outcome out = run({.arguments = command(recipe, folder),
                       .environment = {std::string("MTRAIN_FAULT=") + fault}});
    CHECK_MESSAGE(out.status == 18, out.err);
    CHECK_MESSAGE(has(out.err, "training does not start"), out.err);
    CHECK(rows(folder).empty());
  }
  train(recipe, scratch / "over", {"train.steps=6"});  // has nothing to save
  Outcome over = run({.arguments = command(recipe, scratch / "over", {"train.steps=6"}),
                      .environment = {"MTRAIN_FAULT=ckpt.probe.open:1:errno=EROFS"}});
  CHECK_MESSAGE(over.status == 0, over.err);
}

TEST_CASE("a signal that comes twice, and a terminal that closes: the save is not lost") {
  Scratch scratch("mtrain-end-signals");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  train(recipe, scratch / "whole", {});
  ::signal(SIGHUP, SIG_DFL);  // whatever started this test
  for (int signal : {SIGTERM, SIGHUP, SIGUSR1}) {
    CAPTURE(signal);
    fs::path folder = scratch / std::to_string(signal);
    // The second one comes while the save that the first asked for is under way.
    Outcome out =
        run({.arguments = command(recipe, folder),
             .environment = {"MTRAIN_FAULT=train.step:7:stop,ckpt.p3:2:stop,ckpt.p7:2:stop"},
             .while_stopped = [signal](pid_t pid) { ::kill(pid, signal); }});
    CHECK_MESSAGE(out.status == 128 + signal, out.err);
    CHECK(cli({"checkpoint", "verify", folder.string()}).status == 0);
    CHECK_MESSAGE(saved(folder).size() >= 2, text(saved(folder)));
    train(recipe, folder, {});
    CHECK(digest(folder) == digest(scratch / "whole"));
  }
}

TEST_CASE("under nohup a terminal that closes stops nothing") {
  Scratch scratch("mtrain-end-nohup");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  Outcome out = run({.arguments = {"/bin/sh", "-c",
                                   "trap '' HUP; exec " + quoted(command(recipe, scratch / "run"))},
                     .environment = {"MTRAIN_FAULT=train.step:7:stop"},
                     .while_stopped = [](pid_t pid) { ::kill(pid, SIGHUP); }});
  CHECK_MESSAGE(out.status == 0, out.err);
  CHECK(fs::exists(scratch / "run" / "checkpoints" / "step-40"));
}

TEST_CASE("nobody reads standard output and standard error: the run goes on and ends") {
  Scratch scratch("mtrain-end-reader");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  FullPipe pipe;
  auto into_pipe = [&](const Words& words) {
    return run(
        {.arguments = {"/bin/sh", "-c", "exec " + quoted(words) + " > " + pipe.path() + " 2>&1"}});
  };
  CHECK(into_pipe(command(recipe, scratch / "run", {"logger.interval=1"})).status == 0);
  CHECK(fs::exists(scratch / "run" / "checkpoints" / "step-40"));
  CHECK(into_pipe(command(recipe, scratch / "ranks", {"dist.nproc=2", "dist.silence_seconds=120"}))
            .status == 0);
  // Errors, too.
  CHECK(into_pipe(command(recipe, scratch / "none", {"checkpoint.resume=must"})).status == 12);
  CHECK(into_pipe(command(recipe, scratch / "none", {"model.layers=-1"})).status == 10);
}

TEST_CASE("a limit of file sizes is an error that names the file, not a signal") {
  Scratch scratch("mtrain-end-limit");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  Outcome out = run({.arguments = {"/bin/sh", "-c",
                                   "ulimit -f 200; exec " + quoted(command(recipe, scratch / "run",
                                                                           {"train.steps=6"}))}});
  CHECK_MESSAGE(out.status == 18, out.err);
  CHECK_MESSAGE(has(out.err, "File too large"), out.err);
  CHECK_MESSAGE(has(out.err, "raise the limit (ulimit -f)"), out.err);
}

#if defined(__x86_64__)  // elsewhere there is one level
TEST_CASE(
    "a run that goes on at another instruction-set level says so, and is refused where it is to be "
    "deterministic") {
  Scratch scratch("mtrain-end-level");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe());
  auto go = [&](const char* level, const Words& words) {
    return run({.arguments = command(recipe, scratch / "run", words),
                .environment = {std::string("MTRAIN_ISA=") + level}});
  };
  REQUIRE(go("base", {"train.steps=6"}).status == 0);
  Outcome refused = go("", {"train.steps=8", "run.deterministic=true"});
  CHECK_MESSAGE(refused.status == 12, refused.err);
  CHECK_MESSAGE(has(refused.err, "cpu, level base"), refused.err);
  CHECK_MESSAGE(has(refused.err, "set MTRAIN_ISA=base in the environment"), refused.err);
  Outcome same = go("base", {"train.steps=8", "run.deterministic=true"});
  CHECK_MESSAGE(same.status == 0, same.err);
  CHECK_FALSE(has(same.err, "arithmetic"));
  Outcome warned = go("", {"train.steps=10"});
  CHECK_MESSAGE(warned.status == 0, warned.err);
  CHECK_MESSAGE(has(warned.err, "arithmetic: cpu, level base -> cpu, level v"), warned.err);
}

TEST_CASE(
    "ranks at different instruction-set levels: a deterministic run warns once, and continues what "
    "it saved") {
  Scratch scratch("mtrain-end-mixed");
  std::string recipe = scratch.write("tiny.yaml", tiny_recipe()),
              start_tcp = (source_root() / "tests/contract/comm/start_tcp_ranks.sh").string();
  std::string mixed = "if [ $RANK = 1 ]; then export MTRAIN_ISA=base; fi; exec \"$0\" \"$@\"";
  for (const char* steps : {"train.steps=2", "train.steps=4"}) {
    Words words = {start_tcp, "-n", "2", "/bin/sh", "-c", mixed};
    Words train = command(
        recipe, scratch / "run",
        {"run.deterministic=true", "dist.silence_seconds=120", "scheduler.warmup_steps=1", steps});
    Outcome out = run({.arguments = with(words, train)});
    CHECK_MESSAGE(out.status == 0, out.err);
    size_t at = out.err.find("cpu, level base: rank 1\n");
    CHECK_MESSAGE(at != std::string::npos, out.err);
    CHECK_MESSAGE(out.err.find("cpu, level base: rank 1\n", at + 1) == std::string::npos, out.err);
  }
}
#endif
