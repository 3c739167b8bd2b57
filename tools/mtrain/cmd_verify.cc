// mtrain verify layouts: trains a small version of a recipe in every parallel layout and compares
// it with one rank, to find out whether a wrong loss is caused by the layout.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <iostream>

#include "cli.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/launch/dtype_choice.h"
#include "mtrain/train/signals.h"
#include "mtrain/verify/report.h"
#include "recipe_words.h"

namespace mtrain {
namespace {

struct VerifyWords {
  VerifyOptions options;
  std::string only, part, certificate;
  bool pairwise = false, list = false;
};

/// "2/5": the second of five parts of the layouts (every fifth layout), so that several machines
/// can divide them.
struct LayoutPart {
  size_t mine = 1, parts = 1;
  bool has(size_t index) const { return index % parts == mine - 1; }
};

LayoutPart part_of(const std::string& words) {
  LayoutPart part;
  if (words.empty()) return part;
  auto numbers = split(words, '/');
  auto number = [&](size_t i, size_t& out) {
    auto [end, error] =
        std::from_chars(numbers[i].data(), numbers[i].data() + numbers[i].size(), out);
    return error == std::errc() && end == numbers[i].data() + numbers[i].size();
  };
  MT_USER_CHECK(numbers.size() == 2 && number(0, part.mine) && number(1, part.parts) &&
                    part.mine >= 1 && part.mine <= part.parts,
                ErrorClass::usage, cat("--part: '", printable(words), "' is not a part I/N"),
                "write the part and the number of parts: --part 2/5");
  return part;
}

/// Layouts whose names contain every word of `only`, except for words after a '!', which they must
/// not contain.
LayoutFilter named(const std::string& only) {
  return [wanted = split(only, ' ')](const RankLayout& layout) {
    const std::string name = " " + text(layout) + " ";
    return std::all_of(wanted.begin(), wanted.end(), [&](std::string_view word) {
      const bool absent = word.starts_with('!');
      return (name.find(cat(" ", absent ? word.substr(1) : word)) == std::string::npos) == absent;
    });
  };
}

/// The part of the layouts that pass `filter`, counted in the order of the calls.
LayoutFilter part_filter(LayoutPart part, LayoutFilter filter) {
  return [part, filter = std::move(filter), index = size_t{0}](const RankLayout& layout) mutable {
    return filter(layout) && part.has(index++);
  };
}

/// Throws: no layout with the chosen name is valid.
[[noreturn]] void refuse_all(const LayoutList& list, const VerifyWords& words) {
  const std::string which =
      cat("layout of ", counted(words.options.ranks, "rank"),
          words.only.empty() ? "" : cat(" with '", printable(words.only), "' in its name"));
  MT_USER_CHECK(list.candidates > 0, ErrorClass::usage, cat("there is no ", which),
                "see the names with: mtrain verify layouts RECIPE --list");
  const auto& reasons = list.refused.empty() ? list.not_built : list.refused;
  throw Error(
      ErrorClass::usage,
      cat("no ", which, " is valid: ", reasons.front().reason, ": ", reasons.front().detail),
      "see the valid ones with: mtrain verify layouts RECIPE --list");
}

/// The layouts to train. A pairwise set is chosen from all layouts and then divided into parts;
/// otherwise the combinations were divided before they were checked.
std::vector<RankLayout> chosen(const LayoutVerifier& verifier, const VerifyWords& words) {
  const LayoutList& list = verifier.layouts();
  if (list.valid.empty() && words.part.empty()) refuse_all(list, words);
  if (!words.pairwise) return list.valid;
  const LayoutPart part = part_of(words.part);
  std::vector<RankLayout> out;
  size_t index = 0;
  for (const auto& layout : pairwise(list.valid))
    if (part.has(index++)) out.push_back(layout);
  return out;
}

/// On a terminal: shows the next layout and the remaining time.
class Progress {
 public:
  Progress(bool quiet, size_t total)
      : shown_(!quiet && ::isatty(STDERR_FILENO) != 0), total_(total) {}
  void next(size_t done, const RankLayout& layout) const {
    if (!shown_) return;
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    std::string left = done == 0 ? ""
                                 : cat(", ",
                                       human_seconds(seconds / static_cast<double>(done) *
                                                     static_cast<double>(total_ - done)),
                                       " left");
    std::cerr << "\r\033[K[" << done + 1 << "/" << total_ << left << "] " << text(layout)
              << std::flush;
  }
  void clear() const {
    if (shown_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  bool shown_;
  size_t total_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void list_only(const LayoutVerifier& verifier, const std::vector<RankLayout>& layouts) {
  for (const auto& layout : layouts) std::cout << text(layout) << '\n';
  std::cout << verify_summary(verifier.layouts(), {});
}

void verify_layouts(Cli& cli, const RecipeWords& recipe_words, VerifyWords& words) {
  SignalWatch signals;
  words.options.stop = [&] { return signals.received() != 0; };
  PluginHost plugins = plugin_host(cli);
  Recipe recipe = read_recipe(recipe_request(cli, recipe_words), plugins);
  resolve_dtype(recipe, plugins);
  words.options.filter = named(words.only);
  const LayoutPart part = part_of(words.part);
  if (!words.pairwise) words.options.filter = part_filter(part, words.options.filter);
  LayoutVerifier verifier(recipe, plugins, words.options);
  std::vector<RankLayout> layouts = chosen(verifier, words);
  if (words.list) return list_only(verifier, layouts);
  verifier.reference();  // before the table: a recipe that cannot be trained is reported at once
  if (!cli.quiet) std::cout << verify_table_head();
  std::vector<LayoutVerdict> verdicts;
  Progress progress(cli.quiet, layouts.size());
  for (const auto& layout : layouts) {
    progress.next(verdicts.size(), layout);
    LayoutVerdict verdict = verifier.verify(layout);
    if (signals.received() != 0) break;
    progress.clear();
    if (!cli.quiet || verdict.kind != LayoutVerdict::Kind::same)
      std::cout << verify_table_line(verdict) << std::flush;
    verdicts.push_back(std::move(verdict));
  }
  progress.clear();
  std::cout << verify_summary(verifier.layouts(), verdicts);
  if (!words.certificate.empty()) {
    write_file_atomic(words.certificate,
                      verify_certificate(recipe, verifier, words.options, verdicts));
    if (!cli.quiet) std::cout << "certificate: " << words.certificate << '\n';
  }
  bool same = std::all_of(verdicts.begin(), verdicts.end(),
                          [](const auto& v) { return v.kind == LayoutVerdict::Kind::same; });
  if (!same) cli.status = static_cast<int>(ErrorClass::numeric);
  if (signals.received() != 0) cli.status = 128 + signals.received();
}

}  // namespace

void add_verify_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand(
      "verify", "verify that a recipe trains the same model in every parallel layout");
  command->require_subcommand(1);
  command->footer("Example:\n  mtrain verify layouts quickstart --ranks 4");
  auto* layouts = command->add_subcommand(
      "layouts",
      "train a small version of a recipe in every parallel layout and compare it with one rank");
  auto recipe = add_recipe_words(*layouts);
  auto words = std::make_shared<VerifyWords>();
  layouts
      ->add_option("--ranks", words->options.ranks, "the number of ranks (threads) of the layouts")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  layouts->add_option("--steps", words->options.steps, "number of steps of each run")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  layouts
      ->add_option("--only", words->only,
                   "only layouts whose names contain every one of these words and none of those "
                   "with a leading '!': 'tp2 !zero3'")
      ->type_name("WORDS");
  layouts
      ->add_option("--part", words->part,
                   "only this part of the layouts: 2/5 is the second of five")
      ->type_name("I/N");
  layouts->add_flag("--pairwise", words->pairwise,
                    "a small set of layouts that contains every pair of choices");
  layouts->add_flag("--list", words->list,
                    "list the layouts and the refused ones, without training");
  layouts
      ->add_option("--certificate", words->certificate,
                   "write the layouts and their differences to this JSON file")
      ->check(check_output_path)
      ->type_name("FILE");
  layouts->footer(
      "Exit status: 0 no layout differs, 14 a layout differs or fails, 10 the recipe is invalid.\n"
      "Examples:\n"
      "  mtrain verify layouts quickstart --ranks 4\n"
      "  mtrain verify layouts llama3_8b --ranks 8 --pairwise --steps 20 --certificate "
      "layouts.json\n"
      "  mtrain verify layouts quickstart mixed_precision.dtype=fp32 --ranks 8 --only 'tp2+sp "
      "zb_h1'");
  layouts->callback([&cli, recipe, words] { verify_layouts(cli, *recipe, *words); });
}

}  // namespace mtrain
