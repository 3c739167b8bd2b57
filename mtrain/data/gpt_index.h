// The order of training samples, as Megatron's GPTDataset and BlendedDataset define it, number for
// number: the same files, seed and sizes give the same samples in the same order. All tokens of an
// epoch's shuffled documents are laid end to end and cut into samples of seq_length + 1 tokens that
// overlap by one; the samples are then shuffled. Pure functions in linear time; results are plain
// data, immutable once built, safe to read from any thread.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"
#include "mtrain/data/dataset.h"

namespace mtrain {

struct GptIndexConfig {
  int64_t seq_length = 0;
  int64_t num_samples = Dataset::kOneEpoch;  // at least this many are made
  uint32_t seed = 0;
  bool drop_last = true;  // leave out a last sample that the data cannot fill
  /// 1: each sample has one token more than seq_length, the target of its last input
  int64_t extra_tokens = 1;
};

/// Where a sample begins: a place in GptIndex::documents, and a token offset in that document.
struct SampleStart {
  uint32_t position;
  int32_t offset;
  bool operator==(const SampleStart&) const = default;
};

struct GptIndex {
  /// the documents of all epochs in reading order, as indices of sequences in the file
  std::vector<int32_t> documents;
  /// one more than there are samples: sample i ends where sample i + 1 begins
  std::vector<SampleStart> samples;
  std::vector<uint32_t> shuffle;  // item i of the dataset is sample shuffle[i]
  int64_t num_epochs = 0, tokens_per_epoch = 0;
  /// the last epoch is used so little that it is shuffled by itself, after the others
  bool last_epoch_apart = false;
};

/// `lengths`: tokens of each sequence of the split; `first`: the index in the file of the first of
/// them. Error(data) when they hold no full sample; Error(config) when more is asked than an index
/// can count.
MT_API GptIndex build_gpt_index(std::span<const int32_t> lengths, int64_t first,
                                const GptIndexConfig& config);

/// The sample index alone. `documents` index `lengths`. REQUIRES: tokens_per_epoch is the sum of
/// lengths over one epoch.
MT_API std::vector<SampleStart> build_sample_index(std::span<const int32_t> lengths,
                                                   std::span<const int32_t> documents,
                                                   int64_t num_epochs, int64_t tokens_per_epoch,
                                                   const GptIndexConfig& config);

/// A half-open range of sequences.
struct SequenceRange {
  int64_t begin, end;
  bool operator==(const SequenceRange&) const = default;
};
/// The shares of train, valid and test written as "969,30,1" (missing ones are 0), applied to
/// `count` sequences; ends are rounded to the nearest, ties to even. Error(config) for a malformed
/// text.
MT_API std::array<SequenceRange, 3> split_ranges(std::string_view shares, int64_t count);

/// Item i of a blend is sample `sample[i]` of dataset `dataset[i]`.
struct BlendIndex {
  std::vector<int16_t> dataset;
  std::vector<int64_t> sample;
};
/// Mixes by weights: each item goes to the dataset that lags its share most, the first of them on a
/// tie.
MT_API BlendIndex blend(std::span<const double> normalized_weights, int64_t size);
/// So many samples mixed by these (normalized) weights.
struct BlendPhase {
  int64_t samples = 0;
  std::vector<double> weights;
  bool operator==(const BlendPhase&) const = default;
};
/// Phase after phase, each dataset going on where the phase before left it: no sample of a dataset
/// comes twice. What comes in a phase depends on no later one. REQUIRES: all have the same number
/// of weights.
MT_API BlendIndex blend_phases(std::span<const BlendPhase> phases);
/// Mixes by sizes so that every sample of every dataset occurs exactly once.
MT_API BlendIndex blend_exhaustive(std::span<const int64_t> sizes);
/// Weights divided by their sum, added in numpy's pairwise order. Error(config) when one is
/// negative or all are zero.
MT_API std::vector<double> normalize_weights(std::span<const double> weights);
/// How many samples of a dataset a blend of `size` samples counts on: ceil(size * weight).
MT_API int64_t blend_share(int64_t size, double weight);
/// How many are to be prepared for it: half a percent more, since the blend overshoots a share now
/// and then.
MT_API int64_t blend_share_with_surplus(int64_t size, double weight);

}  // namespace mtrain
