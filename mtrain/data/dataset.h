// Dataset: a source of training samples. A plugin kind; the Registry makes it from the recipe's
// `dataset` section. A Dataset makes one SampleSource per split; the source owns or shares all that
// it reads, except the tokenizer, which must outlive it. Both are immutable: const members are safe
// from any thread, concurrently.
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

/// The inputs of a dataset's constructor, apart from its settings.
struct DatasetContext {
  int64_t seq_length = 0;                // tokens per sample
  uint64_t seed = 0;                     // for all random choices
  std::filesystem::path base_directory;  // the base of relative paths in the recipe
  const Tokenizer* tokenizer = nullptr;  // null: ids are not checked against a vocabulary
  int64_t labels =
      0;  // scores that the model gives a sequence or token (model.labels); 0: it predicts tokens
  bool labels_of_tokens = false;  // each token has the scores, not only the last (model.labels_of)
  /// The token before the decoder's text (model.decoder_start_token), if the model says one.
  std::optional<int32_t> decoder_start = {};
  std::string tokenizer_path = {};  // tokenizer.path, for messages; empty: it has none
  bool log_summary = true;          // whether to log a summary of the data; only one rank does
};

enum class Split : uint8_t { train, valid, test };
/// "train", "valid", "test".
MT_API const char* name(Split split);

/// The value of a target that is excluded from the loss.
inline constexpr int32_t kIgnoredTarget = -1;

/// One sample, filled in place: the caller sets the spans (seq_length elements each) to its own
/// memory.
struct Sample {
  std::span<int32_t> tokens;     // model input: ids of the vocabulary, also in padding
  std::span<int32_t> targets;    // the id to predict at each position, or kIgnoredTarget
  std::span<int32_t> positions;  // position of each token within its sequence: 0 to seq_length - 1
  /// the first index of each sequence: 0 first, ascending; attention never crosses a start
  std::vector<int32_t> starts;
  /// The number of padded positions at the end of the sample. They are not routed to experts. Their
  /// targets are kIgnoredTarget. 0 before get(), so a source without padding need not set it.
  int64_t padding = 0;
  /// The label of a sample with a single answer: true if the answer is good. For objectives over
  /// labeled answers. True before get(), so a source without labels need not set it.
  bool good = true;
  /// For a pair of answers and a model of scores: by how much the score of the chosen answer should
  /// exceed that of the rejected one. 0 before get(), so a source without margins need not set it.
  float margin = 0;
  /// The counter for this sample's random changes. A source that repeats another source's samples
  /// sets a different value for each repetition; empty: the index of the sample.
  std::optional<uint64_t> draw{};
};

class MT_API SampleSource {
 public:
  virtual ~SampleSource() = default;
  /// Number of samples, at least 1.
  virtual int64_t size() const = 0;
  /// Fills every member of `out`, Sample::padding only if there is some; the loader checks the
  /// values (check_sample()). REQUIRES: 0 <= index < size(). Throws Error(data) that names file,
  /// document and position.
  virtual void get(int64_t index, Sample& out) const = 0;
  /// True when training may continue after the last sample with the first one again: the loader
  /// then reads sample i % size(). Otherwise it throws Error(data).
  virtual bool repeats() const { return false; }
  /// Describes how the order depends on the number of requested samples: "2 epochs". Two sources of
  /// one dataset give the same samples in the same order when these texts are equal. Empty: the
  /// order does not depend on the number.
  virtual std::string order() const { return {}; }
};

/// A text that asks the model for an answer, as in the samples of a dataset. A value.
struct MT_API AskedPrompt {
  std::vector<int32_t> ids = {};   // up to the start of the answer
  std::vector<int32_t> ends = {};  // that end the answer, besides the end of a document
  std::string end_text = {};       // the text that ends the answer where no token does; empty: none
  bool turn = false;               // the answer is a turn of a conversation
  /// Removes the end of the answer, and blanks around a turn. True if end_text was there.
  bool trim_answer(std::string& text) const;
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
  /// The objective that its samples are made for. A trainer refuses a dataset whose objective it
  /// does not support.
  virtual std::string_view objective() const { return kNextToken; }
  /// The objective of language models: each position predicts its target from the tokens up to it
  /// in its sequence.
  static constexpr std::string_view kNextToken = "next token";
  /// The objective of encoders: a position whose token is masked predicts it from the tokens on
  /// both sides.
  static constexpr std::string_view kMaskedToken = "masked token";
  /// The objective of encoders with decoders: the last positions of a sample, from its last start
  /// on, belong to the decoder, and each predicts its target from the decoder's tokens up to it and
  /// from the sample's first sequence, which the encoder reads.
  static constexpr std::string_view kSequenceToSequence = "sequence to sequence";

  /// Samples of one record each, for objectives over answers (mtrain/optim/objective.h): the chosen
  /// and the rejected answer, each with its prompt, are the first two sequences; or one answer is
  /// the first one, with the label Sample::good. The targets are the answers' tokens. For a model
  /// of scores (DatasetContext::labels), each answer has one target instead: 0, at its last token.
  static constexpr std::string_view kPreferences = "preferences between answers";
  /// Samples of one record each, for a model of scores: a sequence whose only target, at its last
  /// token, is the number of its class, less than DatasetContext::labels.
  static constexpr std::string_view kClasses = "classes of sequences";
  /// Samples for a model of scores of single tokens: a target is the number of the class of the
  /// token at its own position, less than DatasetContext::labels; kIgnoredTarget: it has none.
  static constexpr std::string_view kTokenClasses = "classes of tokens";

  /// The text of the chat template with which the dataset formats conversations; empty: it has
  /// none. Checkpoints record it, and exports of the run contain it.
  virtual std::string chat_template() const { return {}; }

  /// A user's text as the samples have it before an answer, such as a turn of a chat template.
  /// Nothing: samples have texts as they are. Throws Error(data) for a template that cannot write
  /// it.
  virtual std::optional<AskedPrompt> ask(const std::string& /*text*/) const { return {}; }

  /// A JSON text that changes whenever the data or its order changes; saved in checkpoints and
  /// compared on resume.
  virtual std::string identity() const = 0;
  /// The same for only the samples before `consumed`, for a run that continues from there: later
  /// samples may change.
  virtual std::string identity_until(int64_t consumed) const;
};

}  // namespace mtrain
