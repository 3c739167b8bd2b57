#include "mtrain/checkpoint/store.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/checkpoint/checkpoint_reader.h"
#include "mtrain/checkpoint/step_reader.h"

namespace mtrain {
namespace {

constexpr std::string_view kStepPrefix = "step-";

/// The N of "step-N"; absent for other names, including the temporary "step-N.tmp-…".
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  int64_t step = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  bool canonical = error == std::errc() && end == name.data() + name.size() && step >= 0 &&
                   std::to_string(step) == name;
  return canonical ? std::optional(step) : std::nullopt;
}

/// Creates a folder and its parents durably, so that they survive a loss of power.
void create_durably(const fs::path& folder) {
  std::vector<fs::path> created;
  std::error_code ignored;
  for (fs::path at = fs::absolute(folder).lexically_normal();
       !fs::exists(at, ignored) && at.has_parent_path(); at = at.parent_path())
    created.push_back(at);
  make_directories(folder);
  for (const auto& path : created) sync_directory(path.parent_path(), "ckpt.folder");
}

/// The first lines of an error as one line.
std::string one_line(const Error& error) { return printable(error.message(), 600); }

}  // namespace

CheckpointStore::CheckpointStore(fs::path folder) : folder_(std::move(folder)) {}

CheckpointStore::CheckpointStore(fs::path folder, StoreOptions options)
    : folder_(std::move(folder)), options_(std::move(options)), writable_(true) {
  MT_USER_CHECK(options_.keep == 0 || options_.keep >= 2, ErrorClass::config,
                cat("checkpoint.keep: wanted 0 (all) or at least 2, got ", options_.keep),
                "keep at least 2: if the only checkpoint is damaged, the run is lost");
  MT_CHECK(options_.world == 1 || (options_.vote && !options_.token.empty()),
           "several ranks need a vote and a token");
  if (options_.token.empty()) options_.token = cat(::getpid());
  create_durably(folder_);
  if (options_.rank != 0) return;
  lock_.emplace(folder_);
  clean();
}

fs::path CheckpointStore::step_folder(int64_t step) const {
  return folder_ / cat(kStepPrefix, step);
}

