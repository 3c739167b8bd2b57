// What the commands under `mtrain data` share. For one thread at a time.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli.h"
#include "mtrain/data/tokenizer_record.h"

namespace mtrain {

/// Takes the words that are settings (key=value, and no file) out of those that a command was
/// given, and returns them.
std::vector<std::string> take_settings(std::vector<std::string>& words);

/// The settings key=value … of a section of a recipe, with or without the section's name before the
/// key.
Node settings_tree(const std::vector<std::string>& arguments, const std::string& section);

/// Makes the tokenizer that `-t NAME key=value …` names; relative paths start in the working
/// folder.
std::unique_ptr<Tokenizer> make_tokenizer(PluginHost& plugins, const std::string& name,
                                          const std::vector<std::string>& settings);

/// The prefix that --output gives, without .bin or .idx. Error(usage) where it names no file: as
/// "data/" it would make hidden ones.
fs::path output_prefix(const std::string& text);

/// How the options of a command name a tokenizer; see check_tokenizer.
TokenizerWords option_words();

/// Records of fine-tuning data, and how they are read.
struct RecordArguments {
  std::string path, tokenizer, type = "sft";
  std::vector<std::string>
      settings;  // key=value of the tokenizer, dataset.key=value of the dataset
  std::vector<std::string> tokenizer_settings() const;
  std::vector<std::string> dataset_settings() const;  // without "dataset."
  int64_t seq_length = 4096;
};
/// Options and settings that `data show` and `data pack` share.
void add_record_options(CLI::App& command, RecordArguments& arguments);

/// What the token at `at` adds to the text of those before it: its own text, with the blank that a
/// tokenizer drops at the begin of a text.
std::string token_text(std::span<const int32_t> ids, size_t at, const Tokenizer& tokenizer);
/// How tokens are shown.
struct ShownTokens {
  int64_t most = 256;  // of each record
  bool ids = false;    // each with its id: "and=290"
};
/// Shows what records [first, last) become: `range` gets their number. Learnt tokens stand out.
void show_records(const Cli& cli, const RecordArguments& arguments,
                  const std::function<std::pair<int64_t, int64_t>(int64_t)>& range,
                  const ShownTokens& shown);

/// Each adds the command under `mtrain data` that it is named after.
void add_data_prepare(CLI::App& data, Cli& cli);
void add_data_verify(CLI::App& data, Cli& cli);
void add_data_tokenize(CLI::App& data, Cli& cli);
void add_data_render(CLI::App& data, Cli& cli);
void add_data_stats(CLI::App& data, Cli& cli);
void add_data_merge(CLI::App& data, Cli& cli);
void add_data_pack(CLI::App& data, Cli& cli);
void add_data_show(CLI::App& data, Cli& cli);

}  // namespace mtrain
