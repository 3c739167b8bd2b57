// The classification dataset: texts with classes. A sample holds one text, whose only target, at
// its last token, is the number of its class.
#include <memory>

#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/data/gpt_index.h"
#include "mtrain/finetune/classes.h"
#include "mtrain/finetune/sft_data.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

using namespace finetune;

class ClassificationDataset final : public Dataset {
 public:
  ClassificationDataset(const ClassSettings& settings, DatasetContext& context)
      : settings_(settings), context_(context) {
    MT_USER_CHECK(!settings.path.empty(), ErrorClass::config, "dataset.path is not set",
                  "give a file of JSON lines, or of one JSON list");
    require_class_names(settings.labels, context.labels);
    split_ranges(settings.split, 0);
    train_ = load(settings.path);
    if (!settings.valid_path.empty()) valid_ = load(settings.valid_path);
    if (!settings.test_path.empty()) test_ = load(settings.test_path);
  }

  std::string_view objective() const override { return kClasses; }

  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const override {
    const bool own = settings_.own_splits();
    const ClassFile& file = !own || which == Split::train ? train_
                            : which == Split::valid       ? valid_
                                                          : test_;
    require_split(file.texts != nullptr, which);
    Packs packs;
    packs.items = share_of_examples(own ? "1" : settings_.split, own ? Split::train : which,
                                    file.size(), printable(file.path.string()));
    for (size_t i = 1; i <= packs.items.size(); ++i) packs.begin.push_back(static_cast<int64_t>(i));
    SampleOrder order{.num_samples = num_samples, .shuffle_seed = std::nullopt};
    if (which == Split::train) order.shuffle_seed = context_.seed;
    return std::make_unique<PackedSource>(file.texts,
                                          std::make_shared<const Packs>(std::move(packs)), order,
                                          padding_id(*context_.tokenizer));
  }

  std::string identity() const override {
    std::string files;
    for (const auto* file : {&train_, &valid_, &test_})
      files += cat(files.empty() ? "" : ",", file->texts ? cat('"', file->digest, '"') : "null");
    const std::string made_by =
        cat(join(settings_.labels, "\n"), "\n\n", settings_.text_field, '\n', settings_.label_field,
            '\n', settings_.too_long, '\n', settings_.on_bad);
    return cat("{\"dataset\":\"classification\",\"files\":[", files, "],\"split\":\"",
               settings_.split, "\",\"encoding\":\"", sha256(made_by),
               "\",\"seed\":", context_.seed, ",\"seq_length\":", context_.seq_length,
               ",\"labels\":", context_.labels, "}");
  }

 private:
  ClassFile load(const std::string& path) const {
    ClassFile file = load_class_file(record_path(path, context_), settings_, *context_.tokenizer,
                                     context_.seq_length, context_.labels);
    if (context_.log_summary) log_info(file.summary(settings_, context_.seq_length));
    return file;
  }

  const ClassSettings settings_;
  const DatasetContext context_;
  ClassFile train_, valid_, test_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("classification", "texts with classes, for a model of scores") {
  using namespace mtrain;
  registry.add<Dataset, ClassificationDataset, finetune::ClassSettings>(
      "classification", "texts with classes, for a model of scores");
}