std::vector<int64_t> CheckpointStore::steps() const {
  std::vector<int64_t> out;
  std::error_code error;
  fs::directory_iterator entries(folder_, error);
  if (error == std::errc::no_such_file_or_directory) return out;
  if (error)
    throw Error(ErrorClass::io,
                cat("cannot list ", printable(folder_.string()), ": ", error.message()));
  for (const auto& entry : entries) {
    std::error_code ignored;
    if (auto step = step_of(entry.path().filename().string()); step && entry.is_directory(ignored))
      out.push_back(*step);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<CheckpointInfo> CheckpointStore::list() const {
  std::vector<CheckpointInfo> out;
  for (int64_t step : steps()) {
    CheckpointInfo info{.step = step, .path = step_folder(step)};
    try {
      StepReader reader = open_step(info.path, step);
      info.created = reader.manifest().created;
      info.bytes = reader.manifest().bytes();
      info.num_tensors = reader.manifest().tensors.size();
    } catch (const Error& error) {
      info.problem = one_line(error);
      info.unknown = error.error_class() != ErrorClass::checkpoint;
    }
    out.push_back(std::move(info));
  }
  return out;
}

std::string CheckpointStore::problem(int64_t step) const {
  try {
    StepReader reader = open_step(step_folder(step), step);
    reader.verify_all();
    reader.verify_headers();
    return {};
  } catch (const Error& error) {
    if (error.error_class() != ErrorClass::checkpoint) throw;
    return one_line(error);
  }
}

LatestCheckpoint CheckpointStore::latest_valid() const {
  LatestCheckpoint out;
  auto all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    std::string reason = problem(*step);
    if (reason.empty()) {
      out.step = *step;
      return out;
    }
    out.refused.push_back({*step, std::move(reason)});
  }
  if (out.refused.empty()) return out;
  std::string lines;
  for (const auto& refused : out.refused)
    lines += cat("\n  step ", refused.step, ": ", refused.reason);
  throw Error(
      ErrorClass::checkpoint,
      cat(printable(folder_.string()), ": none of the ", all.size(), " checkpoints is valid",
          lines),
      "restore a checkpoint from a copy, or start a new run in another folder (run.dir=PATH)");
}

void CheckpointStore::load(int64_t step, std::span<Slice> slices, LoadOptions options) const {
  CheckpointReader(*this, step).load(slices, options);
}

std::vector<fs::path> CheckpointStore::rewind(int64_t step) {
  MT_CHECK(writable_ && options_.rank == 0, "a rewind needs a writable store on rank 0");
  if (std::string why = problem(step); !why.empty())
    throw Error(ErrorClass::checkpoint, cat("the run cannot go back to step ", step, ": ", why),
                "list the checkpoints with: mtrain checkpoint ls DIR");
  std::vector<int64_t> newer = steps();
  std::erase_if(newer, [step](int64_t other) { return other <= step; });
  if (newer.empty()) return {};
  fs::path aside;
  for (int number = 1; aside.empty() || fs::exists(aside); ++number)
    aside = folder_ / cat("set-aside-", number);
  create_durably(aside);
  std::vector<fs::path> out;
  // The newest first, so that after a crash the same call moves the remaining ones.
  for (auto other = newer.rbegin(); other != newer.rend(); ++other) {
    out.push_back(aside / cat(kStepPrefix, *other));
    durable_rename(step_folder(*other), out.back(), "ckpt.rewind");
  }
  sync_directory(folder_, "ckpt.rewind");
  write_file_atomic(folder_ / "latest", cat(kStepPrefix, step, "\n"), "ckpt.latest");
  return out;
}

void CheckpointStore::require_room(uint64_t bytes) const {
  constexpr const char* kElsewhere =
      "free some space, or write elsewhere: run.dir=PATH or checkpoint.dir=PATH";
  const fs::path probe =
      folder_ /
      cat("trash-probe-", options_.token);  // clean() removes it if the job is killed here
  try {
    FileWriter file(probe, "ckpt.probe", true);
    file.write(std::string(4096, '\n'));
    file.sync();
    file.close();
  } catch (const Error& error) {
    ::unlink(probe.c_str());
    throw Error(
        ErrorClass::io,
        cat("training does not start, because no checkpoint can be saved: ", error.message()),
        error.hint().empty() ? kElsewhere : error.hint());
  }
  ::unlink(probe.c_str());
  struct statvfs system {};
  if (::statvfs(folder_.c_str(), &system) != 0 || system.f_blocks == 0)
    return;  // the free space is unknown: a save may fail later
  const uint64_t free = uint64_t{system.f_bavail} * system.f_frsize;
  MT_USER_CHECK(
      bytes <= free, ErrorClass::io,
      cat(printable(folder_.string()), " has only ", human_bytes(free),
          " free, but one checkpoint needs ", human_bytes(bytes), ", so training does not start"),
      kElsewhere);
}

std::string CheckpointStore::meta(int64_t step) const {
  return open_step(step_folder(step), step).manifest().meta;
}

std::vector<StoredTensorInfo> CheckpointStore::tensors(int64_t step) const {
  std::vector<StoredTensorInfo> out;
  const StepReader reader = open_step(step_folder(step), step);
  for (const auto& tensor : reader.manifest().tensors)
    out.push_back({tensor.name, tensor.dtype, tensor.global});
  return out;
}

CheckpointPlace locate_checkpoints(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    throw Error(ErrorClass::checkpoint, cat(printable(path.string()), ": no such folder"),
                "give a run's folder, its checkpoints folder, or one step-N folder");
  fs::path named =
      path.has_filename() && path.filename() != "." ? path : fs::absolute(path).lexically_normal();
  if (!named.has_filename()) named = named.parent_path();
  if (auto step = step_of(named.filename().string())) {
    fs::path parent = named.parent_path();
    return {parent.empty() ? fs::path(".") : parent, step};
  }
  if (fs::is_directory(path / "checkpoints", ignored)) return {path / "checkpoints", std::nullopt};
  for (const auto& entry : fs::directory_iterator(path))
    if (step_of(entry.path().filename().string())) return {path, std::nullopt};
  throw Error(ErrorClass::checkpoint,
              cat(printable(path.string()), ": contains no checkpoints (folders named step-N)"),
              "give a run's folder, its checkpoints folder, or one step-N folder");
}

std::optional<size_t> first_nonfinite(DType dtype, std::span<const std::byte> data) {
  auto scan = [&]<class Word>(Word exponent) -> std::optional<size_t> {
    constexpr size_t kBlock =
        1024;  // elements that are tested together without a branch, so that the loop is vectorized
    auto bad = [&](size_t i) {
      Word word;
      std::memcpy(&word, data.data() + i * sizeof(Word), sizeof(Word));
      return (word & exponent) == exponent;
    };
    const size_t count = data.size() / sizeof(Word);
    for (size_t begin = 0; begin < count; begin += kBlock) {
      const size_t end = std::min(count, begin + kBlock);
      Word any = 0;
      for (size_t i = begin; i < end; ++i) any |= static_cast<Word>(bad(i));
      for (size_t i = begin; any != 0; ++i)
        if (bad(i)) return i;
    }
    return std::nullopt;
  };
  switch (dtype) {
    case DType::f32:
      return scan(uint32_t{0x7F800000});
    case DType::f64:
      return scan(uint64_t{0x7FF0000000000000});
    case DType::bf16:
      return scan(uint16_t{0x7F80});
    case DType::f16:
      return scan(uint16_t{0x7C00});
    default:
      return std::nullopt;
  }
}

}  // namespace mtrain
