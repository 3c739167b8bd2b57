// IndexedWriter: writes a PREFIX.bin / PREFIX.idx pair (indexed_file.h), byte for byte like
// Megatron's builder. Tokens are written to PREFIX.bin.partial as they arrive. finish() makes both
// files durable, then renames .bin first and .idx last: the rename of .idx commits the pair, so an
// existing .idx never describes missing tokens. Memory: a few megabytes for any amount of data
// (spill.h). The destructor of an unfinished writer removes its partial files; after a kill the
// next writer replaces them. Not synchronised: one thread at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mtrain/base/dtype.h"
#include "mtrain/base/file.h"
#include "mtrain/data/spill.h"

namespace mtrain {

/// The element type in which Megatron stores ids of a vocabulary: uint16 below 65500, else int32.
MT_API DType token_dtype(int64_t vocab_size);

class MT_API IndexedWriter {
 public:
  struct Options {
    bool modes = false;      // write the mode of each sequence (multimodal files)
    bool overwrite = false;  // replace an existing pair
  };

  /// Error(io) when the pair exists (unless `overwrite`), when another writer is writing it, or
  /// when the folder cannot be written.
  IndexedWriter(const fs::path& prefix, DType dtype, Options options);
  IndexedWriter(const fs::path& prefix, DType dtype) : IndexedWriter(prefix, dtype, Options{}) {}
  ~IndexedWriter();
  IndexedWriter(const IndexedWriter&) = delete;
  IndexedWriter& operator=(const IndexedWriter&) = delete;

  /// Appends one sequence to the current document. Error(data) for an id that does not fit the
  /// element type.
  void add_sequence(std::span<const int32_t> ids, int8_t mode = 0);
  /// Ends the current document, which may be empty.
  void end_document();
  /// Commits the pair. REQUIRES: called once; every sequence belongs to an ended document.
  void finish();

  int64_t num_sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t num_documents() const { return static_cast<int64_t>(bounds_.size()) - 1; }
  int64_t num_tokens() const { return num_tokens_; }
  uint64_t bin_bytes() const { return static_cast<uint64_t>(num_tokens_) * size_of(dtype_); }

 private:
  void flush();
  void write_index();
  fs::path prefix_;
  DType dtype_;
  Options options_;
  int lock_ = -1;  // descriptor of the .idx.partial, locked
  std::unique_ptr<FileWriter> bin_;
  std::vector<std::byte> buffer_;
  Spill<int32_t> lengths_;
  Spill<int64_t> bounds_;
  Spill<int8_t> modes_;
  int64_t num_tokens_ = 0;
  bool bin_renamed_ = false, finished_ = false;
};

}  // namespace mtrain
