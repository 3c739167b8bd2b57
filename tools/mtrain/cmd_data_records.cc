// mtrain data show and pack for fine-tuning records: shows their tokens, and how well they fill
// samples.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstring>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data_commands.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"
#include "mtrain/base/text_stream.h"
#include "mtrain/finetune/preference.h"
#include "mtrain/finetune/sft_data.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

using namespace finetune;

/// A tokenizer, and the context of a dataset.
struct Opened {
  std::unique_ptr<Tokenizer> tokenizer;
  DatasetContext context;
};

/// Refuses settings of other sections of a recipe.
void check_sections(const PluginHost& plugins, const RecordArguments& arguments) {
  const SchemaCatalog catalog = schema_catalog(plugins);
  for (const std::string& word : arguments.settings) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals), section = key.substr(0, key.find('.'));
    if (section == key || section == "dataset" || section == "tokenizer" ||
        !catalog.section(section))
      continue;
    throw Error(ErrorClass::usage,
                cat(printable(key, 100),
                    " has no effect here: this command takes settings of the "
                    "tokenizer (key=value) and of the dataset (dataset.key=value)"),
                key == "model.seq_length"
                    ? cat("write --seq-length ", printable(word.substr(equals + 1)))
                    : std::string("leave it out"));
  }
}

Opened open(PluginHost& plugins, const RecordArguments& arguments) {
  check_sections(plugins, arguments);
  refuse_dataset_settings(
      arguments.dataset_settings(), {"path", "valid_path", "test_path", "split"},
      cat("here: the command reads all records of ", printable(arguments.path)));
  Opened out{make_tokenizer(plugins, arguments.tokenizer, arguments.tokenizer_settings()), {}};
  out.context = {.seq_length = arguments.seq_length,
                 .seed = 0,
                 .base_directory = fs::current_path(),
                 .tokenizer = out.tokenizer.get()};
  return out;
}

/// Names the option --seq-length where a message for a recipe names the setting that it sets.
std::string in_option_words(std::string text) {
  for (const auto& [setting, option] :
       {std::pair{"model.seq_length=", "--seq-length "}, {"model.seq_length", "--seq-length"}})
    for (size_t at = text.find(setting); at != std::string::npos; at = text.find(setting, at))
      text.replace(at, std::strlen(setting), option);
  return text;
}

/// Does the work; its errors are in the words of in_option_words().
template <class Work>
void with_option_words(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    throw Error(error.error_class(), in_option_words(error.message()),
                in_option_words(error.hint()));
  }
}

/// Checks the rules between the settings that these commands read, as training does; shows warnings
/// and throws Error(config) with the violations. `packing`: replaces dataset.packing, unless null.
void check_settings(const PluginHost& plugins, const RecordArguments& arguments,
                    const char* packing = nullptr) {
  const SchemaCatalog catalog = schema_catalog(plugins);
  Node sections = Node::map();
  Report report, unread;  // what is faulty in itself is reported where it is read
  auto add = [&](const char* name, const std::string& type, Node given) {
    given.set("type", Node::string(type));
    ValidateOptions options;
    options.path = name;
    for (const Node& part : validate(given, catalog.owners(name, type), unread, options))
      for (const auto& entry : part.entries()) sections.set(cat(name, ".", entry.key), entry.value);
  };
  add("tokenizer", arguments.tokenizer,
      settings_tree(plugins, arguments.tokenizer_settings(), "tokenizer"));
  add("dataset", arguments.type, settings_tree(plugins, arguments.dataset_settings(), "dataset"));
  sections.set("dataset.path", Node::string(arguments.path));
  if (packing) sections.set("dataset.packing", Node::string(packing));
  sections.set("model.seq_length", Node::integer(arguments.seq_length));
  check_rules_within(sections, catalog, report);
  report.throw_if_errors();
  if (report.warnings() > 0) write_standard_error(in_option_words(report.text()) + "\n");
}

