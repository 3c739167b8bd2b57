// Preference data: preferred and rejected answers. Reads, encodes and packs them, for objectives
// over answers (mtrain/optim/objective.h). Stateless functions over values; a PreferenceFile is
// immutable and safe from any thread.
//
//   pairs   {prompt, chosen, rejected}: texts, or lists of messages
//           {chosen, rejected}: conversations, or texts, with a common beginning: the prompt
//           {conversations or messages, chosen, rejected}: the answers as messages
//           (answer_prompt.h: the prompt of messages)
//           for a model of scores, also a number `margin`: by how much the chosen one is better
//   labels  {messages, label} or {prompt, completion, label}: true where the answer is good
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/finetune/sft_data.h"

namespace mtrain::finetune {

/// The training objective of such data.
inline constexpr std::string_view kPreferences = Dataset::kPreferences;

struct MT_API PreferenceSettings {
  RecordSettings records;
  std::string format = "auto", too_long = "drop";
  void bind(Fields& f);
};

/// One record. Only the answers are trained on, not the prompt.
struct Preference {
  Example chosen;                   // or the only answer
  std::optional<Example> rejected;  // of a pair
  bool good = true;                 // of a label
  float margin = 0;                 // of a pair for a model of scores
};

/// Throws RecordFault. `format`: "pairs" or "labels".
MT_API Preference read_preference(const Json& record, const std::string& format,
                                  const FormatOptions& options, const std::string& place);

struct MT_API PreferenceFile {
  fs::path path;
  std::string format, digest;
  int64_t chats = 0;  // records of messages, which a chat template renders
  int64_t records = 0, bad = 0, too_long = 0, untrained = 0;
  int64_t longest = 0;  // tokens that a sample of the longest record of too_long needs
  int64_t alike = 0;    // pairs that are left and have the same answer twice
  bool pairs = true;
  std::shared_ptr<const ExampleStore> answers;  // pairs: 2i chosen, 2i + 1 rejected; labels: i
  std::vector<bool> good;                       // labels: of each
  std::vector<float> margins;                   // pairs for a model of scores: of each
  std::vector<std::string> places;              // of each record that is left
  std::string form;  // "in the chat template llama3", "as plain text": of its records
  std::vector<std::string> unused;  // warnings: settings without effect, records without use
  int64_t size() const { return static_cast<int64_t>(places.size()); }
  std::string summary(int64_t seq_length) const;
  void log_unused() const;
  /// Logs the warnings of `unused` and the summary, as a warning if records are left out.
  void log_summary(int64_t seq_length) const;
};

/// Like load_sft_file. A record whose answers do not fit into one sample together is dropped or is
/// an error, by settings.too_long. `scored`: for a model of scores (scored_example()).
MT_API PreferenceFile load_preference_file(const fs::path& path, const PreferenceSettings& settings,
                                           const ExampleEncoder& encoder, int64_t seq_length,
                                           bool scored = false);
/// Samples of these records: chosen and rejected are two sequences of one sample.
MT_API Packs preference_packs(const PreferenceFile& file, const std::vector<int32_t>& chosen);

}  // namespace mtrain::finetune
