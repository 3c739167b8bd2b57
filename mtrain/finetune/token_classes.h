// Words with classes: reads and encodes them, for a model of scores of single tokens. Stateless
// functions over values; a LabeledFile is immutable and safe from any thread.
//
//   {tokens: ["EU", "rejects"], labels: ["B-ORG", "O"]}: a label is the number of the class, or one
//   of dataset.labels; null and -100: the word has none
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/finetune/packed_source.h"
#include "mtrain/finetune/record_file.h"
#include "mtrain/finetune/record_files.h"

namespace mtrain::finetune {

struct MT_API LabeledSettings : RecordFiles {
  std::string tokens_field = "tokens", labels_field, separator = " ", labeled = "first",
              packing = "none", too_long = "truncate", on_bad = "fail";
  int64_t max_bad = 1000;
  std::vector<std::string> labels;
  void bind(Fields& f);
};

/// A text's tokens, and the class of each; kIgnoredTarget: none.
struct LabeledText {
  std::vector<int32_t> ids, classes;
};

struct MT_API LabeledFile {
  fs::path path;
  std::string digest;
  int64_t records = 0, bad = 0, too_long = 0;  // too_long: truncated or left out
  int64_t truncated_labeled = 0;               // tokens with a class that truncation removed
  int64_t unlabeled = 0;                       // left out: no token has a class
  int64_t words = 0,
          lost_words = 0;         // with a class; lost_words: those without a token of their own
  std::vector<int64_t> of_class;  // tokens that are left, by class
  std::shared_ptr<const std::vector<LabeledText>> texts;
  int64_t size() const { return texts ? static_cast<int64_t>(texts->size()) : 0; }
  std::string summary(const LabeledSettings& settings, int64_t seq_length) const;
  /// Logs the summary, as a warning if classes are lost with the ends of long records.
  void log_summary(const LabeledSettings& settings, int64_t seq_length) const;
};

/// Encodes words as one text with `separator` between them, with the special tokens that the
/// tokenizer adds. The class of a word is that of its first token. `further`: by class, that of the
/// word's other tokens; empty: they have none. A token belongs to the first word with which it
/// shares a character. If that word has its class already and gives none to further tokens, the
/// token belongs to the next word that begins inside it. `lost`: the number of words with a class
/// and without a token is added. REQUIRES: as many classes as words.
MT_API LabeledText encode_words(const std::vector<std::string>& words,
                                const std::vector<int32_t>& classes, const std::string& separator,
                                std::span<const int32_t> further, const Tokenizer& tokenizer,
                                int64_t& lost);

/// Throws Error(data) with file and line, also when no record is left. `classes`: model.labels.
MT_API LabeledFile load_labeled_file(const fs::path& path, const LabeledSettings& settings,
                                     const Tokenizer& tokenizer, int64_t seq_length,
                                     int64_t classes);

/// Samples of these texts. Immutable; get() is safe from any thread.
class MT_API LabeledSource final : public SampleSource {
 public:
  /// `packs`: of texts that fit into a sample; at least one.
  LabeledSource(std::shared_ptr<const std::vector<LabeledText>> texts, Packs packs,
                SampleOrder order, int32_t pad_id);
  int64_t size() const override { return size_; }
  void get(int64_t index, Sample& out) const override;

 private:
  std::shared_ptr<const std::vector<LabeledText>> texts_;
  Packs packs_;
  SampleOrder order_;
  int32_t pad_id_;
  int64_t size_;
};

}  // namespace mtrain::finetune
