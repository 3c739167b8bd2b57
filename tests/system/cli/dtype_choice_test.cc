// mixed_precision.dtype=auto on a backend that gives either answer
// (tests/fixtures/plugins/walled_backend.cc): what a run takes and says, what it keeps when it goes
// on where the answer is another one, and what other commands make of it.
#include "roots.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

const std::string kChoicePlugins =
    "MTRAIN_PLUGIN_PATH=" + (build_root() / "tests/plugins").string();
const Words kFast = {kChoicePlugins, "WALLED_BF16=fast"},
            kSlow = {kChoicePlugins, "WALLED_BF16=slow"};

std::string choice_recipe(const std::string& precision) {
  return quant_recipe(
      "type: llama, layers: 2, hidden_size: 32, heads: 4, kv_heads: 2, ffn_hidden_size: 64, "
      "seq_length: 16",
      "train: {steps: 2, micro_batch_size: 1, global_batch_size: 2}\n"
      "optimizer: {lr: 2e-3}\n"
      "scheduler: {warmup_steps: 0}\n"
      "checkpoint: {interval: 1}\n"
      "dist: {backend: walled}\n"
      "profiling: {peak_tflops: 1}\n"  // measuring it behind the wall takes seconds
      "mixed_precision: {" +
          precision + "}\n");
}

std::string run_dir(const fs::path& folder) { return "run.dir=" + folder.string(); }

/// A run with its console, which has to end well.
Outcome trained(const std::string& recipe, const fs::path& folder, const Words& environment,
                const Words& words = {}) {
  Outcome out = cli(with({recipe, run_dir(folder)}, words), environment);
  REQUIRE_MESSAGE(out.status == 0, out.err);
  return out;
}

/// mixed_precision.dtype as the run's folder records it.
std::string recorded(const fs::path& folder) {
  std::istringstream resolved(slurp(folder / "config/resolved.yaml"));
  bool inside = false;
  for (std::string line; std::getline(resolved, line);) {
    if (!line.starts_with(" ")) inside = line.starts_with("mixed_precision:");
    if (inside && line.starts_with("  dtype: ")) return line.substr(9);
  }
  return "";
}

}  // namespace

TEST_CASE(
    "auto uses the backend's faster type: the same bits as naming it, and the head line says "
    "why") {
  Scratch scratch("mtrain-auto-answers");
  std::string recipe = scratch.write("auto.yaml", choice_recipe("dtype: auto"));
  for (const auto& [environment, dtype, reason] :
       {std::tuple{kFast, "bf16", "the wall has bf16 arithmetic"},
        {kSlow, "fp32", "the wall has no bf16 arithmetic"}}) {
    CAPTURE(std::string(dtype));
    fs::path own = scratch / (std::string("auto-") + dtype), named = scratch / dtype;
    Outcome out = trained(recipe, own, environment);
    std::string head =
        std::string("parameters, ") + dtype + " on a walled device (auto: " + reason + ")\n";
    CHECK_MESSAGE(has(out.out, head), out.out);
    CHECK(recorded(own) == dtype);
    CHECK(has(slurp(own / "config/recipe.yaml"), "dtype: auto"));
    std::string provenance = slurp(own / "config/provenance.json");
    CHECK_MESSAGE(has(provenance, std::string("auto: ") + reason), provenance);
    Outcome plain =
        trained(recipe, named, environment, {std::string("mixed_precision.dtype=") + dtype});
    CHECK_FALSE(has(plain.out, "(auto"));
    CHECK(digest(own) == digest(named));
  }
  CHECK(digest(scratch / "auto-bf16") != digest(scratch / "auto-fp32"));
}