/// Prints tokens that are trained on in green, or in brackets, and the others plainly. The first
/// token is never trained on, because nothing predicts it.
void print_tokens(std::span<const int32_t> ids, std::span<const uint8_t> trained,
                  const Tokenizer& tokenizer, const ShownTokens& shown) {
  const bool colours = ::isatty(STDOUT_FILENO) != 0;
  const TokenTexts texts(tokenizer, shown.ids);
  const size_t count = std::min(ids.size(), static_cast<size_t>(shown.most));
  for (size_t i = 0; i < count; ++i) {
    const std::string text = texts(ids, i);
    const bool is_trained = i > 0 && trained[i];
    const char* tint = is_trained ? (i % 2 == 0 ? "\033[30;42m" : "\033[30;102m")
                                  : (i % 2 == 0 ? "\033[2m" : "\033[22m");
    if (colours)
      std::cout << tint << text << "\033[0m";
    else
      std::cout << (i > 0 ? "|" : "") << (is_trained ? cat("[", text, "]") : text);
  }
  std::cout << (count < ids.size() ? colours ? " …\n" : "|…\n" : "\n");
}

void print_example(const std::string& title, const ExampleStore& store, int64_t example,
                   const Tokenizer& tokenizer, const ShownTokens& shown) {
  auto trained = store.trained(example);
  std::cout << title << ", " << counted(trained.size(), "token") << ", "
            << std::count(trained.begin() + 1, trained.end(), 1) << " trained on:\n";
  print_tokens(store.ids(example), trained, tokenizer, shown);
}

void show_preferences(const PluginHost& plugins, const RecordArguments& arguments,
                      const Opened& opened,
                      const std::function<std::pair<int64_t, int64_t>(int64_t)>& range,
                      const ShownTokens& shown) {
  auto settings = read_config<PreferenceSettings>(
      settings_tree(plugins, arguments.dataset_settings(), "dataset"));
  check_settings(plugins, arguments);
  const ExampleEncoder encoder = make_encoder({.records = settings.records}, opened.context);
  PreferenceFile file =
      load_preference_file(arguments.path, settings, encoder, arguments.seq_length);
  file.log_unused();
  std::cout << file.summary(arguments.seq_length) << '\n';
  auto [first, last] = range(file.size());
  for (int64_t i = first; i < last; ++i) {
    const std::string& place = file.places[static_cast<size_t>(i)];
    if (!file.pairs) {
      print_example(cat(place, file.good[static_cast<size_t>(i)] ? ", good" : ", bad"),
                    *file.answers, i, *opened.tokenizer, shown);
      continue;
    }
    print_example(cat(place, ", chosen"), *file.answers, 2 * i, *opened.tokenizer, shown);
    print_example(cat(place, ", rejected"), *file.answers, 2 * i + 1, *opened.tokenizer, shown);
  }
}

struct PackArguments {
  RecordArguments records;
  std::string output;
  bool json = false, force = false;
};

std::string percent(double share) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << 100 * share << " %";
  return out.str();
}

/// How well packs fill samples.
struct Fill {
  int64_t records, tokens;
  int64_t packs, fewest_packs, pack_length;
  size_t most_records;
  double efficiency, efficiency_unpacked;  // shares of the samples' positions
};

Fill fill_of(const SftFile& file, const Packs& packs, int64_t pack_length, int64_t seq_length) {
  const int64_t records = file.examples->size(), tokens = file.examples->num_tokens() - records;
  size_t most = 0;
  for (int64_t p = 0; p < packs.size(); ++p) most = std::max(most, packs[p].size());
  const auto share = [&](int64_t samples) {
    return static_cast<double>(tokens) /
           (static_cast<double>(samples) * static_cast<double>(seq_length));
  };
  return {.records = records,
          .tokens = tokens,
          .packs = packs.size(),
          .fewest_packs = (tokens + pack_length - 1) / pack_length,
          .pack_length = pack_length,
          .most_records = most,
          .efficiency = share(packs.size()),
          .efficiency_unpacked = share(records)};
}

