// mtrain data verify: checks that .bin/.idx pairs are complete and contain tokens of a vocabulary.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "data_commands.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/data/indexed_summary.h"
#include "mtrain/finetune/packed_file.h"

namespace mtrain {
namespace {

struct VerifyArguments {
  std::vector<std::string> prefixes, settings;
  std::string tokenizer;
  int64_t vocab_size = 0;
  bool ends = false, any_tokenizer = false, json = false;
};

/// What to check: ids below `vocab_size`, and the end of each document.
struct Wanted {
  int64_t vocab_size = 0;
  std::optional<int32_t> eod;
  std::shared_ptr<const Tokenizer> tokenizer;  // that pairs were prepared by; null: any
};

Wanted wanted(const Cli& cli, const VerifyArguments& arguments) {
  Wanted out{arguments.vocab_size, {}, {}};
  if (!arguments.tokenizer.empty()) {
    PluginHost plugins = plugin_host(cli);
    std::shared_ptr<const Tokenizer> tokenizer =
        make_tokenizer(plugins, arguments.tokenizer, arguments.settings);
    out.vocab_size = tokenizer->vocab_size();
    if (arguments.ends) out.eod = tokenizer->eod();
    if (!arguments.any_tokenizer) out.tokenizer = std::move(tokenizer);
  }
  MT_USER_CHECK(!arguments.ends || out.eod, ErrorClass::usage,
                "--eod needs a tokenizer with an end-of-document token", "name it: -t NAME path=…");
  return out;
}

nlohmann::ordered_json verify_one(const std::string& prefix, const Wanted& wanted) {
  IndexedFile file(prefix);
  if (wanted.tokenizer) check_tokenizer(file, *wanted.tokenizer, option_words());
  TokenRange range = scan_tokens(file, wanted.vocab_size);
  if (wanted.eod) check_ends(file, *wanted.eod);
  if (finetune::is_packed(file.prefix()))
    finetune::PackedFile::verify(file.prefix(), wanted.vocab_size);
  return {{"prefix", file.prefix().string()},  {"documents", file.num_documents()},
          {"sequences", file.num_sequences()}, {"tokens", file.num_tokens()},
          {"dtype", name(file.dtype())},       {"smallest_id", range.smallest},
          {"largest_id", range.largest}};
}

/// Checks all pairs; the status is that of the first damaged one.
void verify_prepared(Cli& cli, const VerifyArguments& arguments) {
  const Wanted against = wanted(cli, arguments);
  for (const auto& prefix : arguments.prefixes) {
    nlohmann::ordered_json out;
    out["prefix"] = prefix;
    try {
      out = verify_one(prefix, against);
      out["valid"] = true;
    } catch (const Error& error) {
      if (cli.status == 0) cli.status = error.exit_status();
      out["valid"] = false;
      out["fault"] = error.message();
      if (!arguments.json) {
        std::cerr << headline(name(error.error_class()), error.message());
        if (!error.hint().empty()) std::cerr << "  " << error.hint() << '\n';
      }
    }
    if (arguments.json)
      std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    else if (out["valid"] == true && !cli.quiet)
      std::cout << printable(prefix) << ": valid, "
                << counted(out["documents"].get<int64_t>(), "document") << ", "
                << counted(out["tokens"].get<int64_t>(), "token") << ", ids " << out["smallest_id"]
                << " to " << out["largest_id"] << '\n';
  }
}

}  // namespace

void add_data_verify(CLI::App& data, Cli& cli) {
  auto* command =
      data.add_subcommand("verify", "read .bin/.idx pairs completely and report errors");
  auto a = std::make_shared<VerifyArguments>();
  command
      ->add_option(
          "prefixes", a->prefixes,
          "the pairs, with or without .bin or .idx; and settings of the tokenizer: key=value")
      ->required()
      ->type_name("PREFIX KEY=VALUE");
  auto* tokenizer = command
                        ->add_option("-t,--tokenizer", a->tokenizer,
                                     "refuse ids that this tokenizer does not have, and pairs that "
                                     "say they were prepared with another one")
                        ->type_name("NAME");
  command->add_option("--vocab-size", a->vocab_size, "refuse ids of this value or above")
      ->check(CLI::PositiveNumber)
      ->excludes(tokenizer);
  command
      ->add_flag("--eod", a->ends,
                 "refuse documents that do not end with the tokenizer's end-of-document token")
      ->needs(tokenizer);
  command
      ->add_flag("--any-tokenizer", a->any_tokenizer,
                 "also check pairs that were prepared with another tokenizer")
      ->needs(tokenizer);
  command->add_flag("--json", a->json, "print one JSON object per pair and line");
  command->footer(
      "Exit status: 11 if a pair is damaged.\nExamples:\n"
      "  mtrain data verify data/web data/books\n"
      "  mtrain data verify data/web -t hf path=models/gpt2 --eod");
  command->callback([&cli, a] {
    a->settings = take_settings(a->prefixes);
    check_tokenizer_settings(a->tokenizer, a->settings);
    MT_USER_CHECK(!a->prefixes.empty(), ErrorClass::usage, "no pair is given",
                  "mtrain data verify PREFIX …");
    verify_prepared(cli, *a);
  });
}

}  // namespace mtrain