TEST_CASE("a run that goes on keeps its type where the backend gives another answer, and says so") {
  Scratch scratch("mtrain-auto-resume");
  std::string recipe = scratch.write("auto.yaml", choice_recipe("dtype: auto"));
  trained(recipe, scratch / "whole", kSlow);
  std::string whole = digest(scratch / "whole");
  trained(recipe, scratch / "run", kSlow);
  forget_checkpoint(scratch / "run", 2);
  Outcome on = trained(recipe, scratch / "run", kFast);
  CHECK_MESSAGE(has(on.out, "fp32 on a walled device (auto: the dtype in which this run began)"),
                on.out);
  CHECK_MESSAGE(
      has(on.err,
          "fp32, the dtype in which this run began; auto would choose bf16 on this machine"),
      on.err);
  CHECK_FALSE(has(on.err, "resuming with changed settings"));
  CHECK(recorded(scratch / "run") == "fp32");
  CHECK(digest(scratch / "run") == whole);
  // And again, from the checkpoint of the run that kept it; `check` says the same.
  forget_checkpoint(scratch / "run", 2);
  Outcome check = cli({"check", "--memory", recipe, run_dir(scratch / "run")}, kFast);
  CHECK_MESSAGE(has(check.out, "fp32 (auto: the dtype in which this run began)"),
                check.out << check.err);
  Outcome again = trained(recipe, scratch / "run", kFast);
  CHECK(has(again.out, "fp32 on a walled device (auto: the dtype in which this run began)"));
  // The user's own choice is taken, and called a change.
  forget_checkpoint(scratch / "run", 2);
  Outcome own = trained(recipe, scratch / "run", kSlow, {"mixed_precision.dtype=bf16"});
  CHECK(has(own.out, "bf16 on a walled device\n"));
  CHECK_MESSAGE(has(own.err, "mixed_precision.dtype: fp32 -> bf16"), own.err);
  CHECK_FALSE(has(own.err, "the dtype in which this run began"));
}

TEST_CASE(
    "generate, eval and rerun take the run's type where the backend gives another answer, and say "
    "so") {
  Scratch scratch("mtrain-auto-later");
  std::string recipe = scratch.write("auto.yaml", choice_recipe("dtype: auto"));
  trained(recipe, scratch / "run", kSlow);
  std::string note =
                  "mixed_precision.dtype: fp32, the dtype in which this run began; auto would "
                  "choose bf16 on this machine",
              run = (scratch / "run").string();
  auto both = [&](const Words& words) {
    CAPTURE(text(words));
    Outcome there = cli(words, kSlow), here = cli(words, kFast);
    CHECK_MESSAGE(there.status == 0, there.err);
    CHECK_MESSAGE(here.status == 0, here.err);
    CHECK_FALSE(has(there.err, "the dtype in which this run began"));
    CHECK_MESSAGE(has(here.err, note), here.err);
    return std::pair{there.out, here.out};
  };
  auto [text_there, text_here] =
      both({"generate", "--from", run, "--prompt", "a", "--max-tokens", "8", "--temperature", "0"});
  CHECK(text_there == text_here);
  auto [eval_there, eval_here] = both({"eval", "--from", run, "--batches", "1", "--json"});
  CHECK(Json::parse(eval_there).at("loss") == Json::parse(eval_here).at("loss"));
  Outcome again = cli({"rerun", run, run_dir(scratch / "again")}, kFast);
  REQUIRE_MESSAGE(again.status == 0, again.err);
  CHECK_MESSAGE(has(again.err, note), again.err);
  CHECK(digest(scratch / "again") == digest(scratch / "run"));
  // With an explicit type nothing is logged; auto is resolved again.
  Outcome own = cli({"rerun", run, run_dir(scratch / "own"), "mixed_precision.dtype=bf16"}, kFast);
  CHECK_FALSE(has(own.err, "the dtype in which this run began"));
  Outcome anew =
      cli({"rerun", run, run_dir(scratch / "anew"), "mixed_precision.dtype=auto"}, kFast);
  CHECK_MESSAGE(has(anew.out, "bf16 on a walled device (auto: the wall has bf16 arithmetic)"),
                anew.out << anew.err);
}

TEST_CASE("FP8 and FP4 have auto take bf16, whatever the backend says") {
  Scratch scratch("mtrain-auto-fp8");
  std::string recipe = scratch.write("auto.yaml", choice_recipe("dtype: auto, fp8: hybrid"));
  Outcome out = trained(recipe, scratch / "run", kSlow);
  CHECK_MESSAGE(
      has(out.out,
          "bf16 on a walled device (auto: everything except the FP8 matrix products is computed in "
          "bf16)"),
      out.out);
  CHECK(recorded(scratch / "run") == "bf16");
  Outcome four =
      cli({"check", "--memory", recipe, "mixed_precision.fp8=none", "mixed_precision.fp4=nvfp4"},
          kSlow);
  CHECK_MESSAGE(
      has(four.out, "bf16 (auto: everything except the FP4 matrix products is computed in bf16)"),
      four.out << four.err);
  // A run that began in fp32 and goes on with FP8 products cannot keep its type.
  trained(recipe, scratch / "plain", kSlow, {"mixed_precision.fp8=none"});
  CHECK(recorded(scratch / "plain") == "fp32");
  forget_checkpoint(scratch / "plain", 2);
  trained(recipe, scratch / "plain", kSlow);
  CHECK(recorded(scratch / "plain") == "bf16");
}

