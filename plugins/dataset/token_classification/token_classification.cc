// The token_classification dataset: words with classes. A sample holds one text, or several with
// packing=offline. The target of a token is the number of the class of the word that it begins.
#include <memory>

#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/data/gpt_index.h"
#include "mtrain/finetune/classes.h"
#include "mtrain/finetune/sft_data.h"
#include "mtrain/finetune/token_classes.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

using namespace finetune;

class TokenClassificationDataset final : public Dataset {
 public:
  TokenClassificationDataset(const LabeledSettings& settings, DatasetContext& context)
      : settings_(settings), context_(context) {
    MT_USER_CHECK(!settings.path.empty(), ErrorClass::config, "dataset.path is not set",
                  "give a file of JSON lines, or of one JSON list");
    MT_USER_CHECK(context.tokenizer, ErrorClass::config,
                  "records are text, but there is no tokenizer", "set tokenizer.type");
    require_class_names(settings.labels, context.labels);
    split_ranges(settings.split, 0);
    train_ = load(settings.path);
    if (!settings.valid_path.empty()) valid_ = load(settings.valid_path);
    if (!settings.test_path.empty()) test_ = load(settings.test_path);
  }

  std::string_view objective() const override { return kTokenClasses; }

  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const override {
    const bool own = settings_.own_splits();
    const LabeledFile& file = !own || which == Split::train ? train_
                              : which == Split::valid       ? valid_
                                                            : test_;
    require_split(file.texts != nullptr, which);
    const std::vector<int32_t> chosen =
        share_of_examples(own ? "1" : settings_.split, own ? Split::train : which, file.size(),
                          printable(file.path.string()));
    Packs packs;
    if (settings_.packing == "offline") {
      std::vector<int32_t> lengths;
      for (const int32_t item : chosen)
        lengths.push_back(
            static_cast<int32_t>((*file.texts)[static_cast<size_t>(item)].ids.size()));
      packs = pack_first_fit_decreasing(lengths, static_cast<int32_t>(context_.seq_length));
    } else {
      packs = pack_singly(static_cast<int64_t>(chosen.size()));
    }
    for (int32_t& item : packs.items) item = chosen[static_cast<size_t>(item)];
    SampleOrder order{.num_samples = num_samples, .shuffle_seed = std::nullopt};
    if (which == Split::train) order.shuffle_seed = context_.seed;
    return std::make_unique<LabeledSource>(file.texts, std::move(packs), order,
                                           padding_id(*context_.tokenizer));
  }

  std::string identity() const override {
    std::string files;
    for (const auto* file : {&train_, &valid_, &test_})
      files += cat(files.empty() ? "" : ",", file->texts ? cat('"', file->digest, '"') : "null");
    const std::string made_by =
        cat(join(settings_.labels, "\n"), "\n\n", settings_.tokens_field, '\n',
            settings_.labels_field, '\n', settings_.separator, '\n', settings_.labeled, '\n',
            settings_.packing, '\n', settings_.too_long, '\n', settings_.on_bad);
    return cat("{\"dataset\":\"token_classification\",\"files\":[", files, "],\"split\":\"",
               settings_.split, "\",\"encoding\":\"", sha256(made_by),
               "\",\"seed\":", context_.seed, ",\"seq_length\":", context_.seq_length,
               ",\"labels\":", context_.labels, "}");
  }

 private:
  LabeledFile load(const std::string& path) const {
    LabeledFile file = load_labeled_file(record_path(path, context_), settings_,
                                         *context_.tokenizer, context_.seq_length, context_.labels);
    if (context_.log_summary) file.log_summary(settings_, context_.seq_length);
    return file;
  }

  const LabeledSettings settings_;
  const DatasetContext context_;
  LabeledFile train_, valid_, test_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("token_classification", "words with classes, for a model of scores of tokens") {
  using namespace mtrain;
  registry.add<Dataset, TokenClassificationDataset, finetune::LabeledSettings>(
      "token_classification", "words with classes, for a model of scores of tokens");
}
