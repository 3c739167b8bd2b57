// mtrain data stats, merge and show: inspect and merge .bin/.idx pairs.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "data_commands.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/data/indexed_merge.h"
#include "mtrain/data/indexed_summary.h"
#include "mtrain/data/input_stream.h"
#include "mtrain/train/signals.h"

namespace mtrain {
namespace {

struct StatsArguments {
  std::string prefix;
  bool duplicates = false, json = false;
};

/// "2-3" for class 2; the last of a length.
std::string class_name(size_t index) {
  int64_t first = index == 0 ? 0 : int64_t{1} << (index - 1), last = (int64_t{1} << index) - 1;
  return first == last ? std::to_string(first) : cat(first, "-", last);
}

void print_histogram(const std::vector<LengthClass>& classes, int64_t documents, int64_t tokens) {
  int64_t most = 1;
  for (const auto& c : classes) most = std::max(most, c.documents);
  std::cout << "     tokens   documents                                        of all tokens\n";
  for (size_t i = 0; i < classes.size(); ++i) {
    const LengthClass& c = classes[i];
    if (c.documents == 0 && i == 0) continue;
    auto bar = static_cast<size_t>((c.documents * 36 + most - 1) / most);
    std::cout << std::setw(15) << class_name(i) << std::setw(10) << c.documents << "  "
              << std::string(bar, '#') << std::string(38 - bar, ' ') << std::setw(5)
              << (tokens > 0 ? 100 * c.tokens / tokens : 0) << "%\n";
  }
  std::cout << std::setw(15) << "all" << std::setw(10) << documents << "  "
            << counted(tokens, "token") << '\n';
}

void stats(const StatsArguments& arguments) {
  IndexedFile file(arguments.prefix);
  IndexedSummary summary = summarize(file);
  std::vector<LengthClass> classes = length_histogram(file);
  Duplicates copies = arguments.duplicates ? count_duplicates(file) : Duplicates{};
  if (arguments.json) {
    nlohmann::ordered_json out{{"prefix", file.prefix().string()},
                               {"documents", summary.documents},
                               {"tokens", summary.tokens},
                               {"shortest", summary.shortest},
                               {"median", summary.median},
                               {"longest", summary.longest},
                               {"histogram", nlohmann::json::array()}};
    for (size_t i = 0; i < classes.size(); ++i)
      out["histogram"].push_back({{"below", int64_t{1} << i},
                                  {"documents", classes[i].documents},
                                  {"tokens", classes[i].tokens}});
    if (arguments.duplicates)
      out["duplicates"] = {{"documents", copies.documents}, {"tokens", copies.tokens}};
    print_json(out);
    return;
  }
  std::cout << printable(file.prefix().string()) << ": shortest " << summary.shortest << ", median "
            << summary.median << ", longest " << counted(summary.longest, "token") << '\n';
  print_histogram(classes, summary.documents, summary.tokens);
  if (arguments.duplicates)
    std::cout << counted(copies.documents, "document repeats", "documents repeat")
              << " an earlier one exactly (" << counted(copies.tokens, "token") << ")\n";
}

struct MergeArguments {
  std::vector<std::string> inputs;
  std::string output;
  IndexedWriter::Options options;
  bool any_tokenizer = false;
};

/// Thrown by the progress callback to stop.
struct MergeInterrupted {};

void merge_prepared(Cli& cli, const MergeArguments& arguments) {
  SignalWatch signals;
  const fs::path output = output_prefix(arguments.output);
  make_folder_of(output);
  const bool live = !cli.quiet && ::isatty(STDERR_FILENO) != 0;
  try {
    MergeReport report = merge_indexed(
        {arguments.inputs.begin(), arguments.inputs.end()}, output, arguments.options,
        [&](int64_t done, int64_t all) {
          if (signals.received() != 0) throw MergeInterrupted();
          if (live)
            std::cerr << "\r\033[K" << 100 * done / std::max<int64_t>(1, all) << "%" << std::flush;
        },
        arguments.any_tokenizer);
    if (live) std::cerr << "\r\033[K" << std::flush;
    if (!cli.quiet)
      std::cout << "wrote " << printable(output.string())
                << ".bin and .idx: " << counted(report.documents, "document") << ", "
                << counted(report.tokens, "token") << ", " << human_bytes(report.bytes_written)
                << '\n';
  } catch (const MergeInterrupted&) {
    if (live) std::cerr << "\r\033[K";
    std::cerr << "stopped; nothing was written\n";
    cli.status = 128 + signals.received();
  }
}

struct ShowArguments {
  RecordArguments records;  // the file, the tokenizer, and how a file of records is read
  std::string documents = "0:3";
  int64_t tokens = 256;
  bool ids = false, any_tokenizer = false;
};

/// "3", "3:7" or "3:" of `count` documents.
std::pair<int64_t, int64_t> chosen_documents(const std::string& words, int64_t count) {
  auto bad = [&]() -> Error {
    return {ErrorClass::usage,
            cat("--documents: '", printable(words), "' selects no documents; there are ", count),
            "write 5 for one document, 5:9 for documents 5 to 8"};
  };
  auto number = [&](std::string_view text, int64_t otherwise) {
    int64_t value = 0;
    if (text.empty()) return otherwise;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) throw bad();
    return value;
  };
  size_t colon = words.find(':');
  int64_t first = number(std::string_view(words).substr(0, colon), 0);
  int64_t last = colon == std::string::npos
                     ? first + 1
                     : number(std::string_view(words).substr(colon + 1), count);
  last = std::min(last, count);
  if (first < 0 || last < first || first >= std::max<int64_t>(last, 1)) throw bad();
  return {first, last};
}

/// Prints each token's text, in alternating colors on a terminal, separated by bars elsewhere.
void show_document(const std::vector<int32_t>& ids, const TokenTexts& texts, bool colours) {
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string shown = texts(ids, i);
    if (colours)
      std::cout << (i % 2 == 0 ? "\033[30;46m" : "\033[30;47m") << shown << "\033[0m";
    else
      std::cout << (i > 0 ? "|" : "") << shown;
  }
  std::cout << '\n';
}

