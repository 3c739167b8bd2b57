// Loader: the micro-batches of each step, on the host. Global batch i holds the samples [cursor,
// cursor + global) of the source for every layout; data-parallel rank r reads the r-th contiguous
// chunk of them. A worker thread prepares the next step while the current one is used. Refers to
// the source, which must outlive it. Not synchronised: one thread at a time.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/data/dataset.h"

namespace mtrain {

/// One micro-batch: `rows` concatenated samples; T = rows * seq_length.
struct MicroBatch {
  std::vector<int32_t> tokens, targets, positions;  // [rows * seq_length]
  std::vector<int32_t>
      cu_seqlens;          // sequence i is [cu_seqlens[i], cu_seqlens[i + 1]); 0 first, T last
  int32_t max_seqlen = 0;  // the longest sequence
  std::vector<int32_t> padding;  // [rows], the padded positions at the end of each row; empty: none
  std::vector<uint8_t> good = {};   // [rows], Sample::good
  std::vector<float> margins = {};  // [rows], Sample::margin
  int64_t num_target_tokens = 0;    // targets that are not kIgnoredTarget
  int64_t first_sample = 0;         // index of the first row in the source
  int64_t rows = 0, seq_length = 0;
};

struct LoaderConfig {
  int64_t seq_length = 0;
  int64_t micro_batch_size = 1;   // samples per micro-batch
  int64_t num_micro_batches = 1;  // micro-batches per step and rank
  int64_t dp_rank = 0, dp_size = 1;
  bool prefetch = true;
  int64_t vocab_size = 0;   // ids must be less than this; 0: only negative ids are refused
  bool mismatched = false;  // whether to make Loader::mismatched(), of Dataset::kPreferences
  /// Samples per step over all ranks.
  int64_t global_batch_size() const { return micro_batch_size * num_micro_batches * dp_size; }
};

class MT_API Loader {
 public:
  /// Starts at `consumed_samples`, the number of samples that all ranks together have used so far.
  Loader(const SampleSource& source, LoaderConfig config, int64_t consumed_samples = 0);
  ~Loader();
  Loader(Loader&&) noexcept;

  /// This rank's micro-batches of the next step, valid until the next call. Allocates nothing after
  /// the first calls. Throws Error(data) when the source is exhausted, Error(plugin) when it fills
  /// a sample wrongly (check_sample()), and what the source throws.
  std::span<const MicroBatch> next();
  /// With LoaderConfig::mismatched: the micro-batches of the last next() again, in which each
  /// sample's prompts have the answers of the sample before it in the global batch (of its first
  /// sample, those of its last), as mismatch() makes them. Which samples these are depends neither
  /// on the ranks nor on the micro-batches. Valid until the next call of next(). Empty without it.
  std::span<const MicroBatch> mismatched() const;
  /// The cursor: the number of samples returned so far, over all ranks. Saved in checkpoints.
  int64_t consumed_samples() const;
  /// Moves the cursor; drops prefetched micro-batches.
  void seek(int64_t consumed_samples);
  const LoaderConfig& config() const;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace mtrain
