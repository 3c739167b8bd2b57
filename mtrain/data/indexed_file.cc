#include "mtrain/data/indexed_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "mtrain/base/checked.h"
#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/data/absent_path.h"

namespace mtrain {
namespace {

constexpr uint64_t kWholeHashBytes = uint64_t{256} << 20;
constexpr uint64_t kSampleBytes = uint64_t{64} << 10;
constexpr uint64_t kSamples = 64;

constexpr std::array<DType, 8> kTypes = {DType::u8,  DType::i8,  DType::i16, DType::i32,
                                         DType::i64, DType::f64, DType::f32, DType::u16};

template <class T>
T load(const std::byte* base, int64_t index) {
  T value;
  std::memcpy(&value, base + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

fs::path with_suffix(const fs::path& prefix, std::string_view suffix) {
  fs::path out = prefix;
  out += suffix;
  return out;
}

void require_file(const fs::path& wanted, const fs::path& other) {
  std::error_code ignored;
  if (fs::exists(wanted, ignored)) return;
  bool half = fs::exists(other, ignored);
  throw Error(
      ErrorClass::data,
      cat("no indexed dataset: ", wanted.string(), " does not exist",
          half ? cat(", though ", other.string(), " does") : ""),
      half ? "the preparation was interrupted or only half was copied: run `mtrain data prepare` "
             "again, or copy both"
           : cat("check the path for a typo; `mtrain data prepare` makes such a pair from text",
                 advice_for_comma(wanted, "write several as dataset.paths=[A, B]")));
}

template <class T>
void copy_as_int32(const std::byte* from, std::span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<int32_t>(load<T>(from, static_cast<int64_t>(i)));
}

/// The checksum of evenly spaced blocks.
uint32_t sampled_crc(std::span<const std::byte> data) {
  uint32_t crc = 0;
  uint64_t stride = (data.size() - kSampleBytes) / (kSamples - 1);
  for (uint64_t i = 0; i < kSamples; ++i) crc = crc32c(data.subspan(i * stride, kSampleBytes), crc);
  return crc;
}

int64_t changed_ns(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

namespace indexed_format {

std::optional<uint8_t> code_of(DType dtype) {
  auto at = std::find(kTypes.begin(), kTypes.end(), dtype);
  if (at == kTypes.end()) return std::nullopt;
  return static_cast<uint8_t>(at - kTypes.begin() + 1);
}

std::optional<DType> dtype_of(uint8_t code) {
  if (code < 1 || code > kTypes.size()) return std::nullopt;
  return kTypes[code - 1u];
}

}  // namespace indexed_format

fs::path pair_prefix(const fs::path& path) {
  const fs::path extension = path.extension();
  return extension == ".idx" || extension == ".bin" ? fs::path(path).replace_extension() : path;
}
fs::path idx_path(const fs::path& prefix) { return with_suffix(prefix, ".idx"); }
fs::path bin_path(const fs::path& prefix) { return with_suffix(prefix, ".bin"); }

IndexedFile::IndexedFile(const fs::path& prefix) : prefix_(pair_prefix(prefix)) {
  fs::path idx = idx_path(prefix_), bin = bin_path(prefix_);
  require_file(idx, bin);
  require_file(bin, idx);
  idx_ = MappedFile(idx);
  bin_ = MappedFile(bin);
  check_header();
  check_sequences();
  check_documents();
  bin_.advise_random();
}

void IndexedFile::bad(const std::string& what, const std::string& hint) const {
  throw Error(ErrorClass::data, cat(idx_.path().string(), ": ", what),
              hint.empty()
                  ? "the file is damaged or was written by something else: prepare it again"
                  : hint);
}

/// "offset 42: ", the offset of item `i` of an array of the index.
std::string IndexedFile::offset(const std::byte* array, int64_t item_bytes, int64_t i) const {
  return cat("offset ", array - idx_.bytes().data() + i * item_bytes, ": ");
}

void IndexedFile::check_header() {
  auto bytes = idx_.bytes();
  const uint64_t size = bytes.size();
  if (size < indexed_format::kHeaderBytes) bad(cat("is ", size, " bytes; the header alone has 34"));
  const std::byte* at = bytes.data();
  if (std::memcmp(at, indexed_format::kMagic.data(), indexed_format::kMagic.size()) != 0)
    bad("offset 0: does not begin with \"MMIDIDX\"",
        "give the prefix of a Megatron .bin/.idx pair");
  auto version = load<uint64_t>(at + 9, 0);
  if (version != indexed_format::kVersion)
    bad(cat("offset 9: version ", version, ", but only 1 is known"));
  auto code = load<uint8_t>(at + 17, 0);
  auto dtype = indexed_format::dtype_of(code);
  if (!dtype) bad(cat("offset 17: element type code ", int{code}, " is none of 1 to 8"));
  if (is_floating(*dtype)) bad(cat("offset 17: holds ", name(*dtype), " values, not token ids"));
  dtype_ = *dtype;

  auto sequences = load<uint64_t>(at + 18, 0), bounds = load<uint64_t>(at + 26, 0);
  auto plain = Checked<uint64_t>(sequences) * 12 + Checked<uint64_t>(bounds) * 8 +
               indexed_format::kHeaderBytes;
  auto with_modes = plain + sequences;
  if (!plain.equals(size) && !with_modes.equals(size)) {
    bad(cat("offset 18: ", sequences, " sequences and ", bounds, " document bounds take ",
            plain.valid() ? cat(plain.value(), " bytes")
                          : std::string("more bytes than can be counted"),
            ", but the file has ", size));
  }
  if (bounds < 1) bad("offset 26: no document bounds; even an empty file has one");
  num_sequences_ = static_cast<int64_t>(sequences);  // fits: 12 times it is at most the file's size
  num_documents_ = static_cast<int64_t>(bounds) - 1;
  lengths_ = at + indexed_format::kHeaderBytes;
  pointers_ = lengths_ + sequences * 4;
  bounds_ = pointers_ + sequences * 8;
  if (sequences > 0 && !plain.equals(size)) modes_ = bounds_ + bounds * 8;
}

void IndexedFile::check_sequences() const {
  idx_.advise_sequential();
  const auto item = static_cast<int64_t>(size_of(dtype_));
  int64_t expected = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    auto count = load<int32_t>(lengths_, i);
    if (count < 0) bad(cat(offset(lengths_, 4, i), "sequence ", i, " has the length ", count));
    auto pointer = load<int64_t>(pointers_, i);
    if (pointer != expected)
      bad(cat(offset(pointers_, 8, i), "sequence ", i, " starts at byte ", pointer,
              " of the .bin, but the ones before it end at ", expected));
    auto end = Checked<int64_t>(count) * item + expected;
    if (!end.valid())
      bad(cat(offset(lengths_, 4, i), "sequence ", i, " ends beyond any possible file"));
    expected = end.value();
  }
  auto size = bin_.bytes().size();
  if (static_cast<uint64_t>(expected) != size) {
    throw Error(
        ErrorClass::data,
        cat(bin_.path().string(), " has ", size, " bytes, but its index describes ", expected),
        "the pair does not belong together or the copy is incomplete: copy or prepare both files "
        "again");
  }
  const_cast<IndexedFile*>(this)->num_tokens_ = expected / item;
}

void IndexedFile::check_documents() const {
  int64_t previous = 0;
  for (int64_t i = 0; i <= num_documents_; ++i) {
    auto bound = load<int64_t>(bounds_, i);
    if (i == 0 && bound != 0)
      bad(cat(offset(bounds_, 8, i), "document 0 starts at sequence ", bound, ", not 0"));
    if (bound < previous)
      bad(cat(offset(bounds_, 8, i), "document ", i, " starts at sequence ", bound,
              ", before document ", i - 1, " at ", previous));
    if (bound > num_sequences_)
      bad(cat(offset(bounds_, 8, i), "document ", i, " starts at sequence ", bound, " of ",
              num_sequences_));
    previous = bound;
  }
  if (previous != num_sequences_)
    bad(cat(offset(bounds_, 8, num_documents_), "the last document ends at sequence ", previous,
            ", but there are ", num_sequences_));
}

int32_t IndexedFile::length(int64_t sequence) const { return load<int32_t>(lengths_, sequence); }
int8_t IndexedFile::mode(int64_t sequence) const {
  return modes_ ? load<int8_t>(modes_, sequence) : int8_t{0};
}
int64_t IndexedFile::document_begin(int64_t document) const {
  return load<int64_t>(bounds_, document);
}

int64_t IndexedFile::document_of(int64_t sequence) const {
  int64_t low = 0,
          high = num_documents_;  // the last document that begins at or before the sequence
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    (document_begin(middle) <= sequence ? low : high) = middle;
  }
  return low;
}

void IndexedFile::read(int64_t sequence, int64_t offset, std::span<int32_t> out) const {
  const auto item = static_cast<int64_t>(size_of(dtype_));
  const auto count = static_cast<int64_t>(out.size());
  MT_CHECK(sequence >= 0 && sequence < num_sequences_, "sequence ", sequence, " of ",
           num_sequences_);
  MT_CHECK(offset >= 0 && count <= length(sequence) - offset, "tokens ", offset, "+", count, " of ",
           length(sequence));
  const std::byte* from = bin_.bytes().data() + load<int64_t>(pointers_, sequence) + offset * item;
  if (count == 0) return;
  switch (dtype_) {
    case DType::u8:
      return copy_as_int32<uint8_t>(from, out);
    case DType::i8:
      return copy_as_int32<int8_t>(from, out);
    case DType::i16:
      return copy_as_int32<int16_t>(from, out);
    case DType::u16:
      return copy_as_int32<uint16_t>(from, out);
    case DType::i32:
      std::memcpy(out.data(), from, out.size_bytes());
      return;
    case DType::i64:
      break;
    default:
      MT_CHECK(false, "element type ", name(dtype_));
  }
  for (int64_t i = 0; i < count; ++i) {
    auto id = load<int64_t>(from, i);
    auto narrow = checked_cast<int32_t>(id);
    if (!narrow)
      throw Error(ErrorClass::data,
                  cat(bin_.path().string(), ": document ", document_of(sequence), ", token ",
                      offset + i, " of sequence ", sequence, ": id ", id, " does not fit 32 bits"));
    out[static_cast<size_t>(i)] = *narrow;
  }
}

std::string IndexedFile::identity() const {
  auto data = bin_.bytes();
  bool whole = data.size() <= kWholeHashBytes;
  return cat("{\"file\":\"", prefix_.filename().string(), "\",\"bin_bytes\":", data.size(),
             ",\"idx_bytes\":", idx_.bytes().size(), ",\"idx_crc32c\":", crc32c(idx_.bytes()),
             ",\"bin_crc32c\":", whole ? crc32c(data) : sampled_crc(data),
             whole ? "" : cat(",\"bin_changed_ns\":", changed_ns(bin_.path())), "}");
}

}  // namespace mtrain
