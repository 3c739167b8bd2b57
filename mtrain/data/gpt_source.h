// Sources over indexed files: one split of one file in GptIndex order, and a blend of several
// sources. A source owns or shares its files and indices. Immutable; get() is safe from any thread
// and allocates nothing when the caller reuses its Sample.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "mtrain/data/dataset.h"
#include "mtrain/data/fim.h"
#include "mtrain/data/gpt_index.h"
#include "mtrain/data/indexed_file.h"

namespace mtrain {

/// The settings of a source. The reset and mask settings say what happens at an end-of-document
/// token among the inputs of a sample, like Megatron's settings of the same names.
struct GptSourceConfig {
  int64_t seq_length = 0;
  std::optional<int32_t> eod;               // required by the next three settings
  bool reset_position_ids = false;          // positions restart from 0 after it
  bool reset_attention_mask = false;        // a new sequence starts after it
  bool eod_mask_loss = false;               // the target at its position is ignored
  int64_t vocab_size = 0;                   // ids must be less than this; 0: not checked
  std::shared_ptr<const FimTransform> fim;  // rearranges the texts of each sample; null: no change
  int64_t extra_tokens = 1;  // the same as in the index; 0: the last input has no target
};

class MT_API GptSource final : public SampleSource {
 public:
  /// REQUIRES: `index` was built for sequences of `file` with the same seq_length and extra_tokens.
  GptSource(std::shared_ptr<const IndexedFile> file, GptIndex index, GptSourceConfig config);
  int64_t size() const override { return static_cast<int64_t>(index_.shuffle.size()); }
  void get(int64_t index, Sample& out) const override;
  std::string order() const override;
  const GptIndex& index() const { return index_; }

 private:
  int64_t copy_tokens(SampleStart begin, SampleStart end, Sample& out) const;
  void copy_part(int32_t sequence, int64_t offset, std::span<int32_t> out) const;
  void rearrange(size_t sample, int64_t count, Sample& out) const;
  void mark_documents(Sample& out) const;

  std::shared_ptr<const IndexedFile> file_;
  GptIndex index_;
  GptSourceConfig config_;
};

/// Repeats a source epoch after epoch, each in its own order. The order does not depend on the
/// number of requested samples.
class MT_API EpochSource final : public SampleSource {
 public:
  /// Has at least `num_samples` samples. The order is a function of `seed`, `stream` and the epoch.
  EpochSource(std::unique_ptr<SampleSource> epoch, int64_t num_samples, uint64_t seed,
              std::string_view stream);
  int64_t size() const override { return size_; }
  void get(int64_t index, Sample& out) const override;

 private:
  std::unique_ptr<SampleSource> epoch_;
  int64_t size_;
  uint64_t seed_, stream_;
};

class MT_API BlendSource final : public SampleSource {
 public:
  /// `sources`: null where `index` has no sample of it. REQUIRES: every sample in `index` exists in
  /// its source.
  BlendSource(std::vector<std::unique_ptr<SampleSource>> sources, BlendIndex index);
  int64_t size() const override { return static_cast<int64_t>(index_.dataset.size()); }
  void get(int64_t index, Sample& out) const override;
  std::string order() const override;

 private:
  std::vector<std::unique_ptr<SampleSource>> sources_;
  BlendIndex index_;
};

}  // namespace mtrain
