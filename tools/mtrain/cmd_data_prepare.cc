// mtrain data prepare: text and JSON lines to .bin/.idx pairs.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "data_commands.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/data/indexed_file.h"
#include "mtrain/data/prepare.h"
#include "mtrain/train/signals.h"

namespace mtrain {
namespace {

constexpr double kLogEverySeconds = 30;

struct PrepareArguments {
  PrepareOptions options;
  std::vector<std::string> inputs, settings, json_keys;
  std::string output, tokenizer, json_key = "text";
  std::string format, split_on = "file", on_bad = "refuse";
  bool json = false;
};

const std::map<std::string, InputFormat> kFormats = {{"text", InputFormat::text},
                                                     {"jsonl", InputFormat::jsonl}};
const std::map<std::string, SplitOn> kSplits = {
    {"file", SplitOn::file}, {"lines", SplitOn::lines}, {"blank-lines", SplitOn::blank_lines}};
const std::map<std::string, OnBad> kOnBad = {
    {"refuse", OnBad::fail}, {"replace", OnBad::replace}, {"skip", OnBad::skip}};

/// Adds an option whose value is one of a map's keys.
template <class Map>
CLI::Option* add_choice(CLI::App& command, const char* option, std::string& value,
                        const Map& choices, const char* doc) {
  std::vector<std::string> names;
  for (const auto& [name, meaning] : choices) names.push_back(name);
  CLI::IsMember known(names);
  known.description("");  // the names are shown in place of the type
  return command.add_option(option, value, doc)
      ->check(known)
      ->type_name(cat("{", join(names, ","), "}"));
}

/// Thrown by the progress callback to stop.
struct Interrupted {};

std::string rate(const PrepareReport& report) {
  double seconds = std::max(report.seconds, 1e-6);
  return cat(human_bytes(static_cast<uint64_t>(static_cast<double>(report.text_bytes) / seconds)),
             "/s");
}

/// Shows progress: a rewritten line on a terminal, a new line now and then in a log.
class ProgressPrinter {
 public:
  ProgressPrinter(bool wanted) : wanted_(wanted), terminal_(::isatty(STDERR_FILENO) != 0) {}
  void show(const PrepareReport& now) {
    if (!wanted_ || (!terminal_ && now.seconds < next_)) return;
    next_ = now.seconds + kLogEverySeconds;
    std::fputs((terminal_ ? "\r\033[K" + line(now) : line(now) + "\n").c_str(), stderr);
  }
  void clear() const {
    if (wanted_ && terminal_) std::fputs("\r\033[K", stderr);
  }

