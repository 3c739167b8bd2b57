// Packed records on disk. `mtrain data pack --output` writes them; the sft dataset reads them
// without tokenizing. Four files and a manifest:
//
//   PREFIX.bin, .idx          the ids: a sequence per record, a document per pack
//                             (mtrain/data/indexed_file.h)
//   PREFIX.learnt.bin, .idx   the loss mask, in the same sequences: 1 where an id is trained on
//   PREFIX.packed.json        tokenizer, encoding, length of samples, source, sizes, checksums
//
// PREFIX.idx is renamed into place last. So an interrupted write leaves no .idx and the next writer
// replaces its files, and an existing .idx implies that the other files are complete.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/data/indexed_file.h"
#include "mtrain/finetune/packed_source.h"

namespace mtrain::finetune {

/// The inputs that packs were made from. Value.
struct PackedOrigin {
  std::string tokenizer, encoding;  // identities of the Tokenizer and of the ExampleEncoder
  std::string chat_template;        // its name, for messages; empty: none
  int64_t vocab_size = 0;           // of the tokenizer
  int64_t seq_length = 0;           // positions of a sample
  /// Settings of the dataset that determine the packs, by name, as texts. A writer stores all of
  /// them; a reader passes those that its recipe sets to other values than the defaults.
  std::map<std::string, std::string> settings;
  fs::path source;            // the records
  std::string source_sha256;  // of them
};

/// True when packs of this name were written or begun.
MT_API bool is_packed(const fs::path& prefix);

/// Writes packs atomically. Error(io) when the files exist (unless `overwrite`), when another
/// process writes them, or when the folder cannot be written. Failpoints: those of IndexedWriter,
/// once for the ids and once for the masks, and those of write_file_atomic under `packed`.
MT_API void write_packed(const fs::path& prefix, const ExampleStore& examples, const Packs& packs,
                         const PackedOrigin& origin, bool overwrite);

/// Packs, mapped read-only and checked completely when opened. Owns the mappings. Immutable: const
/// members are safe from any thread.
class MT_API PackedFile {
 public:
  /// `wanted`: the origin that the reader expects; its source is ignored. Error(config) when the
  /// tokenizer, encoding, length of samples or one of the settings differs, or a setting is not
  /// recorded. Error(data) with file and position for damage, and for a source that still exists
  /// and has changed since.
  PackedFile(const fs::path& prefix, const PackedOrigin& wanted);
  /// Checks the files, the manifest and the checksums of packs of any origin, and that ids are
  /// below `vocab_size` (0: any ids). Error(data) with file and position for damage.
  static void verify(const fs::path& prefix, int64_t vocab_size);
  int64_t size() const { return ids_.num_documents(); }
  int64_t num_records() const { return ids_.num_sequences(); }
  /// Changes whenever the content changes.
  const std::string& digest() const { return digest_; }
  /// "data/chats (packed): 990 records in 120 packs, 12345 of 54321 tokens are trained on; …"
  std::string summary() const;
  /// Fills a sample with a pack. REQUIRES: 0 <= pack < size().
  void fill(int64_t pack, int32_t pad_id, Sample& out) const;

 private:
  struct Manifest;
  explicit PackedFile(const fs::path& prefix);
  Manifest read_manifest();
  void check_origin(const Manifest& manifest, const PackedOrigin& wanted) const;
  void check_packs(const Manifest& manifest, int64_t vocab_size);
  TokenizedExample read(int64_t record) const;

  fs::path prefix_;
  IndexedFile ids_, trained_;
  std::string digest_;
  int64_t num_trained_ = 0;
};

/// Packs of a file as samples.
class MT_API PackedFileSource final : public SampleSource {
 public:
  /// `packs`: those that take part; at least one.
  PackedFileSource(std::shared_ptr<const PackedFile> file, std::vector<int32_t> packs,
                   SampleOrder order, int32_t pad_id);
  int64_t size() const override { return size_; }
  void get(int64_t index, Sample& out) const override;

 private:
  std::shared_ptr<const PackedFile> file_;
  std::vector<int32_t> packs_;
  SampleOrder order_;
  int32_t pad_id_;
  int64_t size_;
};

}  // namespace mtrain::finetune
