// The order of training samples, identical to Megatron's GPTDataset and BlendedDataset: the same
// files, seed and sizes give the same samples in the same order. The tokens of an epoch's shuffled
// documents are concatenated and split into samples of seq_length + 1 tokens that overlap by one;
// then the samples are shuffled. Pure functions in linear time; results are plain data that own
// their memory, safe to read from any thread.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/data/dataset.h"

namespace mtrain {

struct GptIndexConfig {
  int64_t seq_length = 0;
  int64_t num_samples = Dataset::kOneEpoch;  // the minimum number of samples
  uint32_t seed = 0;
  bool drop_last = true;  // drop an incomplete last sample
  /// 1: each sample has one token more than seq_length, the target of its last input
  int64_t extra_tokens = 1;
};

/// The beginning of a sample: an index into GptIndex::documents, and a token offset in that
/// document.
struct SampleStart {
  uint32_t position;
  int32_t offset;
  bool operator==(const SampleStart&) const = default;
};

struct GptIndex {
  /// the documents of all epochs in reading order, as indices of sequences in the file
  std::vector<int32_t> documents;
  /// one element more than samples: sample i ends where sample i + 1 begins
  std::vector<SampleStart> samples;
  std::vector<uint32_t> shuffle;  // item i of the dataset is sample shuffle[i]
  int64_t num_epochs = 0, tokens_per_epoch = 0;
  /// true when less than 80 % of the last epoch is used: it is shuffled separately, after the
  /// others
  bool separate_last_epoch = false;
};

/// `lengths`: the tokens of each sequence of the split; `first`: the index of its first sequence in
/// the file. Error(data) when the split has no full sample; Error(config) when the index would
/// overflow.
MT_API GptIndex build_gpt_index(std::span<const int32_t> lengths, int64_t first,
                                const GptIndexConfig& config);

/// Only the sample index. `documents` are indices into `lengths`. REQUIRES: tokens_per_epoch is the
/// sum of lengths over one epoch.
MT_API std::vector<SampleStart> build_sample_index(std::span<const int32_t> lengths,
                                                   std::span<const int32_t> documents,
                                                   int64_t num_epochs, int64_t tokens_per_epoch,
                                                   const GptIndexConfig& config);

/// A half-open range of sequences.
struct SequenceRange {
  int64_t begin, end;
  bool operator==(const SequenceRange&) const = default;
};
/// Splits `count` sequences into train, valid and test by shares such as "969,30,1" (missing ones
/// are 0). Bounds are rounded to the nearest integer, ties to even. Error(config) for a malformed
/// text.
MT_API std::array<SequenceRange, 3> split_ranges(std::string_view shares, int64_t count);

/// Item i of a blend is sample `sample[i]` of dataset `dataset[i]`.
struct BlendIndex {
  std::vector<int16_t> dataset;
  std::vector<int64_t> sample;
};
/// Mixes by weights: each item comes from the dataset that is furthest behind its share; on a tie,
/// from the first one. A dataset of weight 0 gives no item. REQUIRES: a weight is above 0.
MT_API BlendIndex blend(std::span<const double> normalized_weights, int64_t size);
/// A number of samples that are mixed by these (normalized) weights.
struct BlendPhase {
  int64_t samples = 0;
  std::vector<double> weights;
  bool operator==(const BlendPhase&) const = default;
};
/// Mixes phase after phase. Each dataset continues where the previous phase stopped, so no sample
/// occurs twice. A phase does not depend on later ones. REQUIRES: all phases have the same number
/// of weights.
MT_API BlendIndex blend_phases(std::span<const BlendPhase> phases);
/// Mixes by sizes so that every sample of every dataset occurs exactly once.
MT_API BlendIndex blend_exhaustive(std::span<const int64_t> sizes);
/// The weights divided by their sum, which is computed in numpy's pairwise order. Error(config)
/// that names the setting when a weight is negative or all are zero.
MT_API std::vector<double> normalize_weights(std::span<const double> weights,
                                             const std::string& setting = "dataset.weights");
/// The number of samples that a blend of `size` samples expects of a dataset: ceil(size * weight).
MT_API int64_t blend_share(int64_t size, double weight);
/// The number to prepare: half a percent more, since a blend sometimes exceeds a share.
MT_API int64_t blend_share_with_surplus(int64_t size, double weight);

}  // namespace mtrain