 private:
  static std::string line(const PrepareReport& now) {
    std::string out = cat(human_count(static_cast<double>(now.documents)), " documents, ",
                          human_count(static_cast<double>(now.tokens)), " tokens, ", rate(now));
    if (now.bytes_total == 0 || now.bytes_read == 0) return out;
    const double part =
        std::min(1.0, static_cast<double>(now.bytes_read) / static_cast<double>(now.bytes_total));
    return cat(static_cast<int>(100 * part + 0.5), "%  ", out, ", ",
               human_seconds(now.seconds * (1 - part) / part), " left");
  }
  bool wanted_, terminal_;
  double next_ = kLogEverySeconds;
};

nlohmann::ordered_json as_json(const PrepareReport& report, const PrepareArguments& arguments) {
  nlohmann::ordered_json out{{"output", arguments.options.output.string()},
                             {"outputs", nlohmann::json::array()},
                             {"documents", report.documents},
                             {"empty_documents", report.empty_documents},
                             {"sequences", report.sequences},
                             {"tokens", report.tokens},
                             {"replaced", report.replaced},
                             {"skipped", report.skipped},
                             {"bad_lines", report.bad},
                             {"bytes_read", report.bytes_read},
                             {"text_bytes", report.text_bytes},
                             {"bytes_written", report.bytes_written},
                             {"seconds", report.seconds}};
  for (const auto& prefix : report.outputs) out["outputs"].push_back(prefix.string());
  return out;
}

/// The remark on a text that became one document: why, and the ways that can divide it further.
std::string one_document(const PrepareReport& report, const PrepareOptions& options) {
  std::string out = cat("  the ", report.text_lines, " lines are one document");
  std::vector<std::string> ways;
  if (options.split_on == SplitOn::lines) return out + ", because only one of them has text\n";
  if (options.split_on == SplitOn::blank_lines)
    out += ", because no blank line divides them";
  else
    ways.emplace_back("--split-on blank-lines");
  ways.insert(ways.begin(), "--split-on lines");
  ways.emplace_back(options.document_bytes > 0 ? "a smaller --document-bytes"
                                               : "--document-bytes N");
  const std::string last = ways.back();
  ways.pop_back();
  return cat(out, "; dataset.split needs several: use ", join(ways, ", "), " or ", last, "\n");
}

void print_report(const PrepareReport& report, const PrepareArguments& arguments) {
  if (arguments.json) {
    std::cout
        << as_json(report, arguments).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
        << '\n';
    return;
  }
  std::vector<std::string> names;
  for (const auto& prefix : report.outputs) names.push_back(cat(prefix.string(), ".bin and .idx"));
  std::cout << "wrote " << join(names, ", ") << ": " << counted(report.documents, "document")
            << ", ";
  if (arguments.options.split_sentences) std::cout << counted(report.sequences, "sentence") << ", ";
  std::cout << counted(report.tokens, "token") << ", " << human_bytes(report.bytes_written)
            << " (read " << human_bytes(report.text_bytes) << " in "
            << human_seconds(report.seconds) << ", " << rate(report) << ")\n";
  if (report.empty_documents)
    std::cout << "  " << counted(report.empty_documents, "document is", "documents are")
              << " empty\n";
  if (report.documents == 1 && report.text_lines > 1)
    std::cout << one_document(report, arguments.options);
  if (report.replaced)
    std::cout << "  " << counted(report.replaced, "line") << " had invalid UTF-8 replaced\n";
  if (report.skipped)
    std::cout << "  " << counted(report.skipped, "invalid line was", "invalid lines were")
              << " skipped\n";
  for (const auto& bad : report.bad) std::cout << "    " << bad << '\n';
  if (static_cast<size_t>(report.replaced + report.skipped) > report.bad.size())
    std::cout << "    …\n";
}

void read_choices(PrepareArguments& arguments) {
  PrepareOptions& options = arguments.options;
  options.inputs.assign(arguments.inputs.begin(), arguments.inputs.end());
  options.output = output_prefix(arguments.output);
  make_folder_of(options.output);
  if (!arguments.format.empty()) options.format = kFormats.at(arguments.format);
  options.split_on = kSplits.at(arguments.split_on);
  options.on_bad = kOnBad.at(arguments.on_bad);
  options.key_names = !arguments.json_keys.empty();
  options.json_keys =
      options.key_names ? arguments.json_keys : std::vector<std::string>{arguments.json_key};
}

/// Refuses options that other options make ineffective.
void check_prepare_options(const PrepareArguments& arguments, const CLI::App& command) {
  if (arguments.split_on == "lines")
    refuse_options(command, {"--document-bytes"},
                   "with --split-on lines, which ends a document at each line end");
  if (arguments.on_bad == "refuse")
    refuse_options(command, {"--max-bad"},
                   "with --bad-lines refuse, which stops at the first invalid line");
}

void prepare(Cli& cli, PrepareArguments& arguments) {
  SignalWatch signals;
  PluginHost plugins = plugin_host(cli);
  auto tokenizer = make_tokenizer(plugins, arguments.tokenizer, arguments.settings);
  read_choices(arguments);
  ProgressPrinter progress(!cli.quiet && !arguments.json);
  try {
    PrepareReport report =
        prepare_dataset(*tokenizer, arguments.options, [&](const PrepareReport& now) {
          if (signals.received() != 0) throw Interrupted();
          progress.show(now);
        });
    progress.clear();
    if (!cli.quiet || arguments.json) print_report(report, arguments);
  } catch (const Interrupted&) {
    progress.clear();
    std::cerr << "stopped; nothing was written\n";
    cli.status = 128 + signals.received();
  } catch (...) {
    progress.clear();
    throw;
  }
}

void add_text_options(CLI::App& command, PrepareArguments& a) {
  PrepareOptions& o = a.options;
  add_choice(command, "--format", a.format, kFormats,
             "format of the inputs, if their names do not show it");
  auto* key =
      command
          .add_option("--json-key", a.json_key, "the field of each JSON line that holds the text")
          ->capture_default_str();
  command
      .add_option("--json-keys", a.json_keys,
                  "several fields, as a,b; each becomes a pair PREFIX_KEY_document, named as in "
                  "Megatron's tool")
      ->delimiter(',')
      ->excludes(key)
      ->type_name("KEYS");
  add_choice(command, "--split-on", a.split_on, kSplits, "what is one document of a text file")
      ->capture_default_str();
  command
      .add_option("--document-bytes", o.document_bytes,
                  "text files: end a document at the first line end after this many bytes")
      ->check(check_count);
  command
      .add_option("--max-document-bytes", o.max_document_bytes,
                  "a longer line or document is an error")
      ->check(check_count)
      ->capture_default_str();
  command.add_flag("--split-sentences", o.split_sentences,
                   "make each sentence of a document a separate sequence");
  add_choice(command, "--bad-lines", a.on_bad, kOnBad,
             "action at an invalid line; replace only repairs invalid UTF-8 and zero bytes")
      ->capture_default_str();
  command.add_option("--max-bad", o.max_bad, "more invalid lines than this are an error")
      ->capture_default_str();
}

}  // namespace

void add_data_prepare(CLI::App& data, Cli& cli) {
  auto* command = data.add_subcommand("prepare", "convert text or JSON lines to a .bin/.idx pair");
  auto a = std::make_shared<PrepareArguments>();
  PrepareOptions& o = a->options;
  command
      ->add_option("-i,--input", a->inputs,
                   "text (.txt, .md), JSON lines (.jsonl), these with .gz or .zst, a folder of "
                   "them, or - for standard input; several inputs become one pair, in order")
      ->required()
      ->type_name("PATH");
  command
      ->add_option("-o,--output", a->output,
                   "prefix of the two files to write, with or without .bin or .idx")
      ->check(check_output_path)
      ->required()
      ->type_name("PREFIX");
  command
      ->add_option("-t,--tokenizer", a->tokenizer, "a tokenizer plugin (see `mtrain plugins ls`)")
      ->required()
      ->type_name("NAME");
  command
      ->add_option(
          "--workers", o.workers,
          "threads that parse and tokenize; 0: one per core. The output does not depend on it")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--append-eod", o.append_eod,
                    "end each document with the tokenizer's end-of-document token");
  command->add_flag(
      "--add-special", o.add_special,
      "add the special tokens that the tokenizer puts around a text (<s>, [CLS] and [SEP])");
  add_text_options(*command, *a);
  command->add_flag("-f,--force", o.overwrite, "replace an existing pair");
  command->add_flag("--json", a->json, "print the summary as JSON");
  command->add_option("settings", a->settings, "settings of the tokenizer: key=value")
      ->type_name("KEY=VALUE");
  command->footer(
      "Examples:\n"
      "  mtrain data prepare -i web.jsonl.zst -o data/web -t byte --append-eod\n"
      "  mtrain data prepare -i book.txt -o data/book -t byte --append-eod --split-on blank-lines\n"
      "  mtrain data prepare -i crawl/ -o data/crawl -t hf path=models/gpt2 --append-eod "
      "--bad-lines skip\n"
      "  zcat a.gz | mtrain data prepare -i - --format jsonl -o data/a -t byte --json-keys "
      "title,body\n"
      "Training splits data into train, valid and test by documents, so a text needs several "
      "(--split-on, --document-bytes).");
  command->callback([&cli, a, command] {
    check_prepare_options(*a, *command);
    prepare(cli, *a);
  });
}

}  // namespace mtrain
