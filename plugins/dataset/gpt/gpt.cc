// The gpt dataset: prepared token files in the sample order of Megatron's GPTDataset, one file or a blend of
// several.
#include <algorithm>
#include <array>
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
  std::vector<std::string> paths, valid_paths, test_paths;
  std::vector<double> weights, valid_weights, test_weights;
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
    f("valid_paths", valid_paths, "several pairs for validation, blended as paths are, instead of valid_path")
        .example("[data/books_valid, data/web_valid]");
    f("valid_weights", valid_weights, "the share of each of valid_paths").example("[0.5, 0.5]");
    f("test_path", test_path, "a pair for testing; then split is not applied");
    f("test_paths", test_paths, "several pairs for testing, blended as paths are, instead of test_path")
        .example("[data/books_test, data/web_test]");
    f("test_weights", test_weights, "the share of each of test_paths").example("[0.5, 0.5]");
    f("reset_position_ids", reset_position_ids, "count positions from 0 again after each end of document");
    f("reset_attention_mask", reset_attention_mask, "let no token attend to an earlier document");
    f("eod_mask_loss", eod_mask_loss, "leave the token after an end of document out of the loss");
    f("drop_last", drop_last, "leave out a last validation sample that the data cannot fill")
        .renamed_from({"drop_last_partial_validation_sequence"});
  }
};

using File = std::shared_ptr<const IndexedFile>;

/// What a split, or all of them, are read from.
struct Blend {
  std::string name;  // of the setting: "path", "valid_path"
  std::vector<File> files;
  std::vector<double> weights;  // none: mixed by their sizes
};

class GptDataset final : public Dataset {
 public:
  GptDataset(const GptConfig& config, DatasetContext& context) : config_(config), context_(context) {
    check_settings();
    blends_ = {open_blend("path", config.path, config.paths, config.weights),
               open_blend("valid_path", config.valid_path, config.valid_paths, config.valid_weights),
               open_blend("test_path", config.test_path, config.test_paths, config.test_weights)};
  }

  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const override {
    MT_USER_CHECK(which == Split::train || num_samples != 0, ErrorClass::config,
                  cat("no samples wanted of the ", name(which), " split"), "");
    const Blend& blend = blends_[own_files() ? static_cast<size_t>(which) : 0];
    MT_USER_CHECK(
        !blend.files.empty(), ErrorClass::config,
        cat("there is no ", name(which), " data: dataset.", blend.name, " is not set"),
        "set it, or leave those of valid and test both out so that dataset.split divides the documents");
    if (blend.files.size() == 1)
      return source(blend.files[0], range_of(blend.files[0], which), which, num_samples);
    return blend.weights.empty() ? blend_by_size(blend, which, num_samples)
                                 : blend_by_weight(blend, which, num_samples);
  }

  std::string identity() const override {
    std::vector<std::string> files, weights;
    for (const auto& file : blends_[0].files) files.push_back(file->identity());
    for (size_t i : {size_t{1}, size_t{2}}) files.push_back(identity_of(blends_[i]));
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
  /// Whether the splits are files of their own.
  bool own_files() const { return !blends_[1].files.empty() || !blends_[2].files.empty(); }

  /// "null", a file, or a list of files and weights.
  static std::string identity_of(const Blend& blend) {
    if (blend.files.empty()) return "null";
    if (blend.files.size() == 1) return blend.files[0]->identity();
    std::vector<std::string> parts;
    for (const auto& file : blend.files) parts.push_back(file->identity());
    for (double weight : blend.weights) parts.push_back(shortest(weight));
    return cat("[", join(parts, ","), "]");
  }

  Blend open_blend(const std::string& name, const std::string& path, const std::vector<std::string>& paths,
                   const std::vector<double>& weights) const {
    MT_USER_CHECK(
        path.empty() || paths.empty(), ErrorClass::config,
        cat("dataset.", name, " and dataset.", name, "s are both set"),
        cat("give the prefix of one prepared pair as dataset.", name, ", or several as dataset.", name, "s"));
    const std::string weights_name = name.substr(0, name.size() - 4) + "weights";
    MT_USER_CHECK(weights.empty() || weights.size() == paths.size(), ErrorClass::config,
                  cat("dataset.", weights_name, " has ", weights.size(), " values for ", paths.size(),
                      " dataset.", name, "s"),
                  "give one weight for each path");
    if (!weights.empty()) normalize_weights(weights);
    Blend blend{name, {}, weights};
    if (!path.empty()) blend.files.push_back(open(path));
    for (const auto& one : paths) blend.files.push_back(open(one));
    return blend;
  }

  void check_settings() const {
    MT_USER_CHECK(!config_.path.empty() || !config_.paths.empty(), ErrorClass::config,
                  "dataset.path is not set",
                  "give the prefix of one prepared pair as dataset.path, or several as dataset.paths");
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
    if (own_files()) return {0, count};
    auto ranges = split_ranges(config_.split, count);
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

  std::unique_ptr<SampleSource> blend_by_weight(const Blend& from, Split which, int64_t num_samples) const {
    MT_USER_CHECK(num_samples != kOneEpoch, ErrorClass::config,
                  cat("one epoch of a weighted blend is not defined (the ", name(which), " split)"),
                  "leave the weights out, or ask for a number of samples");
    auto weights = normalize_weights(from.weights);
    int64_t size = 0;
    for (double weight : weights) size += blend_share(num_samples, weight);
    BlendIndex index = blend(weights, size);
    std::vector<int64_t> used(weights.size(), 0);
    for (int16_t d : index.dataset) ++used[static_cast<size_t>(d)];
    std::vector<std::unique_ptr<SampleSource>> sources;
    for (size_t d = 0; d < from.files.size(); ++d) {
      // Rounding every share up lets many small datasets draw more of the large ones than their surplus
      // covers.
      auto share = std::max({int64_t{1}, used[d], blend_share_with_surplus(num_samples, weights[d])});
      sources.push_back(source(from.files[d], range_of(from.files[d], which), which, share));
    }
    return std::make_unique<BlendSource>(std::move(sources), std::move(index));
  }

  std::unique_ptr<SampleSource> blend_by_size(const Blend& from, Split which, int64_t num_samples) const {
    std::vector<std::unique_ptr<SampleSource>> sources;
    std::vector<int64_t> sizes;
    std::vector<double> weights;
    for (const File& file : from.files) {
      sources.push_back(source(file, range_of(file, which), which, kOneEpoch));
      sizes.push_back(sources.back()->size());
      weights.push_back(static_cast<double>(sizes.back()));
    }
    if (num_samples == kOneEpoch)
      return std::make_unique<BlendSource>(std::move(sources), blend_exhaustive(sizes));
    const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    MT_USER_CHECK(num_samples <= total, ErrorClass::data,
                  cat("the ", name(which), " split of dataset.", from.name, "s has ", total, " samples, but ",
                      num_samples, " are wanted"),
                  cat("give dataset.", from.name.substr(0, from.name.size() - 4),
                      "weights, with which the data repeats, or ask for fewer samples"));
    return std::make_unique<BlendSource>(std::move(sources), blend(normalize_weights(weights), num_samples));
  }

  const GptConfig config_;
  const DatasetContext context_;
  std::array<Blend, 3> blends_;  // of train, valid and test
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("gpt", "prepared token files in Megatron's sample order, one or a blend") {
  using namespace mtrain;
  registry.add<Dataset, GptDataset, GptConfig>(
      "gpt", "prepared token files in Megatron's sample order, one or a blend");
}
