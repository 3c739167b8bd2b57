// IndexedFile: a pair PREFIX.bin / PREFIX.idx in Megatron's layout, mapped read-only. The
// constructor checks the whole index in one pass with arithmetic that cannot overflow, so later
// reads need no checks. Owns the mappings. Immutable: const members are safe from any thread.
//
//   .bin  the tokens of all sequences, end to end, little-endian, no header
//   .idx  offset  0  char[9]  "MMIDIDX\0\0"
//                 9  u64      version, 1
//                17  u8       element type: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16
//                18  u64      S, the number of sequences
//                26  u64      D, the number of document bounds (documents + 1)
//                34  i32[S]   length of each sequence in elements
//                    i64[S]   byte offset of each sequence in .bin: the exclusive prefix sum
//                             of the lengths in bytes
//                    i64[D]   index of the first sequence of each document; 0 first, S last
//                    i8[S]    mode of each sequence, in multimodal files only
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "mtrain/base/dtype.h"
#include "mtrain/base/file.h"

namespace mtrain {

namespace indexed_format {
inline constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
inline constexpr uint64_t kVersion = 1;
inline constexpr uint64_t kHeaderBytes = 34;
/// The code of an element type in the header; absent for a type the format does not have.
MT_API std::optional<uint8_t> code_of(DType dtype);
MT_API std::optional<DType> dtype_of(uint8_t code);
}  // namespace indexed_format

class MT_API IndexedFile {
 public:
  /// Opens PREFIX.bin and PREFIX.idx (`prefix` may also be the path of either file). Error(data)
  /// names the file, the expected and the found value.
  explicit IndexedFile(const fs::path& prefix);

  const fs::path& prefix() const { return prefix_; }
  DType dtype() const { return dtype_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_documents_; }
  int64_t num_tokens() const { return num_tokens_; }
  uint64_t bin_bytes() const { return bin_.bytes().size(); }
  uint64_t idx_bytes() const { return idx_.bytes().size(); }
  bool has_modes() const { return modes_ != nullptr; }

  /// Tokens in a sequence. REQUIRES (as do the members below): 0 <= sequence < num_sequences().
  int32_t length(int64_t sequence) const;
  /// The multimodal mode, 0 where the file has none.
  int8_t mode(int64_t sequence) const;
  /// Index of the first sequence of a document. REQUIRES: 0 <= document <= num_documents().
  int64_t document_begin(int64_t document) const;
  /// Index of the document that holds a sequence.
  int64_t document_of(int64_t sequence) const;
  /// Copies out.size() tokens of a sequence from `offset` on, as int32. Error(data) when an id does
  /// not fit int32.
  void read(int64_t sequence, int64_t offset, std::span<int32_t> out) const;

  /// JSON of sizes and checksums. Hashes the whole index, and all tokens up to 256 MiB; of larger
  /// files, hashes a sample of the tokens and includes the modification time.
  std::string identity() const;

 private:
  void check_header();
  void check_sequences() const;
  void check_documents() const;
  std::string offset(const std::byte* array, int64_t item_bytes, int64_t i) const;
  [[noreturn]] void bad(const std::string& what, const std::string& hint = {}) const;

  fs::path prefix_;
  MappedFile idx_, bin_;
  DType dtype_ = DType::i32;
  int64_t num_sequences_ = 0, num_documents_ = 0, num_tokens_ = 0;
  // Into idx_; unaligned.
  const std::byte *lengths_ = nullptr, *pointers_ = nullptr, *bounds_ = nullptr, *modes_ = nullptr;
};

/// PREFIX + ".idx" and PREFIX + ".bin".
MT_API fs::path idx_path(const fs::path& prefix);
MT_API fs::path bin_path(const fs::path& prefix);
/// The prefix of a pair; `path` is the prefix or either file.
MT_API fs::path pair_prefix(const fs::path& path);

}  // namespace mtrain
