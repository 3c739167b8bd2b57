#include "mtrain/data/prepared_data.h"

#include <algorithm>
#include <istream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/config/report.h"
#include "mtrain/config/setting_word.h"
#include "mtrain/config/value.h"
#include "mtrain/data/input_stream.h"
#include "mtrain/data/tokenizer_record.h"

namespace mtrain {
namespace {

constexpr const char* kPhasesHint =
    "write a list like [{samples: 64000, weights: [0.9, 0.1]}], one weight for each of "
    "dataset.paths";

/// Reads a value of a phase as the setting of that type would be read.
template <class T>
T value_at(const Node& phase, const char* key, FieldType type, const std::string& place) {
  FieldSpec spec;
  spec.path = key;
  spec.type = type;
  Report faults;
  const Node* given = phase.get(key);
  auto value = given ? read_value(*given, spec, cat(place, ".", key), faults) : std::nullopt;
  if (const T* read = value ? std::get_if<T>(&*value) : nullptr) return *read;
  throw Error(ErrorClass::config,
              given ? cat(place, ".", key, ": ", faults.diagnostics().at(0).message)
                    : cat(place, ": ", brief(phase), " has no ", key),
              kPhasesHint);
}

}  // namespace

std::vector<BlendPhase> read_phases(const Node& phases, size_t num_paths) {
  std::vector<BlendPhase> out;
  if (phases.is_null()) return out;
  MT_USER_CHECK(phases.is_list(), ErrorClass::config,
                cat("dataset.phases is not a list: ", brief(phases)), kPhasesHint);
  for (size_t i = 0; i < phases.size(); ++i) {
    const Node& item = phases.items()[i];
    const std::string place = cat("dataset.phases[", i, "]",
                                  item.loc() ? cat(" (", item.loc().text(), ")") : std::string());
    MT_USER_CHECK(item.is_map(), ErrorClass::config,
                  cat(place, ": ", brief(item), " is not a phase"), kPhasesHint);
    for (const auto& entry : item.entries())
      MT_USER_CHECK(entry.key == "samples" || entry.key == "weights", ErrorClass::config,
                    cat(place, ": a phase has no '", printable(entry.key, 60), "'"), kPhasesHint);
    BlendPhase phase{value_at<int64_t>(item, "samples", FieldType::integer, place),
                     value_at<std::vector<double>>(item, "weights", FieldType::number_list, place)};
    MT_USER_CHECK(phase.samples > 0, ErrorClass::config,
                  cat(place, ": a phase of ", phase.samples, " samples"), kPhasesHint);
    MT_USER_CHECK(phase.weights.size() == num_paths, ErrorClass::config,
                  cat(place, ": ", counted(phase.weights.size(), "weight"), " for ",
                      counted(num_paths, "path")),
                  kPhasesHint);
    phase.weights = normalize_weights(phase.weights, place);
    out.push_back(std::move(phase));
  }
  return out;
}

void PreparedSettings::bind(Fields& f) {
  f.resume(ResumeClass::data);
  f("path", path, "prepared token file: the prefix of a .bin/.idx pair")
      .example("data/bible")
      .renamed_from({"data_path"})
      .input_path();
  f("paths", paths, "prefixes of several pairs to blend, instead of path")
      .example("[data/books, data/web]")
      .input_path();
  f("weights", weights,
    "blend weight of each entry of paths; empty: in proportion to their sizes, each sample once")
      .min(0)
      .example("[0.3, 0.7]");
  f("order", order,
    "sample order; megatron: Megatron-LM's order, which depends on the number of samples of the "
    "whole run; open: each epoch is shuffled separately, so that train.steps and the weights of "
    "later samples may change when a run resumes")
      .one_of({"megatron", "open"});
  f("phases", phases,
    "order=open: a list of phases at the start of the run, each with its own number of samples and "
    "weights; after them, weights applies")
      .example("[{samples: 64000, weights: [0.9, 0.1]}]")
      .merge_replace();
  f("any_tokenizer", any_tokenizer,
    "accept pairs even if they were prepared with a different tokenizer")
      .resume(ResumeClass::safe);
  f("split", split, "proportions of the documents for train, valid and test").example("969,30,1");
  f("valid_path", valid_path, "prefix of a pair for validation; split is then not applied")
      .input_path();
  f("valid_paths", valid_paths,
    "prefixes of several pairs for validation, blended like paths, instead of valid_path")
      .example("[data/books_valid, data/web_valid]")
      .input_path();
  f("valid_weights", valid_weights, "blend weight of each entry of valid_paths")
      .min(0)
      .example("[0.5, 0.5]");
  f("test_path", test_path, "prefix of a pair for testing; split is then not applied").input_path();
  f("test_paths", test_paths,
    "prefixes of several pairs for testing, blended like paths, instead of test_path")
      .example("[data/books_test, data/web_test]")
      .input_path();
  f("test_weights", test_weights, "blend weight of each entry of test_paths")
      .min(0)
      .example("[0.5, 0.5]");
}

PreparedData::PreparedData(const PreparedSettings& settings, const DatasetContext& context,
                           PreparedSampling sampling)
    : settings_(settings), context_(context), sampling_(std::move(sampling)) {
  check_settings();
  phases_ = checked_phases();
  blends_ = {
      open_blend("path", settings.path, settings.paths, settings.weights),
      open_blend("valid_path", settings.valid_path, settings.valid_paths, settings.valid_weights),
      open_blend("test_path", settings.test_path, settings.test_paths, settings.test_weights)};
  log_unrecorded();
}

std::unique_ptr<SampleSource> PreparedData::split(Split which, int64_t num_samples) const {
  MT_USER_CHECK(which == Split::train || num_samples != 0, ErrorClass::config,
                cat("no samples were requested from the ", name(which), " split"), "");
  const Blend& blend = blends_[own_files() ? static_cast<size_t>(which) : 0];
  MT_USER_CHECK(!blend.files.empty(), ErrorClass::config,
                cat("there is no ", name(which), " data: dataset.", blend.name, " is not set"),
                "set it, or leave out both the valid and the test paths, so that dataset.split "
                "divides the documents");
  if (blend.files.size() == 1) return ordered(blend.files[0], which, num_samples);
  return blend.weights.empty() ? blend_by_size(blend, which, num_samples)
                               : blend_by_weight(blend, which, num_samples);
}

std::string PreparedData::identity() const {
  std::vector<std::string> files, weights;
  for (const auto& file : blends_[0].files) files.push_back(file->identity());
  for (size_t i : {size_t{1}, size_t{2}}) files.push_back(identity_of(blends_[i]));
  if (!open_order())
    for (double weight : settings_.weights) weights.push_back(shortest(weight));
  return cat("\"files\":[", join(files, ","), "],\"weights\":[", join(weights, ","),
             "],\"split\":\"", own_files() ? "" : settings_.split, "\",\"seed\":", context_.seed);
}

/// "null", a file, or a list of files and weights.
std::string PreparedData::identity_of(const Blend& blend) {
  if (blend.files.empty()) return "null";
  if (blend.files.size() == 1) return blend.files[0]->identity();
  std::vector<std::string> parts;
  for (const auto& file : blend.files) parts.push_back(file->identity());
  for (double weight : blend.weights) parts.push_back(shortest(weight));
  return cat("[", join(parts, ","), "]");
}

PreparedData::Blend PreparedData::open_blend(const std::string& name, const std::string& path,
                                             const std::vector<std::string>& paths,
                                             const std::vector<double>& weights) const {
  MT_USER_CHECK(path.empty() || paths.empty(), ErrorClass::config,
                cat("dataset.", name, " and dataset.", name, "s are both set"),
                cat("give the prefix of one prepared pair as dataset.", name,
                    ", or several as dataset.", name, "s"));
  const std::string weights_name = name.substr(0, name.size() - 4) + "weights";
  MT_USER_CHECK(weights.empty() || weights.size() == paths.size(), ErrorClass::config,
                cat("dataset.", weights_name, " has ", counted(weights.size(), "value"), " for ",
                    paths.size(), " dataset.", name, "s"),
                "give one weight for each path");
  if (!weights.empty()) normalize_weights(weights, "dataset." + weights_name);
  Blend blend{name, {}, weights};
  if (!path.empty()) blend.files.push_back(open(path));
  for (const auto& one : paths) blend.files.push_back(open(one));
  return blend;
}

/// The phases of the first `total` samples of a blend. Adjacent phases with equal weights are
/// merged.
std::vector<BlendPhase> PreparedData::phases_until(const Blend& from, int64_t total) const {
  std::vector<BlendPhase> out;
  auto add = [&](int64_t samples, const std::vector<double>& weights) {
    samples = std::min(samples, total);
    total -= samples;
    if (samples <= 0) return;
    if (!out.empty() && out.back().weights == weights)
      out.back().samples += samples;
    else
      out.push_back({samples, weights});
  };
  if (&from == &blends_[0])
    for (const auto& phase : phases_) add(phase.samples, phase.weights);
  if (!from.weights.empty()) add(total, normalize_weights(from.weights));
  return out;
}

std::string PreparedData::order_identity(int64_t consumed) const {
  if (!open_order()) return {};
  std::vector<std::string> mix;
  for (const auto& phase : phases_until(blends_[0], consumed)) {
    std::vector<std::string> weights;
    for (double weight : phase.weights) weights.push_back(shortest(weight));
    mix.push_back(cat("[", phase.samples, ",", join(weights, ","), "]"));
  }
  return cat(",\"order\":\"open\",\"mix\":[", join(mix, ","), "]");
}

std::vector<BlendPhase> PreparedData::checked_phases() const {
  if (settings_.phases.is_null()) return {};
  MT_USER_CHECK(
      open_order() && !settings_.weights.empty(), ErrorClass::config,
      cat("dataset.phases needs ",
          open_order() ? "dataset.weights, which apply after them" : "dataset.order=open"),
      kPhasesHint);
  return read_phases(settings_.phases, settings_.paths.size());
}

void PreparedData::check_settings() const {
  MT_USER_CHECK(
      !settings_.path.empty() || !settings_.paths.empty(), ErrorClass::config,
      "dataset.path is not set",
      "give the prefix of one prepared pair as dataset.path, or several as dataset.paths");
  split_ranges(settings_.split, 0);
  MT_USER_CHECK(context_.seed <= UINT32_MAX, ErrorClass::config,
                cat("the seed ", context_.seed,
                    " is above 4294967295, the largest that numpy's generator takes"),
                "choose a smaller rng.seed");
}

namespace {

/// Packed records have a loss mask, and ends of samples, that only the dataset sft reads.
void refuse_packed(const IndexedFile& file) {
  fs::path prefix = file.prefix();
  const bool mask = prefix.extension() == ".learnt";
  if (mask) prefix.replace_extension();
  std::error_code ignored;
  const auto record = read_tokenizer_record(file);
  const bool packed =
      mask ? fs::exists(packed_record_path(prefix), ignored) : record && record->packed;
  MT_USER_CHECK(
      !packed, ErrorClass::data,
      cat(printable(file.prefix().string()),
          mask ? " is the loss mask of packed records, not a text"
               : " has packed fine-tuning records: their loss mask would be lost"),
      cat("train on them with dataset=sft ", setting_word("dataset.path", prefix.string()),
          ", or prepare a text: mtrain data prepare"));
}

}  // namespace

namespace {

/// The first record of a file of JSON lines; null where it cannot be read.
nlohmann::json first_record(const fs::path& path) {
  constexpr size_t kLongest = 1 << 20;
  std::string line;
  try {
    InputBuffer buffer(path);
    std::istream in(&buffer);
    while (line.size() < kLongest && in.peek() != EOF && in.peek() != '\n')
      line += static_cast<char>(in.get());
  } catch (const Error&) {  // reported where the file is read
  }
  nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
  return record.is_object() ? record : nlohmann::json();
}

/// How the records of a file of JSON lines are read.
struct JsonRecords {
  std::string dataset;  // that reads them unprepared; empty: they are texts
  std::string option;   // of `data prepare`: " --json-key body"
  std::string note;     // about it
};

JsonRecords json_records(const fs::path& path) {
  const nlohmann::json record = first_record(path);
  if (record.is_null() || record.contains("text")) return {};
  if (record.contains("chosen") || record.contains("rejected"))
    return {.dataset = "preference objective=dpo", .option = {}, .note = {}};
  for (const char* field : {"messages", "conversations", "prompt", "instruction"})
    if (record.contains(field)) return {.dataset = "sft", .option = {}, .note = {}};
  std::vector<std::string> texts;
  for (const auto& [key, value] : record.items())
    if (value.is_string()) texts.push_back(key);
  if (texts.size() == 1)
    return {.dataset = {}, .option = " --json-key " + shell_word(texts[0]), .note = {}};
  return {.dataset = {},
          .option = " --json-key FIELD",
          .note = texts.empty() ? ""
                                : cat("\n(FIELD: one of ", printable(join(texts, ", "), 400), ")")};
}

}  // namespace

std::string PreparedData::tokenizer_path() const {
  return context_.tokenizer_path.empty() ? ""
                                         : cat(" ", setting_word("path", context_.tokenizer_path));
}

PreparedData::File PreparedData::open(const std::string& text) const {
  fs::path path = fs::path(text).is_absolute() ? fs::path(text) : context_.base_directory / text;
  std::error_code ignored;
  auto extension = path.extension();
  const fs::path plain = without_compression(path);
  const fs::path text_extension = plain.extension();
  bool raw = text_extension == ".txt" || text_extension == ".jsonl" || text_extension == ".json";
  if (!fs::exists(idx_path(path), ignored) && (raw || fs::is_regular_file(path, ignored)) &&
      extension != ".idx" && extension != ".bin") {
    const fs::path prefix = fs::path(plain).replace_extension();
    const bool lines = text_extension != ".txt";
    const JsonRecords records = lines ? json_records(path) : JsonRecords{};
    MT_USER_CHECK(records.dataset.empty(), ErrorClass::data,
                  cat(path.string(), " has records for fine-tuning; dataset.type=",
                      sampling_.dataset, " reads prepared tokens"),
                  cat("train on the records as they are: dataset=", records.dataset));
    throw Error(ErrorClass::data, cat(path.string(), " is text; training reads prepared tokens"),
                cat("run: mtrain data prepare --input ", shell_word(path.string()), " --output ",
                    shell_word(prefix.string()), " --tokenizer ",
                    context_.tokenizer ? context_.tokenizer->name() : "NAME", tokenizer_path(),
                    records.option, " --append-eod", lines ? "" : " --split-on blank-lines",
                    "\nand set ", setting_word("dataset.path", prefix.string()), records.note));
  }
  auto file = std::make_shared<IndexedFile>(path);
  refuse_packed(*file);
  if (context_.tokenizer && !settings_.any_tokenizer) check_tokenizer(*file, *context_.tokenizer);
  if (sampling_.check) sampling_.check(*file);
  return file;
}

/// Logs one line about all pairs without a tokenizer record.
void PreparedData::log_unrecorded() const {
  if (!context_.log_summary || !context_.tokenizer || settings_.any_tokenizer) return;
  std::vector<std::string> names;
  for (const Blend& blend : blends_)
    for (const File& file : blend.files)
      if (!read_tokenizer_record(*file)) names.push_back(printable(file->prefix().string()));
  if (names.empty()) return;
  const size_t more = names.size() - 1;
  log_info(names[0], more > 0 ? cat(" and ", counted(more, "other pair"), " have") : " has",
           " no record of a tokenizer: the ids are assumed to be those of the tokenizer ",
           context_.tokenizer->name());
}

SequenceRange PreparedData::range_of(const File& file, Split which) const {
  const int64_t count = file->num_sequences();
  if (own_files()) return {0, count};
  auto ranges = split_ranges(settings_.split, count);
  SequenceRange range = ranges[static_cast<size_t>(which)];
  if (range.begin == range.end) {
    auto size = [&](size_t i) { return ranges[i].end - ranges[i].begin; };
    throw Error(ErrorClass::data,
                cat("the ", name(which), " split of ", file->prefix().string(), " is empty: its ",
                    counted(count, "document"), " at the shares ", settings_.split,
                    count == 1 ? " gives " : " give ", size(0), " to train, ", size(1),
                    " to valid and ", size(2), " to test"),
                cat(count > 1 ? "change dataset.split, or " : "",
                    "prepare the text as more documents (data prepare --split-on lines or "
                    "--document-bytes N; or --split-on blank-lines, where blank lines divide it)",
                    which == Split::train
                        ? ""
                        : cat("; or set dataset.", name(which), "_path to a separate pair"),
                    which == Split::valid ? "; or disable validation: validation.steps=0" : ""));
  }
  return range;
}

std::string PreparedData::stream(Split which) const {
  return cat(sampling_.dataset, ".", name(which));
}

/// A file's samples in the configured order.
PreparedData::Source PreparedData::ordered(const File& file, Split which,
                                           int64_t num_samples) const {
  if (!open_order() || num_samples == Dataset::kOneEpoch) return source(file, which, num_samples);
  return std::make_unique<EpochSource>(source(file, which, Dataset::kOneEpoch), num_samples,
                                       context_.seed, stream(which));
}

PreparedData::Source PreparedData::source(const File& file, Split which,
                                          int64_t num_samples) const {
  const SequenceRange range = range_of(file, which);
  std::vector<int32_t> lengths;
  lengths.reserve(static_cast<size_t>(range.end - range.begin));
  for (int64_t i = range.begin; i < range.end; ++i) lengths.push_back(file->length(i));
  GptIndex index;
  try {
    index = build_gpt_index(lengths, range.begin,
                            {.seq_length = sampling_.tokens,
                             .num_samples = num_samples,
                             .seed = static_cast<uint32_t>(context_.seed),
                             .drop_last = which == Split::valid ? sampling_.drop_last_valid : true,
                             .extra_tokens = sampling_.extra_tokens});
  } catch (const Error& error) {
    throw Error(
        error.error_class(),
        cat("the ", name(which), " split of ", file->prefix().string(), ": ", error.message()),
        error.hint());
  }
  return sampling_.source(file, std::move(index));
}

PreparedData::Source PreparedData::blend_by_weight(const Blend& from, Split which,
                                                   int64_t num_samples) const {
  MT_USER_CHECK(num_samples != Dataset::kOneEpoch, ErrorClass::config,
                cat("one epoch of a weighted blend is not defined (the ", name(which), " split)"),
                "leave the weights out, or give a number: train.steps instead of train.epochs, "
                "--batches N instead of --batches all");
  if (open_order()) return blend_by_phase(from, which, num_samples);
  auto weights = normalize_weights(from.weights);
  int64_t size = 0;
  for (double weight : weights) size += blend_share(num_samples, weight);
  BlendIndex index = blend(weights, size);
  std::vector<int64_t> used(weights.size(), 0);
  for (int16_t d : index.dataset) ++used[static_cast<size_t>(d)];
  std::vector<std::unique_ptr<SampleSource>> sources;
  for (size_t d = 0; d < from.files.size(); ++d) {
    if (weights[d] == 0) {
      sources.push_back(nullptr);
      continue;
    }
    // All shares are rounded up, so with many small datasets the blend may take more samples of the
    // large ones than their surplus covers.
    auto share = std::max({int64_t{1}, used[d], blend_share_with_surplus(num_samples, weights[d])});
    sources.push_back(source(from.files[d], which, share));
  }
  return std::make_unique<BlendSource>(std::move(sources), std::move(index));
}

PreparedData::Source PreparedData::blend_by_phase(const Blend& from, Split which,
                                                  int64_t num_samples) const {
  const std::vector<BlendPhase> phases = phases_until(from, num_samples);
  BlendIndex index = blend_phases(phases);
  auto has_weight = [&](size_t d) {
    return std::ranges::any_of(phases,
                               [&](const BlendPhase& phase) { return phase.weights[d] > 0; });
  };
  std::vector<int64_t> used(from.files.size(), 1);
  for (int16_t d : index.dataset) ++used[static_cast<size_t>(d)];
  std::vector<std::unique_ptr<SampleSource>> sources;
  for (size_t d = 0; d < from.files.size(); ++d)
    sources.push_back(has_weight(d) ? ordered(from.files[d], which, used[d]) : nullptr);
  return std::make_unique<BlendSource>(std::move(sources), std::move(index));
}

PreparedData::Source PreparedData::blend_by_size(const Blend& from, Split which,
                                                 int64_t num_samples) const {
  std::vector<std::unique_ptr<SampleSource>> sources;
  std::vector<int64_t> sizes;
  std::vector<double> weights;
  for (const File& file : from.files) {
    sources.push_back(source(file, which, Dataset::kOneEpoch));
    sizes.push_back(sources.back()->size());
    weights.push_back(static_cast<double>(sizes.back()));
  }
  if (num_samples == Dataset::kOneEpoch || open_order()) {
    auto all = std::make_unique<BlendSource>(std::move(sources), blend_exhaustive(sizes));
    if (num_samples == Dataset::kOneEpoch) return all;
    return std::make_unique<EpochSource>(std::move(all), num_samples, context_.seed, stream(which));
  }
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  MT_USER_CHECK(num_samples <= total, ErrorClass::data,
                cat("the ", name(which), " split of dataset.", from.name, "s has ",
                    counted(total, "sample"), " of the ", num_samples, " that are needed"),
                cat("give dataset.", from.name.substr(0, from.name.size() - 4),
                    "weights, with which the data repeats, or request fewer samples"));
  return std::make_unique<BlendSource>(std::move(sources),
                                       blend(normalize_weights(weights), num_samples));
}

int32_t special_token_id(const Tokenizer& tokenizer, const std::string& text,
                         const std::string& setting) {
  std::vector<std::string> known;
  for (const auto& token : tokenizer.special_tokens()) {
    if (token.text == text) return token.id;
    known.push_back(token.text);
  }
  constexpr size_t kShown = 8;
  auto near = nearest(text, known, 3);
  const std::string more =
      known.size() > kShown ? cat(" and ", known.size() - kShown, " more") : "";
  if (known.size() > kShown) known.resize(kShown);
  throw Error(ErrorClass::config,
              cat(setting, ": '", printable(text, 60), "' is not a special token of the tokenizer"),
              !near.empty()   ? cat("did you mean ", join(near, " or "), "?")
              : known.empty() ? std::string("it has none: choose another tokenizer")
                              : cat("it has ", printable(join(known, " "), 400), more));
}

}  // namespace mtrain
