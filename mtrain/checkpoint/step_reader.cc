#include "mtrain/checkpoint/step_reader.h"

#include <algorithm>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/checkpoint/refuse.h"
#include "mtrain/checkpoint/safetensors.h"

namespace mtrain {
namespace {

constexpr uint64_t kMaxManifestBytes = 256u << 20;
constexpr uint64_t kWindowBytes = 1u << 20;

[[noreturn]] void refuse_step(const fs::path& path, const std::string& what) {
  refuse_file(path, what, kDamagedCheckpoint);
}

/// Opens a file of the checkpoint; refuses links.
InputFile open_part(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_symlink(fs::symlink_status(path, ignored)))
    refuse_file(path, "is a link, but a checkpoint's files must be in its folder",
                "replace the link by the file");
  return InputFile(path);
}

/// Buffers reads of one file at ascending offsets, so that many short reads need few system calls.
class Window {
 public:
  Window(const InputFile& file, uint64_t end) : file_(file), end_(end) {}
  void read(uint64_t at, std::span<std::byte> out) {
    if (out.size() >= kWindowBytes / 4) return file_.read(at, out);
    if (at < start_ || at + out.size() > start_ + buffer_.size()) {
      buffer_.resize(std::min(kWindowBytes, end_ - at));
      start_ = at;
      file_.read(at, buffer_);
    }
    std::memcpy(out.data(), buffer_.data() + (at - start_), out.size());
  }

 private:
  const InputFile& file_;
  uint64_t end_, start_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace

Manifest read_manifest(const fs::path& folder) {
  fs::path path = folder / kManifestName;
  InputFile file = open_part(path);
  if (file.size() > kMaxManifestBytes)
    refuse_step(path, cat("has ", file.size(), " bytes, over the limit of ", kMaxManifestBytes));
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text.data(), text.size())));
  return decode(text, path);
}

StepReader open_step(const fs::path& folder, int64_t step) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    throw Error(ErrorClass::checkpoint, cat(printable(folder.string()), ": no such checkpoint"),
                "list the checkpoints with: mtrain checkpoint ls DIR");
  StepReader reader(folder);
  if (reader.manifest().step != step)
    throw Error(ErrorClass::checkpoint,
                cat(printable((folder / kManifestName).string()), ": has step ",
                    reader.manifest().step, " but is in the folder of step ", step),
                "rename the folder to its original name");
  return reader;
}

StepReader::StepReader(fs::path folder)
    : folder_(std::move(folder)), manifest_(read_manifest(folder_)) {
  for (const auto& stored : manifest_.files) {
    files_.push_back(open_part(folder_ / stored.name));
    if (files_.back().size() != stored.bytes)
      refuse_step(
          files_.back().path(),
          cat("wanted ", stored.bytes, " bytes, got ", files_.back().size(),
              files_.back().size() < stored.bytes ? ": it is truncated" : ": it has grown"));
  }
  header_verified_.resize(files_.size());
  box_verified_.resize(manifest_.tensors.size());
  for (size_t i = 0; i < manifest_.tensors.size(); ++i)
    box_verified_[i].resize(manifest_.tensors[i].boxes.size());
}

void StepReader::verify_file(size_t file) {
  if (header_verified_[file]) return;
  const auto& stored = manifest_.files[file];
  if (files_[file].crc32c(0, stored.header_bytes) != stored.header_crc)
    refuse_step(files_[file].path(), "the header does not match its checksum");
  header_verified_[file] = true;
}

void StepReader::verify(const StoredTensor& tensor, size_t box) {
  auto index = static_cast<size_t>(&tensor - manifest_.tensors.data());
  if (box_verified_[index][box]) return;
  const StoredBox& stored = tensor.boxes[box];
  verify_file(stored.file);
  const InputFile& file = files_[stored.file];
  if (file.crc32c(stored.at, stored.bytes) != stored.crc)
    refuse_step(file.path(), cat("tensor '", printable(tensor.name), "', bytes ", stored.at, " to ",
                                 stored.at + stored.bytes, ": do not match their checksum"));
  box_verified_[index][box] = true;
}

