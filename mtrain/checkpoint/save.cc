// The stages of a save: the protocol of docs/checkpoints.md, with one failpoint before each of its
// points.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <map>
#include <unordered_map>

#include "mtrain/base/error.h"
#include "mtrain/base/failpoint.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/log.h"
#include "mtrain/checkpoint/pending_save.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/checkpoint/step_reader.h"
#include "mtrain/checkpoint/store.h"

namespace mtrain {
namespace {

constexpr size_t kWrittenPieceBytes =
    4u << 20;  // each piece is hashed and then written while it is still in the cache

void point(std::string_view site) {
  Fault fault = failpoint(site);
  if (fault.action == FaultAction::fail_errno)
    throw Error(ErrorClass::io,
                cat("cannot save a checkpoint: ", std::strerror(fault.error), " (at ", site, ")"));
}

std::string now_utc() {
  std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

/// The name of the tensor if the box is the whole tensor, so that other programs can read the
/// weights of a one-rank checkpoint.
std::string key_of(const Slice& slice) {
  if (slice.local == slice.global) return slice.name;
  std::string key = slice.name;
  for (int d = 0; d < slice.offset.rank(); ++d) key += cat(d ? "," : "@", slice.offset[d]);
  return key;
}

void check_slice(const Slice& slice) {
  if (std::string why = bad_tensor_name(slice.name); !why.empty())
    throw Error(ErrorClass::checkpoint, cat("cannot save: ", why));
  MT_CHECK(fits(slice.box(), slice.global), slice.name, " ", describe(slice.box()), " of ",
           slice.global);
  MT_CHECK_EQ(slice.data.size(), static_cast<size_t>(slice.local.numel()) * size_of(slice.dtype));
}

/// A state with NaN or Inf must not replace an earlier checkpoint from which the run could
/// continue.
void require_finite(const Slice& slice, std::span<const std::byte> piece, int64_t step) {
  auto at = first_nonfinite(slice.dtype, piece);
  if (!at) return;
  const size_t before =
      static_cast<size_t>(piece.data() - slice.data.data()) / size_of(slice.dtype);
  throw Error(ErrorClass::numeric,
              cat("the state of step ", step, " is not saved: tensor '", slice.name,
                  "' contains NaN or Inf, first at element ", before + *at, " of the box ",
                  describe(slice.box())),
              "the run has diverged: lower optimizer.lr or raise scheduler.warmup_steps; earlier "
              "checkpoints are unchanged; the next start continues from the newest one");
}

/// True if the manifest `stored` describes exactly these slices.
bool holds_exactly(const Manifest& stored, std::span<const Slice> slices, int rank, int world) {
  const std::string shard = shard_name(rank, world);
  size_t in_shard = 0;
  for (const auto& tensor : stored.tensors)
    for (const auto& box : tensor.boxes) in_shard += stored.files[box.file].name == shard;
  if (in_shard != slices.size()) return false;
  for (const Slice& slice : slices) {
    const StoredTensor* tensor = stored.find(slice.name);
    if (!tensor || tensor->dtype != slice.dtype || !(tensor->global == slice.global)) return false;
    bool found = std::any_of(tensor->boxes.begin(), tensor->boxes.end(), [&](const StoredBox& box) {
      return box.box == slice.box() && stored.files[box.file].name == shard &&
             box.crc == crc32c(slice.data);
    });
    if (!found) return false;
  }
  return true;
}

/// True only if damage is proven. If the system cannot read the checkpoint now, throws Error(io).
bool is_damaged(const fs::path& folder, int64_t step) {
  try {
    StepReader reader(folder);
    reader.verify_all();
    return reader.manifest().step != step;
  } catch (const Error& error) {
    if (error.error_class() != ErrorClass::checkpoint) throw;
    return true;
  }
}

void rename_folder(const fs::path& from, const fs::path& to, std::string_view site) {
  point(site);
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw Error(ErrorClass::io, cat("cannot rename ", from.string(), " to ", to.string(), ": ",
                                    std::strerror(errno)));
}

fs::path part_name(int rank, int world) {
  return fs::path(shard_name(rank, world)).replace_extension(".json");
}

}  // namespace

void CheckpointStore::clean() {
  for (const auto& entry : fs::directory_iterator(folder_)) {
    std::string name = entry.path().filename().string();
    bool stale = name.starts_with("trash-") || name.starts_with("latest.tmp-") ||
                 (name.starts_with("step-") && name.find(".tmp-") != std::string::npos);
    if (!stale) continue;
    try {
      point("ckpt.clean");
      fs::remove_all(entry.path());
    } catch (const std::exception& error) {
      log_warn("cannot remove the leftover ", entry.path().string(), ": ", error.what());
    }
  }
}

void PendingSave::State::prepare() {
  slices = source();
  point("ckpt.p0");
  meta = canonical_meta(meta, "metadata");
  for (const Slice& slice : slices) check_slice(slice);
  exists = fs::exists(result.path) && !fs::is_empty(result.path);
  damaged = exists && is_damaged(result.path, step);
  if (!exists || damaged) return;
  Manifest stored = read_manifest(result.path);
  same = stored.meta == meta &&
         holds_exactly(stored, slices, store.options_.rank, store.options_.world);
  result.bytes = stored.bytes();
}

void PendingSave::State::write() {
  if (exists && !damaged)
    throw Error(ErrorClass::checkpoint,
                cat(result.path.string(), ": exists and contains another state of step ", step),
                "two runs use this folder, or the run was changed: choose another folder "
                "(run.dir=PATH), or move the existing one");
  if (damaged && store.options_.rank == 0) {
    log_warn("replacing the damaged checkpoint ", result.path.string());
    if (std::string why = store.discard(result.path); !why.empty()) log_warn(why);
  }
  point("ckpt.p1");
  std::error_code error;
  bool created = fs::create_directory(temporary, error);
  if (error || (!created && store.options_.world == 1))
    throw Error(ErrorClass::io,
                cat("cannot create the folder ", temporary.string(), ": ",
                    error ? error.message() : "it exists"),
                "check the permissions and the space of the file system");
  manifest = store.write_shard(temporary, step, slices, cancelled);
  point("ckpt.p5");
}

void PendingSave::State::commit() {
  if (store.options_.rank != 0) return;
  manifest.meta = std::move(meta);
  result.bytes = store.commit(temporary, step, std::move(manifest));
  store.retire(step, result.warnings);
}

Manifest CheckpointStore::write_shard(const fs::path& folder, int64_t step,
                                      std::span<const Slice> slices,
                                      const std::atomic<bool>& cancelled) {
  point("ckpt.p2");
  std::vector<TensorSpec> specs;
  std::unordered_map<std::string, const Slice*> by_key;
  for (const Slice& slice : slices) {
    specs.push_back({key_of(slice), slice.dtype, slice.local});
    by_key[specs.back().name] = &slice;
  }
  const std::string file_name = shard_name(options_.rank, options_.world);
  SafetensorsWriter writer(folder / file_name, "ckpt.shard", std::move(specs));
  Manifest out;
  std::map<std::string, StoredTensor> tensors;
  for (size_t i = 0; i < writer.order().size(); ++i) {
    const std::string& key = writer.order()[i].name;
    const Slice& slice = *by_key.at(key);
    uint32_t crc = 0;
    for (auto rest = std::span<const std::byte>(slice.data); !rest.empty();) {
      if (cancelled) throw Error(ErrorClass::io, "the save was cancelled");
      auto piece = rest.first(std::min(kWrittenPieceBytes, rest.size()));
      if (!options_.allow_nonfinite) require_finite(slice, piece, step);
      crc = crc32c(piece, crc);
      writer.write(piece);
      rest = rest.subspan(piece.size());
    }
    StoredTensor& tensor = tensors[slice.name];
    if (!tensor.boxes.empty())
      MT_CHECK(tensor.dtype == slice.dtype && tensor.global == slice.global, slice.name);
    tensor.name = slice.name, tensor.dtype = slice.dtype, tensor.global = slice.global;
    tensor.boxes.push_back({.file = 0,
                            .key = key,
                            .box = slice.box(),
                            .at = writer.offset(i),
                            .bytes = slice.data.size(),
                            .crc = crc});
  }
  for (auto& [name, tensor] : tensors) out.tensors.push_back(std::move(tensor));
  out.files.push_back(
      {file_name, writer.file_bytes(), writer.header_bytes(), writer.header_crc32c()});
  point("ckpt.p3");
  writer.finish();
  if (options_.rank != 0) {
    FileWriter part(folder / part_name(options_.rank, options_.world), "ckpt.part");
    part.write(encode(out));
    part.close();
  }
  point("ckpt.p4");
  sync_directory(folder, "ckpt.shard");
  return out;
}

uint64_t CheckpointStore::commit(const fs::path& temporary, int64_t step, Manifest manifest) {
  point("ckpt.p6");
  for (int rank = 1; rank < options_.world; ++rank) {
    fs::path part = temporary / part_name(rank, options_.world);
    merge(manifest, decode(read_file(part), part), part);
    fs::remove(part);
  }
  for (const auto& tensor : manifest.tensors)
    if (std::string why = cover_problem(tensor); !why.empty())
      throw Error(ErrorClass::checkpoint, cat("cannot save: ", why));
  manifest.step = step;
  manifest.created = now_utc();
  FileWriter file(temporary / kManifestName, "ckpt.manifest", false,
                  Readers::owner);  // it contains the recipe
  file.write(encode(manifest));
  file.sync();
  file.close();
  sync_directory(temporary, "ckpt.manifest");

  const fs::path target = step_folder(step);
  rename_folder(temporary, target, "ckpt.p7");
  try {
    point("ckpt.p8");
    sync_directory(folder_, "ckpt.commit");
  } catch (...) {
    // After a failed fsync it is unknown whether the rename is durable, and repeating it would not
    // show that. So the step is removed, and the save fails.
    std::error_code ignored;
    fs::path trash = folder_ / cat("trash-step-", step, "-", options_.token, "-", serial_);
    fs::rename(target, trash, ignored);
    fs::remove_all(trash, ignored);
    throw;
  }
  return manifest.bytes();
}

/// Runs after the commit, so its failures are warnings: the save has succeeded.
void CheckpointStore::retire(int64_t saved, std::vector<std::string>& warnings) {
  try {
    point("ckpt.p9");
    write_file_atomic(folder_ / "latest", cat("step-", saved, "\n"), "ckpt.latest");
  } catch (const std::exception& error) {
    warnings.push_back(cat("the file 'latest' was not written: ", error.what()));
  }
  try {
    point("ckpt.p10");
    clean();  // removes what earlier saves of this job could not remove
    if (options_.keep == 0) return;
    int kept = 1;  // the one just saved
    auto all = list();
    for (auto info = all.rbegin(); info != all.rend(); ++info) {
      if (info->step >= saved)
        continue;  // newer checkpoints are from before a resume at an older step, possibly damaged
                   // ones that were skipped
      if (options_.keep_every > 0 && info->step % options_.keep_every == 0) continue;
      if (kept < options_.keep) {
        kept += info->problem.empty();
        continue;
      }
      if (std::ranges::find(kept_steps_, info->step) != kept_steps_.end()) continue;
      if (std::string why = discard(info->path); !why.empty()) warnings.push_back(std::move(why));
    }
  } catch (const std::exception& error) {
    warnings.push_back(cat("old checkpoints were not removed: ", error.what()));
  }
}

/// Renames the folder in one step, then removes its content. Returns why content remains, or "": it
/// has no effect, and the next clean() removes it.
std::string CheckpointStore::discard(const fs::path& folder) {
  static std::atomic<int64_t> discarded{
      0};  // not serial_, which must stay equal on all ranks: only one rank runs this
  fs::path trash =
      folder_ / cat("trash-", folder.filename().string(), "-", options_.token, "-", ++discarded);
  rename_folder(folder, trash, "ckpt.trash");
  try {
    point("ckpt.trash.delete");
    fs::remove_all(trash);
    return {};
  } catch (const std::exception& error) {
    return cat("cannot remove ", trash.string(), ": ", error.what());
  }
}

}  // namespace mtrain