/// Refuses the options of the other kind of file.
void check_show_options(const CLI::App& command, const RecordArguments& records, bool is_records) {
  if (is_records) {
    const std::string on_records = "on records: they are text, and no tokenizer prepared them";
    return refuse_options(command, {"--any-tokenizer"}, on_records);
  }
  const std::string on_pair =
      cat("on the pair ", printable(records.path), ": it is for a .json or .jsonl file of records");
  refuse_options(command, {"--seq-length", "--dataset"}, on_pair);
  refuse_dataset_settings(records.dataset_settings(), {}, on_pair);
}

/// True for a file of records: by its name, or since there is no pair of this name.
bool has_records(const std::string& path) {
  const std::string name = without_compression(path).string();
  std::error_code ignored;
  return name.ends_with(".json") || name.ends_with(".jsonl") ||
         (fs::is_regular_file(path, ignored) && pair_prefix(path) == path &&
          !fs::exists(path + ".idx", ignored));
}

void show_prepared(const Cli& cli, const ShowArguments& arguments, const CLI::App& command) {
  const RecordArguments& a = arguments.records;
  MT_USER_CHECK(a.path != "-", ErrorClass::usage, "data show reads files, not the standard input",
                "write the records to a file");
  const bool is_records = has_records(a.path);
  check_show_options(command, a, is_records);
  if (is_records)
    return show_records(cli, a,
                        [&](int64_t count) { return chosen_documents(arguments.documents, count); },
                        {.most = arguments.tokens, .ids = arguments.ids});
  IndexedFile file(a.path);
  PluginHost plugins = plugin_host(cli);
  auto tokenizer = make_tokenizer(plugins, a.tokenizer, a.tokenizer_settings());
  if (!arguments.any_tokenizer) check_tokenizer(file, *tokenizer, option_words());
  auto [first, last] = chosen_documents(arguments.documents, file.num_documents());
  const bool colours = ::isatty(STDOUT_FILENO) != 0;
  const TokenTexts texts(*tokenizer, arguments.ids);
  for (int64_t d = first; d < last; ++d) {
    std::vector<int32_t> ids;
    int64_t length = 0;
    for (int64_t s = file.document_begin(d); s < file.document_begin(d + 1); ++s) {
      int64_t take = std::clamp<int64_t>(arguments.tokens - static_cast<int64_t>(ids.size()), 0,
                                         file.length(s));
      std::vector<int32_t> part(static_cast<size_t>(take));
      file.read(s, 0, part);
      ids.insert(ids.end(), part.begin(), part.end());
      length += file.length(s);
    }
    std::cout << "document " << d << ", " << counted(length, "token");
    if (length > static_cast<int64_t>(ids.size())) std::cout << ", the first " << ids.size();
    std::cout << ":\n";
    show_document(ids, texts, colours);
  }
}

}  // namespace

