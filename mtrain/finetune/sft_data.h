// The data of supervised fine-tuning: settings; reading, encoding and packing of files; counts of
// omitted records. Shared by the sft plugin and `mtrain data`. Stateless functions over values;
// safe from any thread.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/config/fields.h"
#include "mtrain/config/tree.h"
#include "mtrain/data/dataset.h"
#include "mtrain/finetune/example_encoder.h"
#include "mtrain/finetune/packed_file.h"
#include "mtrain/finetune/record_files.h"
#include "mtrain/finetune/record_format.h"

namespace mtrain::finetune {

/// Settings shared by all datasets of records. Value.
struct MT_API RecordSettings : RecordFiles {
  Node columns, roles;
  std::string chat_template, template_path, template_name = "default", date = "2024-07-26", prompt,
                                            on_bad = "fail";
  int64_t max_bad = 1000;
  bool parse_special = false;
  void bind(Fields& f);
  FormatOptions format_options() const;
  /// Warnings of settings of a chat template, for records without conversations. `what`: the file.
  std::vector<std::string> unused_templates(const std::string& what) const;
  EncoderOptions encoder_options(const fs::path& base_directory) const;
};

/// Settings of the sft dataset. Value.
struct MT_API SftSettings {
  RecordSettings records;
  std::string format = "auto", train_on = "assistant", packing = "auto", too_long = "truncate";
  int64_t packed_length = 0;
  void bind(Fields& f);
  /// The number of positions of a sample that records may fill: packed_length if it is set and
  /// packing=offline, otherwise `seq_length`.
  int64_t pack_length(int64_t seq_length) const;
};

/// Counts of the records of a file.
struct SftCounts {
  int64_t records = 0;            // of the file, including the omitted ones
  int64_t bad = 0;                // omitted: cannot be read or rendered
  int64_t truncated = 0;          // truncated to fit a sample; some trained tokens are left
  int64_t truncated_trained = 0;  // trained tokens that were lost by truncation
  int64_t trained_beyond = 0;     // omitted: truncation would remove all trained tokens
  int64_t too_long = 0;           // omitted: too long
  int64_t untrained = 0;          // omitted: no trained tokens
  int64_t chats = 0;              // read as conversations, which a chat template renders
  int64_t trained_tokens = 0, tokens = 0;                     // of the remaining records
  std::string first_truncated_trained, first_trained_beyond;  // locations of the first such records
};

/// One file, encoded. Immutable once made.
struct MT_API SftFile {
  fs::path path;
  std::string format, digest;
  SftCounts counts;
  int64_t longest = 0;  // the largest number of tokens of a record that fits into a sample
  std::string limited_by = "model.seq_length";  // the settings that determine `longest`
  std::shared_ptr<const ExampleStore> examples;
  std::vector<std::string> places;  // the location of each example; only with keep_places
  std::vector<std::string> unused;  // warnings: settings without effect, records without use
  /// How the model sees them: "alpaca records are trained in Stanford Alpaca's prompt"
  std::string form;
  /// "chats.jsonl (openai): 990 of 1000 records, 12345 of 54321 tokens are trained on; 10 truncated
  /// to 4097 tokens; …"
  std::string summary() const;
  /// Logs the summary; as a warning with a remedy if truncation removed trained tokens. Logs
  /// `unused`.
  void log_summary() const;
  void log_unused() const;
};

/// Reads and encodes a file. `seq_length`: positions of a sample. Throws Error(data) with file and
/// line, also when no record is left; Error(config) for invalid settings.
MT_API SftFile load_sft_file(const fs::path& path, const SftSettings& settings,
                             const ExampleEncoder& encoder, int64_t seq_length,
                             bool keep_places = false);
/// Makes the encoder. With context.log_summary, warns about special tokens of the chat template
/// that the tokenizer does not have.
MT_API ExampleEncoder make_encoder(const SftSettings& settings, const DatasetContext& context);
/// Resolves `path` relative to the recipe.
MT_API fs::path record_path(const std::string& path, const DatasetContext& context);
/// The origin of packs with these settings, without the source. Contains only the settings that
/// differ from their defaults.
MT_API PackedOrigin packed_origin(const SftSettings& settings, const ExampleEncoder& encoder,
                                  const DatasetContext& context);
/// All settings that determine the packs of a file, for PackedOrigin::settings.
MT_API std::map<std::string, std::string> packed_settings(const SftSettings& settings,
                                                          const SftFile& file, int64_t seq_length);
/// The examples of one split of `count` examples, with shares such as "90,10,0". The choice depends
/// only on the number of examples, not on the seed. A split with a share above 0 has at least one
/// example if there are enough. `what`: the name of the examples in an error.
MT_API std::vector<int32_t> share_of_examples(const std::string& split, Split which, int64_t count,
                                              const std::string& file,
                                              std::string_view what = "records");
/// Packs these examples: one per pack, or by first-fit decreasing.
MT_API Packs make_packs(const ExampleStore& examples, const std::vector<int32_t>& chosen,
                        const SftSettings& settings, int64_t seq_length);
/// A text as texts before an answer are trained on: with the tokenizer's tokens before a text.
MT_API AskedPrompt ask_as_text(const Tokenizer& tokenizer, const std::string& text,
                               bool parse_special = false);
/// The text that alpaca records become without a chat template: "Stanford Alpaca's prompt".
MT_API std::string alpaca_form(const RecordSettings& settings);
/// dataset.columns as a part of an identity: without entries that map a name to itself.
MT_API std::string columns_identity(const Node& columns);
/// The id for padding.
MT_API int32_t padding_id(const Tokenizer& tokenizer);

}  // namespace mtrain::finetune
