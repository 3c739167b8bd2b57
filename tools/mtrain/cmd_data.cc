// mtrain data: prepares and inspects training data.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "data_commands.h"
#include "mtrain/base/error.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"
#include "mtrain/config/override.h"
#include "mtrain/config/setting_word.h"
#include "mtrain/config/text_settings.h"
#include "mtrain/data/indexed_summary.h"
#include "mtrain/data/line_reader.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {
namespace {

struct InspectArguments {
  std::string prefix;
  int64_t vocab_size = 0;
  bool tokens = false, json = false;
};

void inspect_prepared(const InspectArguments& arguments) {
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
    print_json(out);
    return;
  }
  std::cout << file.prefix().string() << ": valid\n"
            << "  token type   " << name(file.dtype()) << '\n'
            << "  documents    " << summary.documents;
  if (summary.empty_documents) std::cout << " (" << summary.empty_documents << " empty)";
  std::cout << '\n'
            << "  sequences    " << summary.sequences << (file.has_modes() ? ", with modes" : "")
            << '\n'
            << "  tokens       " << summary.tokens << '\n'
            << "  per document shortest " << summary.shortest << ", median " << summary.median
            << ", longest " << summary.longest << '\n'
            << "  files        .bin " << human_bytes(file.bin_bytes()) << ", .idx "
            << human_bytes(file.idx_bytes()) << '\n';
  if (scan) std::cout << "  ids          " << range.smallest << " to " << range.largest << '\n';
}

}  // namespace

void each_line(const std::string& path,
               const std::function<void(std::string_view line, const std::string& place)>& each) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  LineReader reader(path, kMostBytes, "split the line");
  for (std::string_view line; reader.next(line);)
    if (!trim(line).empty()) each(line, reader.place());
}

std::vector<std::string> take_settings(std::vector<std::string>& words) {
  auto is_file = [](const std::string& word) {
    std::error_code ignored;
    return fs::exists(word, ignored) || fs::exists(word + ".idx", ignored);
  };
  auto others = std::stable_partition(words.begin(), words.end(), [&](const auto& word) {
    return !looks_like_override(word) || is_file(word);
  });
  std::vector<std::string> settings(others, words.end());
  words.erase(others, words.end());
  return settings;
}

Node settings_tree(const PluginHost& plugins, const std::vector<std::string>& arguments,
                   const std::string& section) {
  Node whole = Node::map();
  whole.set(section, Node::map());
  Report report;
  const SchemaCatalog catalog = schema_catalog(plugins);
  for (const std::string& argument : arguments) {
    const bool full = argument.starts_with(section + ".");
    auto is_text = [&](const std::string& key) {
      return is_text_setting(full ? key : cat(section, ".", key), catalog);
    };
    // The number of the argument is not known here, so messages show its text alone.
    auto override = parse_override({.text = argument}, report, false, is_text);
    if (!override) continue;
    if (!full) override->key = cat(section, ".", override->key);
    apply_override(whole, *override, report);
  }
  report.throw_if_errors();
  return Node(*whole.get(section)).with_base_path(section);
}

std::unique_ptr<Tokenizer> make_tokenizer(PluginHost& plugins, const std::string& name,
                                          const std::vector<std::string>& settings) {
  for (const auto& word : settings)
    MT_USER_CHECK(looks_like_override(word), ErrorClass::usage,
                  cat("'", printable(word, 100),
                      "' is not a setting of the tokenizer: settings are written key=value"),
                  cat("the tokenizer's files are ", setting_word("path", word),
                      "; for another input file, repeat --input: --input ", shell_word(word)));
  const auto files = plugins.list();
  const bool known = std::ranges::any_of(files, [&](const PluginFileInfo& file) {
    return file.kind == Tokenizer::kKind && file.name == name;
  });
  if (!known && path_exists(name)) {  // in place of the plugin that reads it
    const fs::path file = fs::path(name).filename();
    const char* reader = file.extension() == ".model"      ? "sentencepiece"
                         : file.extension() == ".tiktoken" ? "tiktoken"
                                                           : "hf";
    throw Error(ErrorClass::usage,
                cat(printable(name, 100), " is a path, not the name of a tokenizer plugin"),
                cat("write -t ", reader, " path=", shell_word(name)));
  }
  TokenizerContext context{fs::current_path()};
  return plugins.make<Tokenizer>(name, settings_tree(plugins, settings, "tokenizer"), context);
}

void check_tokenizer_settings(const std::string& tokenizer,
                              const std::vector<std::string>& settings) {
  MT_USER_CHECK(
      settings.empty() || !tokenizer.empty(), ErrorClass::usage,
      cat(printable(settings.front()), " is a setting of a tokenizer, but no tokenizer is given"),
      "add -t NAME");
}

fs::path output_prefix(const std::string& text) {
  const std::string file = fs::path(text).filename().string();
  MT_USER_CHECK(!file.empty() && file != "." && file != ".." && file != ".bin" && file != ".idx",
                ErrorClass::usage,
                cat("--output ", printable(text),
                    ": a prefix ends with the name of the pair, and "
                    "this has no name"),
                cat("write ", printable((fs::path(text).parent_path() / "NAME").string())));
  return pair_prefix(text);
}

void make_folder_of(const fs::path& prefix) {
  if (prefix.has_parent_path()) make_directories(prefix.parent_path());
}

void refuse_options(const CLI::App& command, std::initializer_list<const char*> options,
                    const std::string& why) {
  for (const char* option : options)
    MT_USER_CHECK(command.get_option(option)->count() == 0, ErrorClass::usage,
                  cat(option, " has no effect ", why), "leave it out");
}

void refuse_dataset_settings(const std::vector<std::string>& settings,
                             std::initializer_list<const char*> names, const std::string& why) {
  for (const std::string& setting : settings) {
    const std::string key =
        setting.substr(kOfDataset.size(), setting.find('=') - kOfDataset.size());
    const bool refused =
        names.size() == 0 || std::find(names.begin(), names.end(), key) != names.end();
    MT_USER_CHECK(!refused, ErrorClass::usage,
                  cat("dataset.", printable(key, 100), " has no effect ", why), "leave it out");
  }
}

TokenizerWords option_words() { return {.name = "write -t ", .accept = "--any-tokenizer"}; }

void add_data_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("data", "prepare and inspect training data");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  mtrain data prepare -i web.jsonl -o data/web -t byte --append-eod\n"
      "  mtrain data inspect data/web");
  add_data_prepare(*command, cli);
  add_data_tokenize(*command, cli);
  add_data_render(*command, cli);
  add_data_stats(*command, cli);
  add_data_show(*command, cli);
  add_data_pack(*command, cli);
  add_data_merge(*command, cli);
  add_data_verify(*command, cli);

  auto* look =
      command->add_subcommand("inspect", "check a .bin/.idx pair and describe its contents");
  auto a = std::make_shared<InspectArguments>();
  look->add_option("prefix", a->prefix, "the pair, with or without .bin or .idx")
      ->required()
      ->type_name("PREFIX");
  look->add_flag("--tokens", a->tokens, "read every token as well");
  look->add_option("--vocab-size", a->vocab_size,
                   "read every token and refuse ids of this value or above")
      ->check(CLI::PositiveNumber);
  look->add_flag("--json", a->json, "print as JSON");
  look->footer(
      "Examples:\n  mtrain data inspect data/web\n  mtrain data inspect data/web --vocab-size 257 "
      "--json");
  look->callback([a] { inspect_prepared(*a); });
}

}  // namespace mtrain