TEST_CASE("check, config, bench and verify with auto") {
  Scratch scratch("mtrain-auto-commands");
  std::string recipe = scratch.write("auto.yaml", choice_recipe("dtype: auto"));
  Outcome check = cli({"check", recipe}, kSlow);  // runs no plugin code
  CHECK_MESSAGE(has(check.out, "bf16 or fp32 (auto: backend walled decides when a run starts)"),
                check.out << check.err);
  for (const auto& [environment, dtype] : {std::pair{kFast, "bf16"}, {kSlow, "fp32"}}) {
    Outcome memory = cli({"check", "--memory", recipe}, environment);
    CHECK_MESSAGE(has(memory.out, std::string(", ") + dtype + " (auto: the wall has"),
                  memory.out << memory.err);
    Outcome bench =
        cli({"bench", recipe, "--steps", "1", "--warmup", "1", "--plain", "--json"}, environment);
    REQUIRE_MESSAGE(bench.status == 0, bench.err);
    CHECK(Json::parse(bench.out).at("dtype") == dtype);
    Outcome verify = cli(
        {"verify", "layouts", recipe, "--ranks", "2", "--only", "dp2 !zero1 !zero2 !zero3 !full",
         "--steps", "1", "--certificate", (scratch / dtype).string()},
        environment);
    REQUIRE_MESSAGE(verify.status == 0, verify.out << verify.err);
    std::string certificate = Json::parse(slurp(scratch / dtype)).dump();
    CHECK_MESSAGE(has(certificate, std::string("\"dtype\":\"") + dtype + "\""), certificate);
  }
  Outcome show = cli({"config", "show", recipe}, kSlow);
  CHECK_MESSAGE(has(show.out, "dtype: auto"), show.out);
  Outcome resolved = cli({"check", "--resolved", recipe}, kSlow);
  CHECK_MESSAGE(has(resolved.out, "dtype: auto"), resolved.out);
  // On the CPU check asks, and says what a run says.
  Outcome cpu = cli({"check", recipe, "dist.backend=cpu"}, kSlow);
  Outcome run = trained(recipe, scratch / "cpu", kSlow, {"dist.backend=cpu"});
  size_t at = cpu.out.find(" (auto: "), end = cpu.out.find(')', at);
  REQUIRE_MESSAGE(at != std::string::npos, cpu.out << cpu.err);
  CHECK_MESSAGE(has(run.out, " on cpu" + cpu.out.substr(at, end + 1 - at)), run.out);
  CHECK(has(cpu.out, ", " + recorded(scratch / "cpu") + " (auto: "));
  CHECK_FALSE(has(run.err, "slower than"));
}

TEST_CASE("all ranks take the first one's type, whatever their own machine would take") {
  Scratch scratch("mtrain-auto-ranks");
  std::string recipe = scratch.write("auto.yaml", choice_recipe("dtype: auto")),
              start_tcp = (source_root() / "tests/contract/comm/start_tcp_ranks.sh").string();
  trained(recipe, scratch / "threads", kSlow, {"dist.nproc=2"});
  CHECK(recorded(scratch / "threads") == "fp32");
  std::string unlike =
      "if [ $RANK = 0 ]; then export WALLED_BF16=slow; else export WALLED_BF16=fast; fi; exec "
      "\"$0\" \"$@\"";
  Outcome results = run({.arguments = {start_tcp, "-n", "2", "/bin/sh", "-c", unlike,
                                       mtrain_binary(), recipe, run_dir(scratch / "results")},
                         .environment = {kChoicePlugins}});
  REQUIRE_MESSAGE(results.status == 0, results.err);
  CHECK_MESSAGE(
      has(results.out,
          "fp32 on 2 ranks (tcp), each a walled device (auto: the wall has no bf16 arithmetic)"),
      results.out);
  CHECK(digest(scratch / "results") == digest(scratch / "threads"));
}