void print_packing_json(const RecordArguments& a, const SftFile& file, const Fill& fill) {
  print_json({{"file", a.path},
              {"format", file.format},
              {"records", fill.records},
              {"seq_length", a.seq_length},
              {"packed_length", fill.pack_length},
              {"tokens", file.counts.tokens},
              {"positions", fill.tokens},  // a token less per record
              {"trained_tokens", file.counts.trained_tokens},
              {"truncated", file.counts.truncated},
              {"truncated_trained_tokens", file.counts.truncated_trained},
              {"truncated_before_trained", file.counts.trained_beyond},
              {"too_long", file.counts.too_long},
              {"untrained", file.counts.untrained},
              {"packs", fill.packs},
              {"fewest_packs", fill.fewest_packs},
              {"most_records_in_a_pack", fill.most_records},
              {"efficiency", fill.efficiency},
              {"efficiency_unpacked", fill.efficiency_unpacked}});
}

void print_packing_text(const PackArguments& arguments, const SftFile& file, const Fill& fill) {
  const RecordArguments& a = arguments.records;
  std::cout << file.summary() << '\n'
            << counted(fill.records, "record") << " in " << counted(fill.packs, "pack") << " of "
            << fill.pack_length << " tokens, up to " << fill.most_records
            << " in one (no packing has fewer than " << fill.fewest_packs << ")\n"
            << (fill.pack_length < a.seq_length ? cat("samples have ", a.seq_length, " tokens\n")
                                                : "")
            << "positions filled: " << percent(fill.efficiency) << ", without packing "
            << percent(fill.efficiency_unpacked) << '\n';
  if (arguments.output.empty()) return;
  std::cout << "written to " << printable(arguments.output)
            << ": train with dataset=sft dataset.path=" << printable(arguments.output);
  for (const auto& setting : a.dataset_settings()) std::cout << ' ' << shell_word(setting);
  std::cout << '\n';
}

void pack(const Cli& cli, const PackArguments& arguments) {
  PluginHost plugins = plugin_host(cli);
  const RecordArguments& a = arguments.records;
  Opened opened = open(plugins, a);
  auto settings = read_config<SftSettings>(settings_tree(plugins, a.dataset_settings(), "dataset"));
  MT_USER_CHECK(settings.packing != "none", ErrorClass::usage,
                "dataset.packing=none: data pack packs the records offline",
                "leave it out; to see records as samples of their own: mtrain data show");
  settings.packing = "offline";
  check_settings(plugins, a, "offline");
  const ExampleEncoder encoder = make_encoder(settings, opened.context);
  const SftFile file = load_sft_file(a.path, settings, encoder, a.seq_length);
  file.log_unused();
  std::vector<int32_t> all;
  for (int64_t i = 0; i < file.examples->size(); ++i) all.push_back(static_cast<int32_t>(i));
  const Packs packs = make_packs(*file.examples, all, settings, a.seq_length);
  if (!arguments.output.empty()) {
    PackedOrigin origin = packed_origin(settings, encoder, opened.context);
    origin.settings = packed_settings(settings, file, a.seq_length);
    origin.source = file.path, origin.source_sha256 = file.digest;
    const fs::path prefix = output_prefix(arguments.output);
    make_folder_of(prefix);
    write_packed(prefix, *file.examples, packs, origin, arguments.force);
  }
  const Fill fill = fill_of(file, packs, settings.pack_length(a.seq_length), a.seq_length);
  arguments.json ? print_packing_json(a, file, fill) : print_packing_text(arguments, file, fill);
}

}  // namespace

void add_record_options(CLI::App& command, RecordArguments& a, RecordInputs inputs) {
  const bool pairs = inputs == RecordInputs::records_or_pair;
  command
      .add_option("-t,--tokenizer", a.tokenizer,
                  pairs ? "the tokenizer plugin; for a pair, the one it was prepared with"
                        : "the tokenizer plugin")
      ->required()
      ->type_name("NAME");
  command
      .add_option("--seq-length", a.seq_length,
                  pairs ? "for records: tokens of a sample" : "tokens of a sample")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command
      .add_option("settings", a.settings,
                  "settings of the tokenizer: key=value, and of the dataset: dataset.key=value")
      ->type_name("KEY=VALUE");
}