void add_data_stats(CLI::App& data, Cli& /*cli*/) {
  auto* command =
      data.add_subcommand("stats", "show the lengths of the documents of a .bin/.idx pair");
  auto a = std::make_shared<StatsArguments>();
  command->add_option("prefix", a->prefix, "the pair, with or without .bin or .idx")
      ->required()
      ->type_name("PREFIX");
  command->add_flag("--duplicates", a->duplicates, "read every token and count exact duplicates");
  command->add_flag("--json", a->json, "print as JSON");
  command->footer("Example:\n  mtrain data stats data/web --duplicates");
  command->callback([a] { stats(*a); });
}

void add_data_merge(CLI::App& data, Cli& cli) {
  auto* command = data.add_subcommand("merge", "merge several .bin/.idx pairs into one");
  auto a = std::make_shared<MergeArguments>();
  command->add_option("inputs", a->inputs, "the pairs, in the order of their documents")
      ->required()
      ->type_name("PREFIX");
  command
      ->add_option("-o,--output", a->output,
                   "prefix of the two files to write, with or without .bin or .idx")
      ->check(check_output_path)
      ->required()
      ->type_name("PREFIX");
  command->add_flag("-f,--force", a->options.overwrite, "replace an existing pair");
  command->add_flag("--any-tokenizer", a->any_tokenizer,
                    "merge pairs even if they were prepared with different tokenizers");
  command->footer("Example:\n  mtrain data merge data/part1 data/part2 -o data/all");
  command->callback([&cli, a] { merge_prepared(cli, *a); });
}

void add_data_show(CLI::App& data, Cli& cli) {
  auto* command = data.add_subcommand(
      "show", "show the tokens of documents, or of fine-tuning records, as text");
  auto a = std::make_shared<ShowArguments>();
  command
      ->add_option(
          "prefix", a->records.path,
          "a pair, with or without .bin or .idx; or a .json or .jsonl file of records, also with "
          ".gz or .zst")
      ->required()
      ->type_name("PREFIX|FILE");
  add_record_options(*command, a->records, RecordInputs::records_or_pair);
  command->add_option("--dataset", a->records.type, "for records: the dataset that reads them")
      ->check(CLI::IsMember({"sft", "preference"}))
      ->capture_default_str();
  command->add_option("-d,--documents", a->documents, "which documents: 5, or 5:9")
      ->capture_default_str()
      ->type_name("RANGE");
  command->add_option("-n,--tokens", a->tokens, "show at most this many tokens of each document")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--ids", a->ids, "also show token ids");
  command->add_flag("--any-tokenizer", a->any_tokenizer,
                    "also show a pair that was prepared with another tokenizer");
  command->footer(
      "For fine-tuning records, tokens that are trained on are green on a terminal, and in "
      "brackets elsewhere.\n"
      "Examples:\n"
      "  mtrain data show data/web -t byte --documents 10:12 --ids\n"
      "  mtrain data show chats.jsonl -t hf path=models/qwen dataset.train_on=last");
  command->callback([&cli, a, command] { show_prepared(cli, *a, *command); });
}

}  // namespace mtrain