void StepReader::verify_all() {
  for (size_t i = 0; i < files_.size(); ++i) verify_file(i);
  for (const auto& tensor : manifest_.tensors) {
    if (std::string why = cover_problem(tensor); !why.empty())
      refuse_step(folder_ / kManifestName, why);
    for (size_t i = 0; i < tensor.boxes.size(); ++i) verify(tensor, i);
  }
}

void StepReader::verify_headers() const {
  std::vector<size_t> counted(files_.size());
  std::vector<SafetensorsFile> files;
  for (const auto& file : files_) files.emplace_back(file.path());
  for (const auto& tensor : manifest_.tensors) {
    for (const auto& box : tensor.boxes) {
      const TensorInfo& found = files[box.file].at(box.key);
      ++counted[box.file];
      if (found.dtype != tensor.dtype || !(found.shape == box.box.extent) || found.offset != box.at)
        refuse_step(files[box.file].path(),
                    cat("'", printable(box.key), "' differs from the manifest"));
    }
  }
  for (size_t i = 0; i < files.size(); ++i)
    if (counted[i] != files[i].tensors().size())
      refuse_step(files[i].path(), "contains tensors that the manifest does not list");
}

const StoredTensor& StepReader::at(std::string_view name) const {
  if (const StoredTensor* found = manifest_.find(name)) return *found;
  std::vector<std::string> names;
  for (const auto& tensor : manifest_.tensors) names.push_back(tensor.name);
  auto close = nearest(name, names);
  refuse_file(
      folder_, cat("has no tensor '", printable(name), "' among its ", names.size()),
      close.empty()
          ? "does the recipe describe another model or optimizer than the one that was saved?"
          : cat("the nearest names are ", join(close, ", ")));
}

void StepReader::prepare(const StoredTensor& tensor, const Box& wanted) {
  if (!fits(wanted, tensor.global))
    refuse_step(folder_, cat("tensor '", printable(tensor.name), "': wanted box ", describe(wanted),
                             " of ", tensor.global));
  if (std::string why = overlap_problem(tensor); !why.empty())
    refuse_step(folder_ / kManifestName, why);
  int64_t covered = 0;
  for (size_t i = 0; i < tensor.boxes.size(); ++i) {
    if (wanted.extent.numel() == 0) break;
    auto common = intersect(tensor.boxes[i].box, wanted);
    if (!common) continue;
    covered += common->extent.numel();
    verify(tensor, i);
  }
  if (covered != wanted.extent.numel())
    refuse_step(folder_, cat("tensor '", printable(tensor.name), "': only ", covered, " of ",
                             wanted.extent.numel(), " elements of the box ", describe(wanted),
                             " were saved"));
}

void StepReader::read(const StoredTensor& tensor, const Box& wanted, std::span<std::byte> out) {
  prepare(tensor, wanted);
  MT_CHECK_EQ(out.size(), static_cast<size_t>(wanted.extent.numel()) * size_of(tensor.dtype));
  if (out.empty()) return;
  for (const auto& stored : tensor.boxes)
    if (auto common = intersect(stored.box, wanted)) copy(tensor, stored, wanted, *common, out);
}

void StepReader::copy(const StoredTensor& tensor, const StoredBox& stored, const Box& wanted,
                      const Box& common, std::span<std::byte> out) const {
  const size_t width = size_of(tensor.dtype);
  Window window(files_[stored.file], stored.at + stored.bytes);
  const Shape zero = whole_box(tensor.global).offset;
  auto read = [&](int64_t from, int64_t to, int64_t count) {
    window.read(stored.at + static_cast<uint64_t>(from) * width,
                out.subspan(static_cast<size_t>(to) * width, static_cast<size_t>(count) * width));
  };
  for_each_run(moved(common, stored.box.offset, zero), stored.box.extent,
               moved(common, wanted.offset, zero), wanted.extent, read);
}

}  // namespace mtrain
