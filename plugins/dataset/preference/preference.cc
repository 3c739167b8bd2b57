// The preference dataset: pairs of a preferred and a rejected answer, or answers labeled good or
// bad. A sample holds one record: the chosen and the rejected answer, each with its prompt, as two
// sequences; the targets are the answers' tokens, or for a model of scores their ends.
#include "mtrain/finetune/preference.h"

#include <memory>

#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/log.h"
#include "mtrain/data/answer_data.h"
#include "mtrain/data/gpt_index.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

using namespace finetune;

class PreferenceDataset final : public Dataset, public AnswerData {
 public:
  PreferenceDataset(const PreferenceSettings& settings, DatasetContext& context)
      : settings_(settings),
        context_(context),
        encoder_(make_encoder({.records = settings.records}, context)) {
    const RecordSettings& r = settings.records;
    MT_USER_CHECK(!r.path.empty(), ErrorClass::config, "dataset.path is not set",
                  "give a file of JSON lines, or of one JSON list");
    split_ranges(r.split, 0);
    train_ = load(r.path);
    if (!r.valid_path.empty()) valid_ = load(r.valid_path);
    if (!r.test_path.empty()) test_ = load(r.test_path);
  }

  std::string_view objective() const override { return kPreferences; }

  std::string first_single_answer() const override {
    for (const auto* file : {&train_, &valid_, &test_})
      if (file->answers && !file->pairs) return file->places.front();
    return {};
  }

  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const override {
    const RecordSettings& r = settings_.records;
    const bool own = r.own_splits();
    const PreferenceFile& file = !own || which == Split::train ? train_
                                 : which == Split::valid       ? valid_
                                                               : test_;
    require_split(file.answers != nullptr, which);
    std::vector<int32_t> chosen = share_of_examples(own ? "1" : r.split, own ? Split::train : which,
                                                    file.size(), printable(file.path.string()));
    auto packs = std::make_shared<const Packs>(preference_packs(file, chosen));
    SampleOrder order{.num_samples = num_samples, .shuffle_seed = std::nullopt};
    if (which == Split::train) order.shuffle_seed = context_.seed;
    return std::make_unique<PackedSource>(file.answers, packs, order,
                                          padding_id(*context_.tokenizer), file.good, file.margins);
  }

  std::string chat_template() const override {
    const RecordSettings& r = settings_.records;
    const bool own = !r.chat_template.empty() || !r.template_path.empty();
    return own || train_.chats > 0 ? encoder_.template_text() : "";
  }

  std::optional<AskedPrompt> ask(const std::string& text) const override {
    return train_.chats > 0
               ? encoder_.ask(text)
               : ask_as_text(*context_.tokenizer, text, settings_.records.parse_special);
  }

  std::string identity() const override {
    std::string files;
    for (const auto* file : {&train_, &valid_, &test_})
      files += cat(files.empty() ? "" : ",",
                   file->answers ? cat('"', file->digest, ' ', file->format, '"') : "null");
    const RecordSettings& r = settings_.records;
    const std::string made_by = cat(encoder_.identity(), '\n', columns_identity(r.columns), '\n',
                                    brief(r.roles, 1 << 16), '\n', r.on_bad);
    return cat("{\"dataset\":\"preference\",\"files\":[", files, "],\"split\":\"", r.split,
               "\",\"encoding\":\"", sha256(made_by), "\",\"seed\":", context_.seed,
               ",\"seq_length\":", context_.seq_length,
               context_.labels > 0 ? ",\"scored\":true" : "", "}");
  }

 private:
  PreferenceFile load(const std::string& path) const {
    PreferenceFile file = load_preference_file(record_path(path, context_), settings_, encoder_,
                                               context_.seq_length, context_.labels > 0);
    if (context_.log_summary) file.log_summary(context_.seq_length);
    return file;
  }

  const PreferenceSettings settings_;
  const DatasetContext context_;
  const ExampleEncoder encoder_;
  PreferenceFile train_, valid_, test_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("preference",
          "preference data: chosen and rejected answers, or answers with a good or bad label") {
  using namespace mtrain;
  registry.add<Dataset, PreferenceDataset, finetune::PreferenceSettings>(
      "preference",
      "preference data: chosen and rejected answers, or answers with a good or bad label");
}
