// ReferenceLogps: the log-probabilities of answers under the initial model, by the content of their
// samples, so that neither the order of samples nor the layout matters. Kept in the run's folder as
// a safetensors file with a digest. A value; not synchronised.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/base/file.h"
#include "mtrain/comm/communicator.h"

namespace mtrain {

class MT_API ReferenceLogps {
 public:
  /// Sums over the tokens of a sample's answers; `rejected` is 0 if there is only one.
  struct Entry {
    double chosen = 0, rejected = 0;
  };
  /// Identifies a sample by its tokens and targets.
  static int64_t key(std::span<const int32_t> tokens, std::span<const int32_t> targets);

  bool empty() const { return entries_.empty(); }
  void add(int64_t key, Entry entry) { entries_[key] = entry; }
  /// Null if there is none.
  const Entry* find(int64_t key) const;

  /// The file within a run's folder.
  static fs::path file_in(const fs::path& run) { return run / "reference.safetensors"; }
  /// Replaces the file. `data`: the identity of the dataset, for the reader.
  void write(const fs::path& file, const std::string& data) const;
  /// Error(checkpoint) if the file is absent or damaged.
  static ReferenceLogps read(const fs::path& file);
  /// Collective: rank 0 reads the file; all ranks get the values, or fail.
  static ReferenceLogps read(const fs::path& file, Communicator& ranks);

  /// The number of samples of the training and of the validation data that it covers, from the
  /// first one on.
  int64_t train_samples = 0, valid_samples = 0;
  /// The sizes of the global batches in whose neighbors it was computed, in words, where that
  /// matters to the objective; empty otherwise, and in files of older versions.
  std::string train_batches, valid_batches;

 private:
  std::map<int64_t, Entry> entries_;
};

}  // namespace mtrain
