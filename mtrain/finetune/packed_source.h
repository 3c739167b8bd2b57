// PackedSource: samples of seq_length tokens that hold one or several examples each. Shares
// ownership of its examples and packs. Immutable; get() is safe from any thread.
//
// An example of n ids takes n - 1 positions: each id but the last is an input, each but the first
// is a target. Every example is a separate sequence with positions from 0. The padding after the
// examples is also a separate sequence, and its targets are ignored. So the model's result for an
// example depends neither on its neighbours nor on the padding.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "mtrain/data/dataset.h"
#include "mtrain/finetune/example.h"
#include "mtrain/finetune/packing.h"

namespace mtrain::finetune {

/// Tokenized examples, stored contiguously. Value.
class MT_API ExampleStore {
 public:
  /// REQUIRES: at least two ids.
  void add(const TokenizedExample& example);
  int64_t size() const { return static_cast<int64_t>(begin_.size()) - 1; }
  int64_t num_tokens() const { return begin_.back(); }
  std::span<const int32_t> ids(int64_t example) const;
  std::span<const uint8_t> trained(int64_t example) const;
  /// The number of positions that it takes in a sample.
  int32_t length(int64_t example) const { return static_cast<int32_t>(ids(example).size()) - 1; }

 private:
  std::vector<int32_t> ids_;
  std::vector<uint8_t> trained_;
  std::vector<int64_t> begin_{0};
};

/// The order of samples. Without a shuffle they come in order, epoch after epoch.
struct MT_API SampleOrder {
  int64_t num_samples = Dataset::kOneEpoch;
  std::optional<uint64_t> shuffle_seed;  // a new order for each epoch
  /// The number of samples, in whole epochs of `count`. REQUIRES: count > 0.
  int64_t size(int64_t count) const;
  /// Which of `count` samples comes at `index`.
  int64_t item(int64_t index, int64_t count) const;
};

/// A number of samples in epochs of `per_epoch`, to the nearest hundredth: "1 epoch", "1.67
/// epochs".
MT_API std::string epochs_text(int64_t samples, int64_t per_epoch);

class MT_API PackedSource final : public SampleSource {
 public:
  /// REQUIRES: every pack fits a sample of seq_length; there is at least one.
  /// `good`: for each example whether it is a good answer, of packs of one example; empty: all are.
  /// `margins`: for each pair of examples, of packs of one pair; empty: all are 0.
  PackedSource(std::shared_ptr<const ExampleStore> store, std::shared_ptr<const Packs> packs,
               SampleOrder order, int32_t pad_id, std::vector<bool> good = {},
               std::vector<float> margins = {});
  int64_t size() const override { return size_; }
  void get(int64_t index, Sample& out) const override;

 private:
  std::shared_ptr<const ExampleStore> store_;
  std::shared_ptr<const Packs> packs_;
  SampleOrder order_;
  int32_t pad_id_;
  int64_t size_;
  std::vector<bool> good_;
  std::vector<float> margins_;
};

/// The example for a model that scores sequences: all ids are inputs, and the only target, at the
/// last one, is `target`.
MT_API TokenizedExample scored_example(TokenizedExample example, int32_t target);
/// Writes one example into a sample from position `at` on; returns the position after it.
MT_API size_t write_example(std::span<const int32_t> ids, std::span<const uint8_t> trained,
                            size_t at, Sample& out);
/// Fills the rest of a sample with padding.
MT_API void write_padding(size_t at, int32_t pad_id, Sample& out);

}  // namespace mtrain::finetune
