// Shared parts of the commands of `mtrain data`. For one thread at a time.
#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli.h"
#include "mtrain/data/tokenizer_record.h"

namespace mtrain {

/// Removes the settings (key=value, unless it is a file) from the words of a command and returns
/// them.
std::vector<std::string> take_settings(std::vector<std::string>& words);

/// The settings key=value … of a section of a recipe, with or without the section's name before the
/// key. They are read as `mtrain train` reads them.
Node settings_tree(const PluginHost& plugins, const std::vector<std::string>& arguments,
                   const std::string& section);

/// Creates the tokenizer of `-t NAME key=value …`; relative paths are resolved against the working
/// folder.
std::unique_ptr<Tokenizer> make_tokenizer(PluginHost& plugins, const std::string& name,
                                          const std::vector<std::string>& settings);

/// Throws Error(usage) if there are settings of a tokenizer, but no tokenizer.
void check_tokenizer_settings(const std::string& tokenizer,
                              const std::vector<std::string>& settings);

/// The prefix that --output gives, without .bin or .idx. Error(usage) where it names no file: as
/// "data/" it would make hidden ones.
fs::path output_prefix(const std::string& text);

/// Throws Error(usage) if the command line has one of these options: it would be ignored. `why`
/// ends the sentence "--max-bad has no effect …".
void refuse_options(const CLI::App& command, std::initializer_list<const char*> options,
                    const std::string& why);
/// The same for settings dataset.key=value. Refuses all of them if `names` is empty.
void refuse_dataset_settings(const std::vector<std::string>& settings,
                             std::initializer_list<const char*> names, const std::string& why);

/// Creates the folder of the files at `prefix`. Error(io).
void make_folder_of(const fs::path& prefix);

/// How the options of a command name a tokenizer; see check_tokenizer.
TokenizerWords option_words();

/// Calls `each` with every line of a file of JSON lines, except for blank ones, and with its place,
/// "a.jsonl:7". The file may be compressed; "-" is standard input. Error(io), Error(data).
void each_line(const std::string& path,
               const std::function<void(std::string_view line, const std::string& place)>& each);

/// The beginning of a setting of the dataset on the command line.
constexpr std::string_view kOfDataset = "dataset.";

/// Fine-tuning records, and how to read them.
struct RecordArguments {
  std::string path, tokenizer, type = "sft";
  std::vector<std::string>
      settings;  // key=value of the tokenizer, dataset.key=value of the dataset
  std::vector<std::string> tokenizer_settings() const;
  std::vector<std::string> dataset_settings() const;  // with "dataset."
  int64_t seq_length = 4096;
};
/// What a command reads.
enum class RecordInputs : uint8_t { records, records_or_pair };
/// Adds the options and settings that `data show` and `data pack` share.
void add_record_options(CLI::App& command, RecordArguments& arguments, RecordInputs inputs);

/// How tokens are shown.
struct ShownTokens {
  int64_t most = 256;  // of each record
  bool ids = false;    // show each with its id: "and=290"
};
/// Writes tokens as `data show` does: special tokens as in templates, "<|im_end|>", and tokens
/// without text as "<17>". Refers to the tokenizer.
class TokenTexts {
 public:
  /// `numbers`: with ids.
  TokenTexts(const Tokenizer& tokenizer, bool numbers)
      : tokenizer_(tokenizer), special_(tokenizer.special_tokens()), numbers_(numbers) {}
  /// The text that the token at `at` adds to that of the tokens before it, including a blank that
  /// the tokenizer drops at the beginning of a text.
  std::string operator()(std::span<const int32_t> ids, size_t at) const;

 private:
  const Tokenizer& tokenizer_;
  const std::vector<SpecialToken> special_;
  const bool numbers_;
};
/// Shows the tokens of records [first, last), which `range` returns for a number of records. Tokens
/// that are trained on are highlighted.
void show_records(const Cli& cli, const RecordArguments& arguments,
                  const std::function<std::pair<int64_t, int64_t>(int64_t)>& range,
                  const ShownTokens& shown);

/// Each adds the command of `mtrain data` in its name.
void add_data_prepare(CLI::App& data, Cli& cli);
void add_data_verify(CLI::App& data, Cli& cli);
void add_data_tokenize(CLI::App& data, Cli& cli);
void add_data_render(CLI::App& data, Cli& cli);
void add_data_stats(CLI::App& data, Cli& cli);
void add_data_merge(CLI::App& data, Cli& cli);
void add_data_pack(CLI::App& data, Cli& cli);
void add_data_show(CLI::App& data, Cli& cli);

}  // namespace mtrain
