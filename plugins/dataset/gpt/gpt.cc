// The gpt dataset: prepared token files in the sample order of Megatron's GPTDataset, one file or a blend of
// several.
#include <algorithm>
#include <memory>
#include <numeric>

#include "mtrain/base/error.h"
#include "mtrain/data/gpt_source.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct GptConfig {
  std::string path, valid_path, test_path, split = "969,30,1";
  std::vector<std::string> paths;
  std::vector<double> weights;
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false, drop_last = true;

  void bind(Fields& f) {
    f("path", path, "prepared tokens: the prefix of a .bin/.idx pair")
        .example("data/bible")
        .renamed_from({"data_path"});
    f("paths", paths, "several prefixes to blend, instead of path").example("[data/books, data/web]");
    f("weights", weights,
      "the share of each of paths; without it they are mixed by their sizes, each sample once")
        .example("[0.3, 0.7]");
    f("split", split, "shares of the documents for train, valid and test").example("969,30,1");
    f("valid_path", valid_path, "a pair for validation; then split is not applied");
    f("test_path", test_path, "a pair for testing; then split is not applied");
    f("reset_position_ids", reset_position_ids, "count positions from 0 again after each end of document");
    f("reset_attention_mask", reset_attention_mask, "let no token attend to an earlier document");
    f("eod_mask_loss", eod_mask_loss, "leave the token after an end of document out of the loss");
    f("drop_last", drop_last, "leave out a last validation sample that the data cannot fill")
        .renamed_from({"drop_last_partial_validation_sequence"});
  }
};

using File = std::shared_ptr<const IndexedFile>;

class GptDataset final : public Dataset {
 public:
  GptDataset(const GptConfig& config, DatasetContext& context) : config_(config), context_(context) {
    check_settings();
    if (!config.path.empty()) train_.push_back(open(config.path));
    for (const auto& path : config.paths) train_.push_back(open(path));
    if (!config.valid_path.empty()) valid_ = open(config.valid_path);
    if (!config.test_path.empty()) test_ = open(config.test_path);
  }

  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const override {
    MT_USER_CHECK(which == Split::train || num_samples != 0, ErrorClass::config,
                  cat("no samples wanted of the ", name(which), " split"), "");
    if (own_files()) {
      if (which == Split::valid) return whole(valid_, which, num_samples, "dataset.valid_path");
      if (which == Split::test) return whole(test_, which, num_samples, "dataset.test_path");
    }
    if (config_.paths.empty()) return source(train_[0], range_of(train_[0], which), which, num_samples);
    return config_.weights.empty() ? blend_by_size(which, num_samples) : blend_by_weight(which, num_samples);
  }

  std::string identity() const override {
    std::vector<std::string> files, weights;
    for (const auto& file : train_) files.push_back(file->identity());
    for (const auto& file : {valid_, test_}) files.push_back(file ? file->identity() : "null");
    for (double weight : config_.weights) weights.push_back(shortest(weight));
    auto flag = [](bool value) { return value ? "true" : "false"; };
    return cat("{\"dataset\":\"gpt\",\"files\":[", join(files, ","), "],\"weights\":[", join(weights, ","),
               "],\"split\":\"", own_files() ? "" : config_.split, "\",\"seed\":", context_.seed,
               ",\"seq_length\":", context_.seq_length,
               ",\"reset_position_ids\":", flag(config_.reset_position_ids),
               ",\"reset_attention_mask\":", flag(config_.reset_attention_mask),
               ",\"eod_mask_loss\":", flag(config_.eod_mask_loss), "}");
  }

 private:
  bool own_files() const { return !config_.valid_path.empty() || !config_.test_path.empty(); }

  void check_settings() const {
    MT_USER_CHECK(
        config_.path.empty() != config_.paths.empty(), ErrorClass::config,
        config_.path.empty() ? "dataset.path is not set" : "dataset.path and dataset.paths are both set",
        "give the prefix of one prepared pair as dataset.path, or several as dataset.paths");
    MT_USER_CHECK(config_.weights.empty() || config_.weights.size() == config_.paths.size(),
                  ErrorClass::config,
                  cat("dataset.weights has ", config_.weights.size(), " values for ", config_.paths.size(),
                      " dataset.paths"),
                  "give one weight for each path");
    if (!config_.weights.empty()) normalize_weights(config_.weights);
    split_ranges(config_.split, 0);
    MT_USER_CHECK(
        context_.seed <= UINT32_MAX, ErrorClass::config,
        cat("the seed ", context_.seed, " is above 4294967295, the largest that numpy's generator takes"),
        "choose a smaller rng.seed");
    bool needs_eod = config_.reset_position_ids || config_.reset_attention_mask || config_.eod_mask_loss;
    MT_USER_CHECK(!needs_eod || (context_.tokenizer && context_.tokenizer->eod()), ErrorClass::config,
                  "dataset.reset_position_ids, reset_attention_mask and eod_mask_loss need an "
                  "end-of-document token, and "
                  "the tokenizer has none",
                  "choose a tokenizer that has one, or turn them off");
  }

  File open(const std::string& text) const {
    fs::path path = fs::path(text).is_absolute() ? fs::path(text) : context_.base_directory / text;
    std::error_code ignored;
    auto extension = path.extension();
    bool raw = extension == ".txt" || extension == ".jsonl" || extension == ".json";
    if (!fs::exists(idx_path(path), ignored) && (raw || fs::is_regular_file(path, ignored)) &&
        extension != ".idx" && extension != ".bin") {
      fs::path prefix = fs::path(path).replace_extension();
      throw Error(ErrorClass::data, cat(path.string(), " is text; training reads prepared tokens"),
                  cat("run: mtrain data prepare --input ", path.string(), " --output ", prefix.string(),
                      " --tokenizer ", context_.tokenizer ? context_.tokenizer->name() : "NAME",
                      " --append-eod", extension == ".txt" ? " --split-on blank-lines" : "",
                      "\nand set dataset.path=", prefix.string()));
    }
    return std::make_shared<IndexedFile>(path);
  }

