// mtrain data: text to training data, and a look at what is there.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "data_commands.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/override.h"
#include "mtrain/data/indexed_summary.h"
#include "mtrain/data/prepare.h"
#include "mtrain/train/signals.h"

namespace mtrain {
namespace {

struct PrepareArguments {
  PrepareOptions options;
  std::vector<std::string> inputs, settings;
  std::string output, tokenizer;
  std::string format, split_on = "file", on_bad = "fail";
  bool json = false;
};

const std::map<std::string, InputFormat> kFormats = {{"text", InputFormat::text},
                                                     {"jsonl", InputFormat::jsonl}};
const std::map<std::string, SplitOn> kSplits = {
    {"file", SplitOn::file}, {"lines", SplitOn::lines}, {"blank-lines", SplitOn::blank_lines}};
const std::map<std::string, OnBad> kOnBad = {
    {"fail", OnBad::fail}, {"replace", OnBad::replace}, {"skip", OnBad::skip}};

/// Adds an option whose value is one of a map's keys.
template <class Map>
CLI::Option* add_choice(CLI::App& command, const char* option, std::string& value, const Map& choices,
                        const char* doc) {
  std::vector<std::string> names;
  for (const auto& [name, meaning] : choices) names.push_back(name);
  CLI::IsMember known(names);
  known.description("");  // the names stand where the type does
  return command.add_option(option, value, doc)->check(known)->type_name(join(names, "|"));
}

/// Thrown by the progress callback to end the work.
struct Interrupted {};

/// The settings of the tokenizer, given as key=value.
Node settings_tree(const std::vector<std::string>& arguments) {
  Node tree = Node::map();
  Report report;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (auto override = parse_override({arguments[i], static_cast<int>(i) + 1}, report))
      apply_override(tree, *override, report);
  report.throw_if_errors();
  return tree.with_base_path("tokenizer");
}

std::string rate(const PrepareReport& report) {
  double seconds = std::max(report.seconds, 1e-6);
  return cat(human_bytes(static_cast<uint64_t>(static_cast<double>(report.bytes_read) / seconds)), "/s");
}

void show_progress(const PrepareReport& report) {
  double part = report.bytes_total
                    ? static_cast<double>(report.bytes_read) / static_cast<double>(report.bytes_total)
                    : 1;
  std::fprintf(stderr, "\r\033[K%3.0f%%  %s documents, %s tokens, %s", 100 * std::min(part, 1.0),
               human_count(static_cast<double>(report.documents)).c_str(),
               human_count(static_cast<double>(report.tokens)).c_str(), rate(report).c_str());
}

void print_report(const PrepareReport& report, const PrepareArguments& arguments) {
  if (arguments.json) {
    std::cout << nlohmann::ordered_json{{"output", arguments.output},
                                        {"documents", report.documents},
                                        {"empty_documents", report.empty_documents},
                                        {"tokens", report.tokens},
                                        {"replaced", report.replaced},
                                        {"skipped", report.skipped},
                                        {"bytes_read", report.bytes_read},
                                        {"bytes_written", report.bytes_written},
                                        {"seconds", report.seconds}}
                     .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << '\n';
    return;
  }
  std::cout << "wrote " << arguments.output << ".bin and .idx: " << report.documents << " documents, "
            << report.tokens << " tokens, " << human_bytes(report.bytes_written) << " (read "
            << human_bytes(report.bytes_read) << " in " << human_seconds(report.seconds) << ", "
            << rate(report) << ")\n";
  if (report.empty_documents) std::cout << "  " << report.empty_documents << " documents are empty\n";
  if (report.replaced) std::cout << "  " << report.replaced << " lines had broken UTF-8 replaced\n";
  if (report.skipped) std::cout << "  " << report.skipped << " broken lines were left out\n";
}

void prepare(Cli& cli, PrepareArguments& arguments) {
  SignalWatch signals;
  PluginHost plugins = plugin_host(cli);
  auto tokenizer = make_tokenizer(plugins, arguments.tokenizer, arguments.settings);
  PrepareOptions& options = arguments.options;
  options.inputs.assign(arguments.inputs.begin(), arguments.inputs.end());
  options.output = arguments.output;
  if (!arguments.format.empty()) options.format = kFormats.at(arguments.format);
  options.split_on = kSplits.at(arguments.split_on);
  options.on_bad = kOnBad.at(arguments.on_bad);
  if (options.output.has_parent_path()) make_directories(options.output.parent_path());

  const bool live = !cli.quiet && !arguments.json && ::isatty(STDERR_FILENO);
  auto clear = [live] {
    if (live) std::fputs("\r\033[K", stderr);
  };
  try {
    PrepareReport report = prepare_dataset(*tokenizer, options, [&](const PrepareReport& now) {
      if (signals.received() != 0) throw Interrupted();
      if (live) show_progress(now);
    });
    clear();
    if (!cli.quiet || arguments.json) print_report(report, arguments);
  } catch (const Interrupted&) {
    clear();
    std::cerr << "stopped; nothing was written\n";
    cli.status = 128 + signals.received();
  } catch (...) {
    clear();
    throw;
  }
}

struct InspectArguments {
  std::string prefix;
  int64_t vocab_size = 0;
  bool tokens = false, json = false;
};

void inspect(const InspectArguments& arguments) {
  IndexedFile file(arguments.prefix);
  IndexedSummary summary = summarize(file);
  const bool scan = arguments.tokens || arguments.vocab_size > 0;
  TokenRange range = scan ? scan_tokens(file, arguments.vocab_size) : TokenRange{};
  if (arguments.json) {
    nlohmann::ordered_json out{
        {"prefix", file.prefix().string()}, {"dtype", name(file.dtype())},
        {"documents", summary.documents},   {"empty_documents", summary.empty_documents},
        {"sequences", summary.sequences},   {"tokens", summary.tokens},
        {"shortest", summary.shortest},     {"median", summary.median},
        {"longest", summary.longest},       {"modes", file.has_modes()},
        {"bin_bytes", file.bin_bytes()},    {"idx_bytes", file.idx_bytes()}};
    if (scan) out["smallest_id"] = range.smallest, out["largest_id"] = range.largest;
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    return;
  }
  std::cout << file.prefix().string() << ": valid\n"
            << "  token type   " << name(file.dtype()) << '\n'
            << "  documents    " << summary.documents;
  if (summary.empty_documents) std::cout << " (" << summary.empty_documents << " empty)";
  std::cout << '\n'
            << "  sequences    " << summary.sequences << (file.has_modes() ? ", with modes" : "") << '\n'
            << "  tokens       " << summary.tokens << '\n'
            << "  per document shortest " << summary.shortest << ", median " << summary.median << ", longest "
            << summary.longest << '\n'
            << "  files        .bin " << human_bytes(file.bin_bytes()) << ", .idx "
            << human_bytes(file.idx_bytes()) << '\n';
  if (scan) std::cout << "  ids          " << range.smallest << " to " << range.largest << '\n';
}

void add_prepare(CLI::App& data, Cli& cli) {
  auto* command = data.add_subcommand("prepare", "turn text or JSON lines into a .bin/.idx pair");
  auto a = std::make_shared<PrepareArguments>();
  PrepareOptions& o = a->options;
  command
      ->add_option("-i,--input", a->inputs,
                   "text (.txt, .md) or JSON lines (.jsonl); several become one pair, in order")
      ->required()
      ->type_name("FILE")
      ->allow_extra_args(false);
  command->add_option("-o,--output", a->output, "prefix of the two files to write")
      ->required()
      ->type_name("PREFIX");
  command->add_option("-t,--tokenizer", a->tokenizer, "a tokenizer plugin (see `mtrain plugins ls`)")
      ->required()
      ->type_name("NAME");
  command->add_flag("--append-eod", o.append_eod,
                    "end each document with the tokenizer's end-of-document token");
  command->add_option("--json-key", o.json_key, "the field of each JSON line that holds the text")
      ->capture_default_str();
  add_choice(*command, "--format", a->format, kFormats, "what the inputs are, when their names do not say");
  add_choice(*command, "--split-on", a->split_on, kSplits, "what is one document of a text file")
      ->capture_default_str();
  command->add_option("--document-bytes", o.document_bytes,
                      "text: end a document at the first line end after so many bytes");
  command->add_option("--max-document-bytes", o.max_document_bytes, "a longer line or document is an error")
      ->capture_default_str();
  add_choice(*command, "--on-bad", a->on_bad, kOnBad, "at a broken line; replace mends broken UTF-8 only")
      ->capture_default_str();
  command->add_option("--max-bad", o.max_bad, "more broken lines than this are an error")
      ->capture_default_str();
  command->add_flag("-f,--force", o.overwrite, "replace an existing pair");
  command->add_flag("--json", a->json, "print the summary as JSON");
  command->add_option("settings", a->settings, "settings of the tokenizer: key=value")
      ->type_name("KEY=VALUE");
  command->footer(
      "Examples:\n"
      "  mtrain data prepare -i web.jsonl -o data/web -t byte --append-eod\n"
      "  mtrain data prepare -i book.txt -o data/book -t byte --append-eod --split-on blank-lines\n"
      "  mtrain data prepare -i a.jsonl -i b.jsonl -o data/ab -t byte --json-key body --on-bad skip\n"
      "A text is divided into train, valid and test by documents: give it more than one (--split-on, "
      "--document-bytes).");
  command->callback([&cli, a] { prepare(cli, *a); });
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(PluginHost& plugins, const std::string& name,
                                          const std::vector<std::string>& settings) {
  TokenizerContext context{fs::current_path()};
  return plugins.make<Tokenizer>(name, settings_tree(settings), context);
}

void add_data_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("data", "prepare and inspect training data");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  mtrain data prepare -i web.jsonl -o data/web -t byte --append-eod\n"
      "  mtrain data inspect data/web");
  add_prepare(*command, cli);
  add_data_tokenize(*command, cli);
  add_data_render(*command, cli);
  add_data_stats(*command, cli);
  add_data_show(*command, cli);
  add_data_merge(*command, cli);

  auto* look = command->add_subcommand("inspect", "check a .bin/.idx pair and say what is in it");
  auto a = std::make_shared<InspectArguments>();
  look->add_option("prefix", a->prefix, "the pair, with or without .bin or .idx")
      ->required()
      ->type_name("PREFIX");
  look->add_flag("--tokens", a->tokens, "read every token as well");
  look->add_option("--vocab-size", a->vocab_size, "read every token and refuse ids that are not below this")
      ->check(CLI::NonNegativeNumber);
  look->add_flag("--json", a->json, "print as JSON");
  look->footer(
      "Examples:\n  mtrain data inspect data/web\n  mtrain data inspect data/web --vocab-size 257 --json");
  look->callback([a] { inspect(*a); });
}

}  // namespace mtrain
