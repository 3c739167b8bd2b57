#include "check_data.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/provenance.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/recipe/epochs.h"
#include "mtrain/recipe/input_paths.h"
#include "mtrain/train/answer_records.h"
#include "mtrain/train/trainer.h"
#include "mtrain/train/vocabulary_fit.h"

namespace mtrain {
namespace {

/// The setting that a message concerns: the one with which it begins; one of the section that it
/// names, or whose value it quotes; else the section's path or type.
std::string setting_of(const Recipe& recipe, const std::string& section,
                       const std::string& message) {
  const std::string first =
      message.substr(0, message.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_."));
  if (first.find('.') != std::string::npos && recipe.config.root().find(first)) return first;
  std::string named, quoted;
  const Node* settings = recipe.config.root().find(section);
  each_leaf(*settings, [&](const std::string& path, const Node& leaf) {
    const std::string key = section + "." + path, value = leaf.is_scalar() ? leaf.as_text() : "";
    if (message.find(key) != std::string::npos && key.size() > named.size()) named = key;
    if (value.size() > 2 && leaf.is(NodeKind::string) && path != "type" &&
        message.find(value) != std::string::npos && quoted.empty())
      quoted = key;
  });
  if (!named.empty() || !quoted.empty()) return named.empty() ? quoted : named;
  const Node* path = settings->find("path");
  return section + (path && !path->as_text().empty() ? ".path" : ".type");
}

/// The lines of an error as the one line of a diagnostic.
std::string one_line(const std::string& text) {
  std::vector<std::string> lines;
  for (const auto& line : split(text, '\n')) lines.emplace_back(trim(line));
  return join(lines, " ");
}

class DataChecker {
 public:
  DataChecker(Recipe& recipe, PluginHost& plugins) : recipe_(recipe), plugins_(plugins) {}

  DataCheck run() {
    attempt("tokenizer", [&] {
      TokenizerContext context{recipe_.directory};
      tokenizer_ = plugins_.make<Tokenizer>(recipe_.settings.tokenizer.type,
                                            recipe_.component("tokenizer"), context);
      out_.text += cat("  tokenizer ", recipe_.settings.tokenizer.type, ": ",
                       human_count(static_cast<double>(tokenizer_->vocab_size())), " ids\n");
      const int64_t rows = vocabulary_rows(recipe_.settings, *tokenizer_);
      const int64_t ids = recipe_.settings.model.vocab_size > 0 ? rows : tokenizer_->vocab_size();
      if (const std::string resized = resize_words(recipe_, rows, ids); !resized.empty())
        out_.text += cat("  ", resized, '\n');
      log_rows_without_id(recipe_, *tokenizer_);
      warn_of_other_tokenizer(recipe_, *tokenizer_, plugins_);
    });
    if (tokenizer_) attempt("dataset", [&] { open_dataset(); });
    return out_;
  }

 private:
  template <class Work>
  void attempt(const std::string& section, const Work& work) {
    try {
      with_path_origins(recipe_.inputs, work, section);
    } catch (const Error& error) {
      const std::string setting = setting_of(recipe_, section, error.message());
      recipe_.report
          .error(name(error.error_class()), setting, recipe_.config.root().at(setting).loc(),
                 one_line(error.message()))
          .fix(one_line(error.hint()));
      if (out_.status == 0) out_.status = error.exit_status();
    }
  }

  void open_dataset() {
    const Settings& s = recipe_.settings;
    DatasetContext context = dataset_context(recipe_, tokenizer_.get());
    auto dataset = plugins_.make<Dataset>(s.dataset.type, recipe_.component("dataset"), context);
    require_records(recipe_, plugins_, *dataset);
    if (counts_epochs(recipe_)) resolve_epochs(recipe_, plugins_);
    read_first(*dataset, Split::train,
               s.batches().samples_until(std::max<int64_t>(1, s.train.steps)), "the run");
    // Also with interval 0: a run evaluates after its last step.
    if (s.validation.steps > 0 && s.train.steps > 0) {
      read_first(*dataset, Split::valid, s.validation.steps * s.eval_global_batch(),
                 "a validation");
      warn_of_repeats(*dataset, Split::valid, s.validation.steps, s.eval_global_batch(), "");
    } else {
      out_.text +=
          cat("  no validation data is read: ", s.train.steps == 0 ? "train" : "validation",
              ".steps is 0\n");
    }
  }

  /// `reader`: what reads this number of samples, which may differ from the number in the data.
  void read_first(const Dataset& dataset, Split which, int64_t samples, const char* reader) {
    auto source = dataset.split(which, samples);
    const auto length = static_cast<size_t>(recipe_.settings.model.seq_length);
    std::vector<int32_t> tokens(length), targets(length), positions(length);
    Sample sample{tokens, targets, positions, {}};
    source->get(0, sample);
    out_.text +=
        cat("  ", name(which), " data of ", recipe_.settings.dataset.type, ": ", reader, " reads ",
            human_count(static_cast<double>(samples)), " samples of ", length, " tokens\n");
  }

  Recipe& recipe_;
  PluginHost& plugins_;
  std::unique_ptr<Tokenizer> tokenizer_;
  DataCheck out_;
};

}  // namespace

DataCheck check_data(Recipe& recipe, PluginHost& plugins) {
  return DataChecker(recipe, plugins).run();
}

}  // namespace mtrain