  SequenceRange range_of(const File& file, Split which) const {
    const int64_t count = file->num_sequences();
    auto ranges = own_files() ? std::array<SequenceRange, 3>{{{0, count}, {0, 0}, {0, 0}}}
                              : split_ranges(config_.split, count);
    SequenceRange range = ranges[static_cast<size_t>(which)];
    if (range.begin == range.end) {
      auto size = [&](size_t i) { return ranges[i].end - ranges[i].begin; };
      throw Error(
          ErrorClass::data,
          cat("the ", name(which), " split of ", file->prefix().string(), " is empty: its ", count,
              " documents at the shares ", config_.split, " give ", size(0), " to train, ", size(1),
              " to valid and ", size(2), " to test"),
          "change dataset.split, set dataset.valid_path, or prepare the text as more documents (--split-on "
          "blank-lines)");
    }
    return range;
  }

  std::unique_ptr<SampleSource> whole(const File& file, Split which, int64_t num_samples,
                                      const char* key) const {
    MT_USER_CHECK(
        file != nullptr, ErrorClass::config, cat("there is no ", name(which), " data: ", key, " is not set"),
        "set it, or leave both valid_path and test_path out so that dataset.split divides the documents");
    return source(file, {0, file->num_sequences()}, which, num_samples);
  }

  std::unique_ptr<SampleSource> source(const File& file, SequenceRange range, Split which,
                                       int64_t num_samples) const {
    std::vector<int32_t> lengths;
    lengths.reserve(static_cast<size_t>(range.end - range.begin));
    for (int64_t i = range.begin; i < range.end; ++i) lengths.push_back(file->length(i));
    GptIndex index;
    try {
      index = build_gpt_index(lengths, range.begin,
                              {.seq_length = context_.seq_length,
                               .num_samples = num_samples,
                               .seed = static_cast<uint32_t>(context_.seed),
                               .drop_last = which == Split::valid ? config_.drop_last : true});
    } catch (const Error& error) {
      throw Error(error.error_class(),
                  cat("the ", name(which), " split of ", file->prefix().string(), ": ", error.message()),
                  error.hint());
    }
    GptSourceConfig config{.seq_length = context_.seq_length,
                           .eod = context_.tokenizer ? context_.tokenizer->eod() : std::nullopt,
                           .reset_position_ids = config_.reset_position_ids,
                           .reset_attention_mask = config_.reset_attention_mask,
                           .eod_mask_loss = config_.eod_mask_loss,
                           .vocab_size = context_.tokenizer ? context_.tokenizer->vocab_size() : 0};
    return std::make_unique<GptSource>(file, std::move(index), config);
  }

  std::unique_ptr<SampleSource> blend_by_weight(Split which, int64_t num_samples) const {
    MT_USER_CHECK(num_samples != kOneEpoch, ErrorClass::config,
                  cat("one epoch of a weighted blend is not defined (the ", name(which), " split)"),
                  "leave dataset.weights out, or ask for a number of samples");
    auto weights = normalize_weights(config_.weights);
    int64_t size = 0;
    for (double weight : weights) size += blend_share(num_samples, weight);
    BlendIndex index = blend(weights, size);
    std::vector<int64_t> used(weights.size(), 0);
    for (int16_t d : index.dataset) ++used[static_cast<size_t>(d)];
    std::vector<std::unique_ptr<SampleSource>> sources;
    for (size_t d = 0; d < train_.size(); ++d) {
      // Rounding every share up lets many small datasets draw more of the large ones than their surplus
      // covers.
      auto share = std::max({int64_t{1}, used[d], blend_share_with_surplus(num_samples, weights[d])});
      sources.push_back(source(train_[d], range_of(train_[d], which), which, share));
    }
    return std::make_unique<BlendSource>(std::move(sources), std::move(index));
  }

  std::unique_ptr<SampleSource> blend_by_size(Split which, int64_t num_samples) const {
    std::vector<std::unique_ptr<SampleSource>> sources;
    std::vector<int64_t> sizes;
    std::vector<double> weights;
    for (const File& file : train_) {
      sources.push_back(source(file, range_of(file, which), which, kOneEpoch));
      sizes.push_back(sources.back()->size());
      weights.push_back(static_cast<double>(sizes.back()));
    }
    if (num_samples == kOneEpoch)
      return std::make_unique<BlendSource>(std::move(sources), blend_exhaustive(sizes));
    const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    MT_USER_CHECK(num_samples <= total, ErrorClass::data,
                  cat("the ", name(which), " split of dataset.paths has ", total, " samples, but ",
                      num_samples, " are wanted"),
                  "give dataset.weights, with which the data repeats, or ask for fewer samples");
    return std::make_unique<BlendSource>(std::move(sources), blend(normalize_weights(weights), num_samples));
  }

  const GptConfig config_;
  const DatasetContext context_;
  std::vector<File> train_;
  File valid_, test_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("gpt", "prepared token files in Megatron's sample order, one or a blend") {
  using namespace mtrain;
  registry.add<Dataset, GptDataset, GptConfig>(
      "gpt", "prepared token files in Megatron's sample order, one or a blend");
}
