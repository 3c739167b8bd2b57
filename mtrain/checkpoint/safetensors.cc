#include "mtrain/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

#include "mtrain/base/checked.h"
#include "mtrain/base/log.h"
#include "mtrain/checkpoint/refuse.h"
#include "mtrain/checkpoint/safetensors_header.h"

namespace mtrain {
namespace {

[[noreturn]] void refuse_damaged(const fs::path& path, const std::string& what) {
  refuse_file(path, what, kDamagedSafetensors);
}

/// The format of a file without a safetensors header, by its first bytes; null if unknown.
const char* foreign_format(std::string_view start) {
  using namespace std::string_view_literals;
  if (start.starts_with("PK\x03\x04"sv)) return "a ZIP archive (PyTorch .pt/.bin, .npz, Keras)";
  if (start.size() >= 2 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5)
    return "a Python pickle (.pt/.bin/.pkl)";
  if (start.starts_with("\x93NUMPY"sv)) return "a NumPy array (.npy)";
  if (start.starts_with("GGUF"sv)) return "a GGUF file";
  if (start.starts_with("\x89HDF"sv)) return "an HDF5 file";
  if (start.starts_with("\x1f\x8b"sv)) return "a gzip file";
  if (start.starts_with("version https://git-lfs"sv))
    return "a Git LFS pointer, not the file itself";
  if (start.starts_with("<!DOCTYPE"sv) || start.starts_with("<html"sv)) return "a web page";
  return nullptr;
}

[[noreturn]] void refuse_start(const InputFile& file, const std::string& what) {
  std::array<char, 32> start{};
  size_t bytes = std::min<uint64_t>(file.size(), start.size());
  file.read(0, std::as_writable_bytes(std::span(start)).first(bytes));
  const std::string_view head(start.data(), bytes);
  if (const char* format = foreign_format(head))
    refuse_file(file.path(), cat("wanted safetensors, got ", format),
                head.starts_with("version https://git-lfs")
                    ? "fetch the file: `git lfs pull` in its folder, or download it again"
                : head.starts_with('<')
                    ? "download the file again: the server answered with a page"
                    : "pickles can run code when read and are never opened here; convert the "
                      "weights with the "
                      "Python "
                      "package safetensors "
                      "(safetensors.torch.save_file) and give the .safetensors file or its folder");
  refuse_damaged(file.path(), what);
}

std::string read_header(const InputFile& file) {
  if (file.size() < 8) refuse_start(file, cat("wanted at least 8 bytes, got ", file.size()));
  std::array<std::byte, 8> prefix;
  file.read(0, prefix);
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= std::to_integer<uint64_t>(prefix[i]) << (8 * i);
  if (length > kMaxHeaderBytes)
    refuse_start(file, cat("byte 0: header length ", length, " is over the limit of ",
                           kMaxHeaderBytes, " bytes"));
  if (length > file.size() - 8)
    refuse_start(file, cat("byte 0: header length ", length, " exceeds the size of the file (",
                           file.size(), " bytes)"));
  if (length > (32u << 20))
    log_warn(printable(file.path().string()), ": unusually large header of ", human_bytes(length));
  std::string text(length, '\0');
  file.read(8, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

/// Checks one tensor's shape against its dtype and range.
Shape checked_shape(const HeaderTensor& t, uint64_t bits, const fs::path& path) {
  Checked<uint64_t> total(bits), extent(1);
  Shape shape;
  for (uint64_t dim : t.shape) {
    auto narrow = checked_cast<int64_t>(dim);
    extent =
        extent * std::max<uint64_t>(dim, 1);  // so that strides and partial products fit as well
    total = total * dim;
    if (!narrow || !total.valid() || !extent.valid() || !checked_cast<int64_t>(extent.value()))
      refuse_damaged(path, cat("tensor '", printable(t.name),
                               "': the product of its shape overflows 64 bits"));
    shape.push_back(*narrow);
  }
  if (total.value() % 8 != 0)
    refuse_damaged(path, cat("tensor '", printable(t.name), "': ", total.value(), " bits of ",
                             t.file_dtype, " are not a whole number of bytes"));
  if (t.end - t.begin != total.value() / 8)
    refuse_damaged(path, cat("tensor '", printable(t.name), "': shape ", shape, " of ",
                             t.file_dtype, " needs ", total.value() / 8, " bytes, data_offsets [",
                             t.begin, ", ", t.end, "] give ", t.end - t.begin));
  return shape;
}

void check_unique(const std::vector<HeaderTensor>& list, const fs::path& path) {
  std::vector<std::string_view> names;
  names.reserve(list.size());
  for (const auto& t : list) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  if (auto twin = std::adjacent_find(names.begin(), names.end()); twin != names.end())
    refuse_damaged(path, cat("tensor '", printable(*twin), "' occurs twice"));
}

}  // namespace

std::string bad_tensor_name(std::string_view name) {
  if (name.empty()) return "a tensor name is empty";
  if (name.size() > kMaxNameBytes)
    return cat("tensor name '", printable(name, 40), "…' has ", name.size(),
               " bytes; the limit is ", kMaxNameBytes);
  size_t bad = 0;
  if (!valid_utf8(name, &bad))
    return cat("tensor name '", printable(name), "' is not UTF-8 at its byte ", bad);
  for (size_t i = 0; i < name.size(); ++i) {
    auto c = static_cast<unsigned char>(name[i]);
    auto next = i + 1 < name.size() ? static_cast<unsigned char>(name[i + 1]) : 0;
    auto third = i + 2 < name.size() ? static_cast<unsigned char>(name[i + 2]) : 0;
    bool control = c < 0x20 || c == 0x7F || (c == 0xC2 && next < 0xA0);  // C0, DEL, C1
    bool reorders =
        (c == 0xE2 && next == 0x80 && third >= 0xA8 && third <= 0xAE) ||  // U+2028 to U+202E
        (c == 0xE2 && next == 0x81 && third >= 0xA6 && third <= 0xA9);    // U+2066 to U+2069
    if (control || reorders)
      return cat("tensor name '", printable(name), "' has a control character at its byte ", i);
  }
  return {};
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path) {
  const std::string text = read_header(file_);
  Header header = parse_header(text, path);
  data_start_ = 8 + text.size();
  metadata_ = std::move(header.metadata);
  map_ = MappedFile(path);
  if (map_.bytes().size() != file_.size())
    refuse_file(path, "changed while being opened", "make sure that no other program writes to it");

  auto& list = header.tensors;
  check_unique(list, path);
  std::sort(list.begin(), list.end(), [](const HeaderTensor& a, const HeaderTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const uint64_t data_bytes = file_.size() - data_start_;
  uint64_t expected = 0;
  tensors_.reserve(list.size());
  for (auto& t : list) {
    auto wrong = [&](const auto&... what) {
      refuse_damaged(path, cat("tensor '", printable(t.name), "': ", what...));
    };
    if (t.end < t.begin) wrong("data_offsets [", t.begin, ", ", t.end, "] are reversed");
    if (t.begin != expected)
      wrong("data begin at ", t.begin, ", but the previous tensor ends at ", expected,
            t.begin < expected ? ": they overlap" : ": a hole");
    if (t.end > data_bytes)
      wrong("data end at ", t.end, ", the file has only ", data_bytes,
            " bytes of data: it is truncated");
    const FileDType& kind = *find_file_dtype(t.file_dtype);
    Shape shape = checked_shape(t, kind.bits, path);
    expected = t.end;
    tensors_.push_back({.name = std::move(t.name),
                        .file_dtype = std::move(t.file_dtype),
                        .dtype = kind.dtype,
                        .shape = shape,
                        .offset = data_start_ + t.begin,
                        .data = map_.bytes().subspan(data_start_ + t.begin, t.end - t.begin)});
  }
  if (expected != data_bytes)
    refuse_damaged(path, cat("byte ", data_start_ + expected, ": ", data_bytes - expected,
                             " bytes follow the last tensor"));

  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
  return found != by_name_.end() && tensors_[*found].name == name ? &tensors_[*found] : nullptr;
}

const TensorInfo& SafetensorsFile::at(std::string_view name) const {
  if (const TensorInfo* found = find(name)) return *found;
  std::vector<std::string> names;
  for (uint32_t i : by_name_) names.push_back(tensors_[i].name);
  auto close = nearest(name, names);
  throw Error(ErrorClass::checkpoint,
              cat(printable(path().string()), ": has no tensor '", printable(name), "' among its ",
                  names.size()),
              close.empty() ? "is this the checkpoint of another model?"
                            : cat("did you mean ", join(close, ", "), "?"));
}

void SafetensorsFile::read(const TensorInfo& tensor, std::span<std::byte> out) const {
  MT_CHECK_EQ(out.size(), tensor.data.size());
  file_.read(tensor.offset, out);
}

void SafetensorsFile::read(const TensorInfo& tensor, uint64_t begin,
                           std::span<std::byte> out) const {
  MT_CHECK(begin <= tensor.data.size() && out.size() <= tensor.data.size() - begin, tensor.name);
  file_.read(tensor.offset + begin, out);
}

}  // namespace mtrain
