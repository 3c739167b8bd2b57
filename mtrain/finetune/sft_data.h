// The data of supervised fine-tuning: settings, files read and encoded, what was left out, and what
// packing makes of it. The sft plugin and `mtrain data` share it.
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
#include "mtrain/finetune/record_format.h"

namespace mtrain::finetune {

/// Settings of everything that reads records. Value.
struct MT_API RecordSettings {
  std::string path, valid_path, test_path, split = "95,5,0";
  Node columns, roles;
  std::string chat_template, template_path, template_name = "default", date = "2024-07-26", prompt,
                                            on_bad = "fail";
  int64_t max_bad = 1000;
  void bind(Fields& f);
  FormatOptions format_options() const;
  EncoderOptions encoder_options(const fs::path& base_directory) const;
};

/// Settings of the sft dataset. Value.
struct MT_API SftSettings {
  RecordSettings records;
  std::string format = "auto", train_on = "assistant", packing = "none", too_long = "truncate";
  int64_t packed_length = 0;
  void bind(Fields& f);
};

/// What became of the records of a file.
struct SftCounts {
  int64_t records = 0;         // read
  int64_t bad = 0;             // could not be read or rendered, and were left out
  int64_t truncated = 0;       // cut to fit a sample, with something learnt left
  int64_t cut_learnt = 0;      // learnt tokens that were cut off those
  int64_t cut_all_learnt = 0;  // left out because all that is learnt of them was cut off
  int64_t too_long = 0;        // left out for their length
  int64_t untrained = 0;       // left out because nothing in them is learnt
  int64_t trained_tokens = 0, tokens = 0;              // of what is left
  std::string first_cut_learnt, first_cut_all_learnt;  // places of the first such records
};

/// One file, encoded. Immutable once made.
struct MT_API SftFile {
  fs::path path;
  std::string format, digest;
  SftCounts counts;
  int64_t longest = 0;  // tokens that a sample takes of a record
  std::shared_ptr<const ExampleStore> examples;
  std::vector<std::string> places;  // of each example; only where asked for
  /// "chats.jsonl (openai): 990 of 1000 records, 12345 of 54321 tokens are learnt; 10 cut to 4097
  /// tokens; …"
  std::string summary() const;
  /// Logs the summary: as a warning with the remedies where learnt tokens were cut off.
  void log_summary() const;
};

/// `seq_length`: places of a sample. Throws Error(data) with file and line; when nothing is left;
/// Error(config) for settings that fit no file.
MT_API SftFile load_sft_file(const fs::path& path, const SftSettings& settings,
                             const ExampleEncoder& encoder, int64_t seq_length,
                             bool keep_places = false);
/// Warns, where context.tell says so, of special tokens of the chat template that the tokenizer
/// does not have.
MT_API ExampleEncoder make_encoder(const SftSettings& settings, const DatasetContext& context);
/// `path` as the recipe means it.
MT_API fs::path record_path(const std::string& path, const DatasetContext& context);
/// What a dataset of these settings packs with, of the settings those that are not at their
/// defaults; less the source.
MT_API PackedOrigin packed_origin(const SftSettings& settings, const ExampleEncoder& encoder,
                                  const DatasetContext& context);
/// All settings that decided what the packs of a file are, as PackedOrigin::settings has them.
MT_API std::map<std::string, std::string> packed_settings(const SftSettings& settings,
                                                          const SftFile& file, int64_t seq_length);
/// The examples of a share "90,10,0" of `count`: which they are does not depend on the seed, only
/// on their number. `what` they are called in an error.
MT_API std::vector<int32_t> share_of_examples(const std::string& split, Split which, int64_t count,
                                              const std::string& file,
                                              std::string_view what = "records");
/// Packs of these examples: one each, or first-fit decreasing.
MT_API Packs make_packs(const ExampleStore& examples, const std::vector<int32_t>& chosen,
                        const SftSettings& settings, int64_t seq_length);
/// An id to fill samples with.
MT_API int32_t padding_id(const Tokenizer& tokenizer);

}  // namespace mtrain::finetune