std::vector<std::string> RecordArguments::tokenizer_settings() const {
  std::vector<std::string> out;
  for (const auto& word : settings)
    if (!word.starts_with(kOfDataset)) out.push_back(word);
  return out;
}

std::vector<std::string> RecordArguments::dataset_settings() const {
  std::vector<std::string> out;
  for (const auto& word : settings)
    if (word.starts_with(kOfDataset)) out.push_back(word);
  return out;
}

namespace {

std::string token_text(std::span<const int32_t> ids, size_t at, const Tokenizer& tokenizer) {
  constexpr size_t kBefore = 8;  // tokens that may decide how this one is spaced
  const auto context = ids.subspan(at - std::min(at, kBefore), std::min(at, kBefore) + 1);
  const std::string before = tokenizer.decode(context.first(context.size() - 1)),
                    with = tokenizer.decode(context);
  if (with.size() > before.size() && with.starts_with(before)) return with.substr(before.size());
  return tokenizer.decode(ids.subspan(at, 1));
}

}  // namespace

std::string TokenTexts::operator()(std::span<const int32_t> ids, size_t at) const {
  const int32_t id = ids[at];
  const auto special = std::ranges::find(special_, id, &SpecialToken::id);
  const std::string text =
      printable(special != special_.end() ? special->text : token_text(ids, at, tokenizer_), 400);
  if (text.empty()) return cat("<", id, ">");
  return numbers_ ? cat(text, "=", id) : text;
}

namespace {

void show_answers(const Cli& cli, const RecordArguments& arguments,
                  const std::function<std::pair<int64_t, int64_t>(int64_t)>& range,
                  const ShownTokens& shown) {
  PluginHost plugins = plugin_host(cli);
  Opened opened = open(plugins, arguments);
  if (arguments.type == "preference")
    return show_preferences(plugins, arguments, opened, range, shown);
  auto settings =
      read_config<SftSettings>(settings_tree(plugins, arguments.dataset_settings(), "dataset"));
  check_settings(plugins, arguments);
  const SftFile file = load_sft_file(
      arguments.path, settings, make_encoder(settings, opened.context), arguments.seq_length, true);
  file.log_unused();
  std::cout << file.summary() << '\n';
  auto [first, last] = range(file.examples->size());
  for (int64_t i = first; i < last; ++i)
    print_example(file.places[static_cast<size_t>(i)], *file.examples, i, *opened.tokenizer, shown);
}

}  // namespace

void show_records(const Cli& cli, const RecordArguments& arguments,
                  const std::function<std::pair<int64_t, int64_t>(int64_t)>& range,
                  const ShownTokens& shown) {
  with_option_words([&] { show_answers(cli, arguments, range, shown); });
}

void add_data_pack(CLI::App& data, Cli& cli) {
  auto* command = data.add_subcommand(
      "pack", "show how well fine-tuning records fill samples; with --output, write the packs");
  auto a = std::make_shared<PackArguments>();
  command->add_option("file", a->records.path, "a .json or .jsonl file of records")
      ->required()
      ->type_name("FILE");
  add_record_options(*command, a->records, RecordInputs::records);
  auto* output = command
                     ->add_option("-o,--output", a->output,
                                  "write a packed dataset: PREFIX.bin, PREFIX.idx and further "
                                  "files PREFIX.*; use it with "
                                  "dataset.path=PREFIX")
                     ->check(check_output_path)
                     ->type_name("PREFIX");
  command->add_flag("--force", a->force, "replace files that exist")->needs(output);
  command->add_flag("--json", a->json, "print as JSON");
  command->footer(
      "Example:\n  mtrain data pack chats.jsonl -t hf path=models/qwen --seq-length 8192");
  command->callback([&cli, a] { with_option_words([&] { pack(cli, *a); }); });
}

}  // namespace mtrain
