// Dataset: where training samples come from. A plugin kind; made by the Registry from the recipe's
// `dataset` section. A Dataset makes one SampleSource per split; the source keeps alive what it
// reads, but not the tokenizer. Both are immutable once made: const members are safe from any
// thread, concurrently.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/export.h"

namespace mtrain {

class Tokenizer;

/// What the maker of a dataset is given.
struct DatasetContext {
  int64_t seq_length = 0;                // tokens per sample
  uint64_t seed = 0;                     // of every random choice
  std::filesystem::path base_directory;  // relative paths in the recipe start here
  const Tokenizer* tokenizer =
      nullptr;       // may be null: then ids are not checked against a vocabulary
  bool tell = true;  // whether to log what was found in the data; of several ranks one does
};

enum class Split : uint8_t { train, valid, test };
/// "train", "valid", "test".
MT_API const char* name(Split split);

/// A target that takes no part in the loss.
inline constexpr int32_t kIgnoredTarget = -1;

/// One sample, filled in place: the caller points the spans (seq_length each) at its own memory.
struct Sample {
  std::span<int32_t> tokens;     // model input
  std::span<int32_t> targets;    // the id to predict at each place, or kIgnoredTarget
  std::span<int32_t> positions;  // position of each token within its sequence
  /// where each sequence begins: 0 first, ascending; attention never crosses a start
  std::vector<int32_t> starts;
  /// What a source draws this sample's random changes by. A source that gives another's samples
  /// several times says which time this is; empty: the sample's own number.
  std::optional<uint64_t> draw{};
};

class MT_API SampleSource {
 public:
  virtual ~SampleSource() = default;
  /// Number of samples, at least 1.
  virtual int64_t size() const = 0;
  /// Fills every member of `out`. REQUIRES: 0 <= index < size(). Throws Error(data) naming file,
  /// document and position.
  virtual void get(int64_t index, Sample& out) const = 0;
  /// Whether sample i is sample i % size() beyond the end; otherwise reading beyond the end is an
  /// error.
  virtual bool repeats() const { return false; }
  /// Where the order depends on the number of requested samples: what of it decides, in words: "2
  /// epochs". Two sources of one dataset give the same samples in the same order where their texts
  /// are equal. Empty: the number changes nothing.
  virtual std::string order() const { return {}; }
};

class MT_API Dataset {
 public:
  static constexpr std::string_view kKind = "dataset";
  static constexpr int64_t kOneEpoch = -1;
  using Context = DatasetContext;
  virtual ~Dataset() = default;

  /// The samples of one split: at least `num_samples` of them (the data repeats as needed), or each
  /// once for kOneEpoch. Throws Error(data) when the split is empty or cannot fill one sample.
  virtual std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const = 0;
  /// What its samples are to be trained by. A trainer refuses a dataset whose objective it does not
  /// have.
  virtual std::string_view objective() const { return kNextToken; }
  /// The objective of language models: each place predicts its target from what stands before it in
  /// its sequence.
  static constexpr std::string_view kNextToken = "next token";
  /// The objective of encoders: a place whose token was hidden predicts it from what stands on both
  /// sides.
  static constexpr std::string_view kMaskedToken = "masked token";

  /// A JSON text that changes when the data or its order does: kept in checkpoints and compared at
  /// resume.
  virtual std::string identity() const = 0;
  /// The same of the samples before `consumed` alone, for a run that goes on from there: what is
  /// planned for later may change.
  virtual std::string identity_until(int64_t consumed) const;
};

}  // namespace mtrain
