// mtrain checkpoint: lists, verifies and hashes checkpoints, and rewinds a run to an older one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/digest.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/record/run_history.h"
#include "mtrain/record/run_summary.h"
#include "mtrain/record/saved_config.h"
#include "mtrain/train/hf_export.h"

namespace mtrain {
namespace {

constexpr const char* kFolderHelp = "a run's folder, its checkpoints folder, or one step-N folder";

/// The checkpoints that a path stands for: the folder of one step stands for that step. `best`: the
/// one of the lowest validation loss, if it is asked for and known.
std::vector<CheckpointInfo> checkpoints_at(const fs::path& path,
                                           std::optional<BestCheckpoint>* best = nullptr) {
  CheckpointPlace place = checkpoints_of(path);
  std::vector<CheckpointInfo> out = CheckpointStore(place.folder).list();
  if (best) *best = best_checkpoint(place.folder, out);
  std::erase_if(out, [&](const CheckpointInfo& i) { return place.step && i.step != *place.step; });
  if (out.empty())
    throw Error(ErrorClass::checkpoint,
                cat(printable(place.folder.string()), ": holds no checkpoints"),
                "a run saves them every checkpoint.interval steps");
  return out;
}

void print_checkpoints_text(const std::vector<CheckpointInfo>& infos,
                            const std::optional<BestCheckpoint>& best) {
  auto padded = [](std::string text, size_t width) {
    text.resize(std::max(width, text.size()), ' ');
    return text + "  ";
  };
  std::cout << padded("step", 10) << padded("time", 20) << padded("size", 10)
            << padded("tensors", 7) << "complete\n";
  for (const auto& info : infos) {
    bool known = info.problem.empty();
    std::cout << padded(std::to_string(info.step), 10) << padded(known ? info.created : "-", 20)
              << padded(known ? human_bytes(info.bytes) : "-", 10)
              << padded(known ? std::to_string(info.num_tensors) : "-", 7)
              << (known ? "yes" : (info.unknown ? "unknown: " : "NO: ") + info.problem)
              << (best && best->step == info.step
                      ? fmt::format(", the lowest validation loss: {:.4f}", best->loss)
                      : "")
              << '\n';
  }
}

void print_checkpoints_json(const std::vector<CheckpointInfo>& infos,
                            const std::optional<BestCheckpoint>& best) {
  auto rows = nlohmann::ordered_json::array();
  for (const auto& info : infos)
    rows.push_back({{"step", info.step},
                    {"path", info.path.string()},
                    {"time", info.created},
                    {"bytes", info.bytes},
                    {"tensors", info.num_tensors},
                    {"best", best && best->step == info.step},
                    {"complete", info.unknown ? nlohmann::ordered_json()
                                              : nlohmann::ordered_json(info.problem.empty())},
                    {"problem", info.problem}});
  print_json(rows);
}

/// Prints one line per checkpoint; true if all are valid.
bool verify_checkpoints(const fs::path& path, bool deep) {
  bool all = true;
  for (const auto& info : checkpoints_at(path)) {
    std::cout << "step " << info.step << ": ";
    std::string problem;
    CheckpointContent content;
    try {
      if (deep)
        content = inspect_checkpoint(info.path);
      else
        problem = CheckpointStore(info.path.parent_path()).problem(info.step);
    } catch (const Error& error) {
      if (error.error_class() != ErrorClass::checkpoint) throw;
      problem = error.message();
    }
    if (problem.empty() && !content.nonfinite.empty())
      problem = cat("NaN or Inf in ", join(content.nonfinite, ", "));
    all = all && problem.empty();
    if (!problem.empty())
      std::cout << "DAMAGED: " << problem << '\n';
    else
      std::cout << "ok, " << counted(info.num_tensors, "tensor") << ", " << human_bytes(info.bytes)
                << (deep ? ", " : "") << content.digest << '\n';
  }
  return all;
}

void print_digest(const fs::path& path, std::optional<int64_t> step) {
  auto infos = checkpoints_at(path);
  const CheckpointInfo* chosen = &infos.back();
  if (step) {
    auto found = std::find_if(infos.begin(), infos.end(),
                              [&](const CheckpointInfo& info) { return info.step == *step; });
    if (found == infos.end())
      throw Error(ErrorClass::checkpoint,
                  cat(printable(path.string()), ": there is no checkpoint of step ", *step),
                  cat("the newest is of step ", infos.back().step,
                      "; list them with: mtrain checkpoint ls DIR"));
    chosen = &*found;
  }
  std::cout << checkpoint_digest(chosen->path) << '\n';
}

/// checkpoint.hf of a saved configuration; empty if it is not set. An older version recorded it as
/// it was written: relative to the folder in which it ran, which is not known.
fs::path exports_of(const SavedConfig& saved) {
  if (const std::string absolute = identity_of(saved).exports; !absolute.empty()) return absolute;
  const Node config = parse_yaml(saved.resolved, "the run's configuration");
  const Node* hf = config.find("checkpoint.hf");
  return hf && hf->kind() == NodeKind::string ? hf->as_text() : "";
}

/// The folders of exports of a run and of its checkpoints after a step, which other invocations may
/// have written.
std::set<fs::path> exports_of(const fs::path& run, const CheckpointStore& store, int64_t step) {
  std::set<fs::path> out;
  auto add = [&](auto&& saved) {
    try {
      if (const fs::path folder = exports_of(saved()); !folder.empty()) out.insert(folder);
    } catch (const Error&) {  // a run of an old version has no record
    }
  };
  add([&] { return read_saved_config(run); });
  for (const CheckpointInfo& info : store.list())
    if (info.step > step) add([&] { return read_saved_config(info.path); });
  return out;
}

void rewind(const fs::path& path, int64_t step) {
  const fs::path run = run_of(path);
  CheckpointStore store(checkpoints_of(path).folder, StoreOptions{});
  const std::set<fs::path> exports = exports_of(run, store, step);  // before anything is moved
  const std::vector<fs::path> moved = store.rewind(step);
  note_rewind(run, step);
  std::vector<int64_t> steps;
  for (const fs::path& folder : moved)
    steps.push_back(std::stoll(folder.filename().string().substr(std::strlen("step-"))));
  std::vector<fs::path> folders = moved;
  for (const fs::path& dir : exports)
    for (const fs::path& folder : set_aside_hf_exports(dir, steps)) folders.push_back(folder);
  for (const fs::path& folder : folders)
    std::cout << "moved to " << printable(folder.string()) << '\n';
  std::cout << (moved.empty() ? "nothing to move: the newest checkpoint is of step "
                              : "the run continues from step ")
            << step << '\n';
}

void add_path(CLI::App* command, std::string& path) {
  command->add_option("dir", path, kFolderHelp)->required()->type_name("DIR");
}

void add_rewind(CLI::App& command) {
  auto* back = command.add_subcommand("rewind", "make a run continue from an older checkpoint");
  auto path = std::make_shared<std::string>();
  add_path(back, *path);
  auto to = std::make_shared<int64_t>(0);
  back->add_option("--step", *to, "the checkpoint from which the run is to continue")
      ->required()
      ->type_name("N");
  back->footer(
      "Newer checkpoints are not deleted but moved to checkpoints/set-aside-K, and their exports "
      "to set-aside-K in the folder of checkpoint.hf. Newer rows of metrics.jsonl and "
      "generations.jsonl are removed when the\nrun continues. A run that is still training is "
      "refused.\nExample:\n  mtrain "
      "checkpoint "
      "rewind runs/quickstart --step 100\n  mtrain quickstart train.skip_steps=[104]");
  back->callback([path, to] { rewind(*path, *to); });
}

}  // namespace

void add_checkpoint_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("checkpoint", "list, verify, hash and rewind checkpoints");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  mtrain checkpoint ls runs/quickstart\n"
      "  mtrain checkpoint verify runs/quickstart\n"
      "  mtrain checkpoint digest runs/quickstart --step 100\n"
      "  mtrain checkpoint rewind runs/quickstart --step 100");
  auto path = std::make_shared<std::string>();

  auto* ls = command->add_subcommand(
      "ls", "list checkpoints, with a check of their manifests and file sizes");
  add_path(ls, *path);
  auto json = std::make_shared<bool>(false);
  ls->add_flag("--json", *json, "print as JSON");
  ls->footer(
      "\"complete\" means that the manifest is valid and each file has the right size. `checkpoint "
      "verify` compares the bytes of the files.\n"
      "Example:\n  mtrain checkpoint ls runs/quickstart");
  ls->callback([path, json] {
    std::optional<BestCheckpoint> best;
    const std::vector<CheckpointInfo> infos = checkpoints_at(*path, &best);
    *json ? print_checkpoints_json(infos, best) : print_checkpoints_text(infos, best);
  });

  auto* check = command->add_subcommand(
      "verify", "verify the checksums of all bytes; exit status 12 if one is wrong");
  add_path(check, *path);
  auto deep = std::make_shared<bool>(false);
  check->add_flag("--deep", *deep, "also look for NaN and Inf, and print each digest");
  check->footer(
      "Examples:\n  mtrain checkpoint verify runs/quickstart\n  mtrain checkpoint verify "
      "runs/quickstart/checkpoints/step-100 --deep");
  check->callback([path, deep, &cli] {
    if (!verify_checkpoints(*path, *deep)) cli.status = static_cast<int>(ErrorClass::checkpoint);
  });

  auto* digest = command->add_subcommand(
      "digest", "print one SHA-256 of parameters, optimizer state, RNG and data cursor");
  add_path(digest, *path);
  auto step = std::make_shared<std::optional<int64_t>>();
  digest->add_option("--step", *step, "which checkpoint; default: the newest")->type_name("N");
  digest->footer(
      "The digest does not depend on the parallel layout that saved the checkpoint: equal states "
      "have equal "
      "digests.\n"
      "Example:\n  mtrain checkpoint digest runs/quickstart --step 100");
  digest->callback([path, step] { print_digest(*path, *step); });
  add_rewind(*command);
}

}  // namespace mtrain
