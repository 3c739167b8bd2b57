// TeacherStore: a folder with the most likely ids of a teacher's distributions, computed once
// (teacher_pass.h) and read by every run that distills from this teacher. Each file is a complete
// safetensors file with the samples of one rank, so a file that is there is whole, and what a
// killed job has not written is computed again. A sample is found by a digest of its tokens,
// targets and positions. Its order, seed, batch and layout therefore do not matter, and other data
// cannot be taken for it. Bytes of a token with a target: 6 k + 4.
//   metadata  version, teacher, tokenizer, top_k, temperature, vocabulary, seq_length, sha256 of
//             the first three tensors
//   keys      I64 [samples]       digests
//   ends      I64 [samples]       the end of each sample's tokens among those of the file
//   crc32c    I64 [samples]       of the sample's bytes in the next three tensors
//   ids       I32 [tokens, k]     ascending
//   logps     F16 [tokens, k]     log-probabilities at the temperature
//   rest      F32 [tokens]        the logarithm of the probability of all other ids
// The objects own their files. Const members are safe from any thread.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/data/loader.h"
#include "mtrain/train/top_k.h"

namespace mtrain {

/// What the distributions belong to.
struct TeacherIdentity {
  std::string teacher;    // a digest of its weights; empty: any that the folder has
  std::string tokenizer;  // a digest
  int64_t k = 0;
  double temperature = 1;
  int64_t vocabulary = 0;  // ids over which they are; 0: those of the folder
  int64_t seq_length = 0;
};

class MT_API TeacherStore {
 public:
  /// The file that a job is writing ends in this.
  static constexpr const char* kUnfinished = ".tmp";
  /// A digest of one row of a micro-batch.
  static int64_t key(const MicroBatch& batch, int64_t row);

  /// Opens all files of a folder, which may be missing or empty. Error(config) if one belongs to
  /// something else than `wanted`, Error(data) if one is damaged; both name the file and the
  /// remedy.
  TeacherStore(fs::path folder, const TeacherIdentity& wanted);
  const fs::path& folder() const { return folder_; }
  bool has(int64_t key) const { return places_.contains(key); }
  int64_t samples() const { return static_cast<int64_t>(places_.size()); }
  /// What its files belong to; without files, `wanted`.
  const TeacherIdentity& identity() const { return identity_; }
  /// The distributions of a micro-batch, one row for each of its tokens; without ids where the
  /// target is ignored. Error(data) if a sample is missing or damaged.
  TopKRows read(const MicroBatch& batch) const;

 private:
  struct File {
    SafetensorsFile file;
    std::vector<int64_t> ends, crc;
  };
  struct Place {
    uint32_t file = 0, sample = 0;
  };
  void open(const fs::path& path);
  void require_same(const SafetensorsFile& file);
  TopKRows read(const Place& place) const;

  fs::path folder_;
  TeacherIdentity identity_;
  std::vector<File> files_;
  std::unordered_map<int64_t, Place> places_;
};

/// Writes the samples of one rank as files of a store. Not synchronised.
class MT_API TeacherStoreWriter {
 public:
  /// `name`: of its files, unique among all writers of the folder, ever.
  TeacherStoreWriter(fs::path folder, TeacherIdentity identity, std::string name);
  /// Adds the tokens with a target of one row of a micro-batch, whose distributions begin at token
  /// row * seq_length of `rows`.
  void add(const MicroBatch& batch, int64_t row, const TopKRows& rows);
  uint64_t pending_bytes() const { return logps_.size() * 6; }
  /// Makes what was added a file of the folder; nothing if there is nothing.
  void flush();

 private:
  fs::path folder_;
  TeacherIdentity identity_;
  std::string name_;
  int64_t number_ = 0;
  std::vector<int64_t> keys_, ends_, crc_;
  std::vector<int32_t> ids_;
  std::vector<f16> logps_;
  std::vector<float> rest_;
};

}  // namespace mtrain
