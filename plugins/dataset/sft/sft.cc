// The sft dataset: conversations and instructions as samples, one record each or packed; only the
// assistant's text is learned.
#include <memory>
#include <mutex>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/log.h"
#include "mtrain/data/gpt_index.h"
#include "mtrain/finetune/packed_file.h"
#include "mtrain/finetune/sft_data.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

using namespace finetune;

/// The source of one split, or of all splits: records that are encoded now, or that were packed
/// before.
struct Part {
  SftFile records;
  std::shared_ptr<const PackedFile> packed;

  explicit operator bool() const { return packed || records.examples; }
  /// The number of items that the splits divide.
  int64_t size() const { return packed ? packed->size() : records.examples->size(); }
  /// For the identity of the dataset.
  std::string text() const {
    if (!*this) return "null";
    return packed ? cat('"', packed->digest(), " packed\"")
                  : cat('"', records.digest, ' ', encoded_format(records.format), '"');
  }
};

/// Samples that say how many there are once the first one is read: a source that only counts is not
/// worth a line.
class Announced final : public SampleSource {
 public:
  Announced(std::unique_ptr<SampleSource> of, std::string words)
      : of_(std::move(of)), words_(std::move(words)) {}
  int64_t size() const override { return of_->size(); }
  void get(int64_t index, Sample& out) const override {
    std::call_once(said_, [this] { log_info(words_); });
    of_->get(index, out);
  }
  bool repeats() const override { return of_->repeats(); }
  std::string order() const override { return of_->order(); }

 private:
  std::unique_ptr<SampleSource> of_;
  std::string words_;
  mutable std::once_flag said_;
};

class SftDataset final : public Dataset {
 public:
  SftDataset(const SftSettings& settings, DatasetContext& context)
      : settings_(settings), context_(context), encoder_(make_encoder(settings, context)) {
    const RecordSettings& r = settings.records;
    MT_USER_CHECK(!r.path.empty(), ErrorClass::config, "dataset.path is not set",
                  "give a file of JSON lines, or of one JSON list, or what `mtrain data pack "
                  "--output` wrote");
    MT_USER_CHECK(settings.packed_length <= context.seq_length, ErrorClass::config,
                  cat("dataset.packed_length ", settings.packed_length,
                      " is above model.seq_length ", context.seq_length),
                  "leave it out: packs are as long as samples then");
    split_ranges(r.split, 0);
    train_ = load(r.path);
    if (context.log_summary && !train_.packed) log_info("sft: ", train_.records.form);
    if (!r.valid_path.empty()) valid_ = load(r.valid_path);
    if (!r.test_path.empty()) test_ = load(r.test_path);
  }

  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const override {
    const Part& part = part_of(which);
    std::vector<int32_t> chosen;
    if (own_files())
      for (int64_t i = 0; i < part.size(); ++i) chosen.push_back(static_cast<int32_t>(i));
    else
      chosen = share_of_examples(settings_.records.split, which, part.size(),
                                 settings_.records.path, part.packed ? "packs" : "records");
    SampleOrder order{.num_samples = num_samples, .shuffle_seed = std::nullopt};
    if (which == Split::train) order.shuffle_seed = context_.seed;
    const int32_t pad_id = padding_id(*context_.tokenizer);
    if (part.packed)
      return std::make_unique<PackedFileSource>(part.packed, std::move(chosen), order, pad_id);
    const auto& examples = part.records.examples;
    auto packs = std::make_shared<const Packs>(
        make_packs(*examples, chosen, settings_, context_.seq_length));
    auto source = std::make_unique<PackedSource>(examples, packs, order, pad_id);
    if (which != Split::train || !context_.log_summary) return source;
    const int64_t wanted = num_samples == kOneEpoch ? packs->size() : num_samples;
    return std::make_unique<Announced>(std::move(source), epoch_words(*packs, *examples, wanted));
  }

  std::string chat_template() const override {
    const RecordSettings& r = settings_.records;
    const bool own = !r.chat_template.empty() || !r.template_path.empty();
    return own || has_chats() ? encoder_.template_text() : "";
  }

  std::optional<AskedPrompt> ask(const std::string& text) const override {
    const bool alpaca = train_.records.format == name(RecordFormat::alpaca);
    if (has_chats()) return encoder_.ask(text);
    return ask_as_text(*context_.tokenizer,
                       alpaca ? alpaca_prompt(text, "", settings_.records.prompt) : text,
                       settings_.records.parse_special);
  }

  std::string identity() const override {
    const std::string made_by =
        cat(encoder_.identity(), '\n', settings_.records.prompt, '\n',
            columns_identity(settings_.records.columns), '\n',
            brief(settings_.records.roles, 1 << 16), '\n', settings_.records.on_bad);
    return cat(
        "{\"dataset\":\"sft\",\"files\":[", train_.text(), ",", valid_.text(), ",", test_.text(),
        "],\"split\":\"", own_files() ? "" : settings_.records.split, "\",\"encoding\":\"",
        sha256(made_by), "\",\"packing\":\"", packs_records() ? "offline" : "none",
        "\",\"packed_length\":", settings_.packed_length, ",\"too_long\":\"", settings_.too_long,
        "\",\"seed\":", context_.seed, ",\"seq_length\":", context_.seq_length, "}");
  }

 private:
  /// Whether records are conversations, which the template formats.
  bool has_chats() const {
    return train_.packed ? encoder_.has_template() : train_.records.counts.chats > 0;
  }
  /// Packs on disk are the same samples under every value of dataset.packing.
  bool packs_records() const {
    return settings_.packing == "offline" && !(train_.packed && (!own_files() || valid_.packed));
  }

  bool own_files() const { return settings_.records.own_splits(); }

  const Part& part_of(Split which) const {
    if (which == Split::train || !own_files()) return train_;
    const Part& part = which == Split::valid ? valid_ : test_;
    require_split(static_cast<bool>(part), which);
    return part;
  }

  Part load(const std::string& text) const {
    const fs::path path = record_path(text, context_);
    Part out;
    if (is_packed(path)) {
      MT_USER_CHECK(settings_.packing != "none", ErrorClass::config,
                    cat("dataset.packing=none makes one sample per record, but ",
                        printable(path.string()), " has packs of several records"),
                    "dataset.packing=auto uses the packs; or set the path of the records");
      out.packed =
          std::make_shared<const PackedFile>(path, packed_origin(settings_, encoder_, context_));
      if (context_.log_summary) log_info(out.packed->summary());
    } else {
      out.records = load_sft_file(path, settings_, encoder_, context_.seq_length);
      if (context_.log_summary) out.records.log_summary();
    }
    return out;
  }

  std::string epoch_words(const Packs& packs, const ExampleStore& examples,
                          int64_t num_samples) const {
    int64_t used = 0;
    for (int32_t item : packs.items) used += examples.length(item);
    const double places =
        static_cast<double>(packs.size()) * static_cast<double>(context_.seq_length);
    return cat("sft: ", counted(packs.items.size(), "record"), " in ",
               counted(packs.size(), "sample"), ", ",
               static_cast<int64_t>(100 * static_cast<double>(used) / places),
               packs.size() == 1 ? "% of its positions filled; " : "% of their positions filled; ",
               epochs_text(num_samples, packs.size()));
  }

  const SftSettings settings_;
  const DatasetContext context_;
  const ExampleEncoder encoder_;
  Part train_, valid_, test_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("sft", "supervised fine-tuning on the answers of conversations and instructions") {
  using namespace mtrain;
  registry.add<Dataset, SftDataset, finetune::SftSettings>(
      "sft", "supervised fine-tuning on the answers of conversations and instructions");
}
