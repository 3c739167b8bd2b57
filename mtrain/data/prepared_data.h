// PreparedData: one pair of prepared tokens or a blend of several, split into train, valid and
// test, in Megatron's order of samples or in the open order (dataset.order=open: each epoch is
// shuffled separately, so the order does not depend on the length of the run). It is the common
// part of datasets over such pairs; each defines how it splits a file into samples. Owns the opened
// files; refers to the tokenizer of its context. Immutable: const members are safe from any thread.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/config/tree.h"
#include "mtrain/data/gpt_source.h"

namespace mtrain {

/// Settings: the paths of the pairs, and how they are mixed. Value.
struct MT_API PreparedSettings {
  std::string path, valid_path, test_path, split = "969,30,1";
  std::vector<std::string> paths, valid_paths, test_paths;
  std::vector<double> weights, valid_weights, test_weights;
  std::string order = "megatron";
  bool any_tokenizer = false;
  Node phases;
  void bind(Fields& f);
};

/// Reads dataset.phases of a blend of `num_paths` pairs; none for null. Throws Error(config) that
/// names the faulty item.
MT_API std::vector<BlendPhase> read_phases(const Node& phases, size_t num_paths);

/// How a dataset splits a file into samples.
struct PreparedSampling {
  std::string
      dataset;  // its name; the open order is a function of it, the seed, the split and the epoch
  int64_t tokens = 0;           // the step from one sample to the next
  int64_t extra_tokens = 1;     // tokens of a sample beyond that
  bool drop_last_valid = true;  // drop an incomplete last validation sample
  std::function<std::unique_ptr<SampleSource>(std::shared_ptr<const IndexedFile>, GptIndex)> source;
  std::function<void(const IndexedFile&)> check =
      {};  // throws for a pair that this dataset cannot use
};

class MT_API PreparedData {
 public:
  using File = std::shared_ptr<const IndexedFile>;

  /// Opens every pair. Throws Error(config) for invalid settings, Error(data) that names a missing
  /// or broken pair.
  PreparedData(const PreparedSettings& settings, const DatasetContext& context,
               PreparedSampling sampling);
  /// Like Dataset::split.
  std::unique_ptr<SampleSource> split(Split which, int64_t num_samples) const;

  /// Members of a JSON object: files, weights, split and seed.
  std::string identity() const;
  /// Further members of the JSON object, after a comma: the order and the mix of the samples before
  /// `consumed`; empty for Megatron's order.
  std::string order_identity(int64_t consumed) const;

 private:
  /// The files of one split, or of all splits.
  struct Blend {
    std::string name;  // the setting's name: "path", "valid_path"
    std::vector<File> files;
    std::vector<double> weights;  // empty: mixed by their sizes
  };
  using Source = std::unique_ptr<SampleSource>;

  static std::string identity_of(const Blend& blend);
  bool own_files() const { return !blends_[1].files.empty() || !blends_[2].files.empty(); }
  bool open_order() const { return settings_.order == "open"; }
  void check_settings() const;
  std::vector<BlendPhase> checked_phases() const;
  std::vector<BlendPhase> phases_until(const Blend& from, int64_t total) const;
  File open(const std::string& text) const;
  std::string tokenizer_path() const;
  void log_unrecorded() const;
  Blend open_blend(const std::string& name, const std::string& path,
                   const std::vector<std::string>& paths, const std::vector<double>& weights) const;
  SequenceRange range_of(const File& file, Split which) const;
  std::string stream(Split which) const;
  Source source(const File& file, Split which, int64_t num_samples) const;
  Source ordered(const File& file, Split which, int64_t num_samples) const;
  Source blend_by_weight(const Blend& from, Split which, int64_t num_samples) const;
  Source blend_by_phase(const Blend& from, Split which, int64_t num_samples) const;
  Source blend_by_size(const Blend& from, Split which, int64_t num_samples) const;

  PreparedSettings settings_;
  DatasetContext context_;
  PreparedSampling sampling_;
  std::array<Blend, 3> blends_;  // for train, valid and test
  std::vector<BlendPhase> phases_;
};

/// The id of a special token of the tokenizer. Error(config) that names `setting` and similar
/// tokens when there is none.
MT_API int32_t special_token_id(const Tokenizer& tokenizer, const std::string& text,
                                const std::string& setting);

}  // namespace mtrain
