#include "mtrain/finetune/sft_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/chat/llama_spaces.h"
#include "mtrain/data/gpt_index.h"
#include "mtrain/data/permutation.h"
#include "mtrain/finetune/mapped_names.h"
#include "mtrain/finetune/messages.h"
#include "mtrain/finetune/record_file.h"

namespace mtrain::finetune {
namespace {

constexpr size_t kFirstRecords = 16;  // records from which the format is detected

TrainOn train_on_of(const std::string& name) {
  return name == "all" ? TrainOn::all : name == "last" ? TrainOn::last : TrainOn::assistant;
}

/// Reads a file in blocks: parses, encodes, truncates and counts its records.
class FileLoader {
 public:
  FileLoader(SftFile& file, const SftSettings& settings, const ExampleEncoder& encoder,
             int64_t seq_length, bool keep_places)
      : file_(file),
        settings_(settings),
        encoder_(encoder),
        keep_places_(keep_places),
        bad_(settings.records.on_bad == "skip", settings.records.max_bad) {
    const int64_t length = settings.pack_length(seq_length);
    file.longest = 1 + length;
    if (length < seq_length) file.limited_by = "dataset.packed_length";
    if (length == seq_length && settings.packed_length > 0 && settings.packing == "offline")
      file.limited_by = "model.seq_length and dataset.packed_length";
  }

  void run() {
    read_records(file_.path, bad_, [&](Json& record, const std::string& place) {
      ++file_.counts.records;
      records_.push_back(std::move(record));
      places_.push_back(place);
      if (records_.size() == kRecordsAtOnce) take_block();
    });
    take_block();
    file_.counts.bad = bad_.skipped();
    file_.counts.records += bad_.skipped() - refused_;
    note_unused();
    file_.form = form();
    file_.examples = std::make_shared<const ExampleStore>(std::move(store_));
  }

 private:
  void choose_format() {
    const std::string where = printable(file_.path.string());
    RecordFormat format{};
    FormatOptions options = settings_.records.format_options();
    options.trains_all = settings_.train_on == "all";
    if (settings_.format == "auto") {
      format = detect_format(std::span(records_).first(std::min(kFirstRecords, records_.size())),
                             options, where);
    } else {
      refuse_hiding_columns(std::span(records_).first(std::min(kFirstRecords, records_.size())),
                            options.columns, where);
      auto names = record_format_names();
      format = static_cast<RecordFormat>(std::find(names.begin(), names.end(), settings_.format) -
                                         names.begin());
    }
    file_.format = name(format);
    names_.emplace(options, file_.format);
    reader_.emplace(format, std::move(options));
  }

  std::string form() const {
    const int64_t chats = file_.counts.chats;
    const std::string in_template =
        cat("in the chat template ", printable(encoder_.template_name()));
    const std::string begin = cat(file_.format, " records are trained ");
    switch (reader_->format()) {
      case RecordFormat::alpaca:
        if (chats > 0) return begin + in_template;
        return cat(begin, "in ", alpaca_form(settings_.records),
                   encoder_.has_template() ? "; the tokenizer's chat template is not used "
                                             "(dataset.template_path selects it)"
                                           : "");
      case RecordFormat::sharegpt:
      case RecordFormat::openai:
        return begin + in_template;
      case RecordFormat::prompt_completion:
        if (chats == 0) return begin + "as plain text, prompt and completion";
        return cat(begin, in_template,
                   chats < file_.counts.records ? ", those without messages as plain text" : "");
      case RecordFormat::text:
      case RecordFormat::segments:
        return begin + "as plain text";
      case RecordFormat::tokens:
        return begin + "as their ids";
    }
    return {};
  }

  /// The rules between settings report what is known without the records.
  void note_unused() {
    const RecordSettings& r = settings_.records;
    const std::string what = cat(printable(file_.path.string()), " (", file_.format, ")");
    file_.unused = names_->finish(what);
    for (const std::string& warning :
         {empty_.warning(what, file_.counts.records), spelled_.warning(what)})
      if (!warning.empty()) file_.unused.push_back(warning);
    if (!r.prompt.empty() && settings_.format == "auto" && r.chat_template.empty() &&
        r.template_path.empty() && reader_->format() != RecordFormat::alpaca)
      file_.unused.push_back(
          cat("dataset.prompt has no effect on ", what, ": only alpaca records use it"));
    if (settings_.packed_length > 0 && settings_.packing == "auto")
      file_.unused.push_back(cat("dataset.packed_length has no effect on ", what,
                                 ": its records are not packed\n  help: dataset.packing=offline"));
    if (file_.counts.chats > 0) return;
    note_unused_choice(what);
    for (std::string& warning : r.unused_templates(what))
      file_.unused.push_back(std::move(warning));
  }

  /// `all` has an effect on records that have a part without loss; `last` only on conversations.
  void note_unused_choice(const std::string& what) {
    const RecordFormat format = reader_->format();
    const bool fixed = format == RecordFormat::tokens || format == RecordFormat::text;
    const bool segments = format == RecordFormat::segments && settings_.train_on == "last";
    if (settings_.train_on == SftSettings{}.train_on || !(fixed || segments)) return;
    file_.unused.push_back(
        cat("dataset.train_on=", settings_.train_on, " has no effect on ", what,
            format == RecordFormat::text ? ": all tokens are trained on" : ": their labels decide",
            "\n  help: leave it out"));
  }

  void take_block() {
    if (!reader_) choose_format();
    std::vector<Example> examples;
    for (size_t i = 0; i < records_.size(); ++i) {
      names_->note(records_[i]);
      try {
        examples.push_back(reader_->read(records_[i], places_[i]));
        empty_.note(examples.back());
        spelled_.note(encoder_, examples.back());
        if (examples.back().kind == Example::Kind::chat) ++file_.counts.chats;
      } catch (const RecordFault& fault) {
        bad_.reject(places_[i], fault.what, fault.hint);
        ++refused_;
      }
    }
    std::vector<bool> rejected(examples.size());
    auto encoded = encoder_.encode_all(examples, [&](const Example& example, const Error& error) {
      rejected[static_cast<size_t>(&example - examples.data())] = true;
      if (error.error_class() != ErrorClass::data) throw error;
      bad_.reject(example.place, error.message(), error.hint());
      ++refused_;
    });
    for (size_t i = 0; i < encoded.size(); ++i)
      if (!rejected[i]) take(encoded[i], examples[i].place);
    records_.clear();
    places_.clear();
  }

  void take(TokenizedExample& example, const std::string& place) {
    SftCounts& counts = file_.counts;
    const auto limit = static_cast<size_t>(file_.longest);
    const bool truncated = example.ids.size() > limit;
    if (truncated) {
      MT_USER_CHECK(
          settings_.too_long != "fail", ErrorClass::data,
          cat(place, ": has ", example.ids.size(), " tokens; a sample takes ", limit),
          cat("raise ", file_.limited_by, ", or set dataset.too_long to truncate or drop"));
      if (settings_.too_long == "drop") {
        ++counts.too_long;
        return;
      }
    }
    const int64_t all_trained =
        example.ids.empty() ? 0 : std::count(example.trained.begin() + 1, example.trained.end(), 1);
    if (truncated) {
      example.ids.resize(limit);
      example.trained.resize(limit);
    }
    const int64_t trained =
        example.ids.empty() ? 0 : std::count(example.trained.begin() + 1, example.trained.end(), 1);
    if (trained == 0) {
      ++(all_trained > 0 ? counts.trained_beyond : counts.untrained);
      if (counts.trained_beyond == 1 && all_trained > 0) counts.first_trained_beyond = place;
      return;
    }
    if (truncated) {
      ++counts.truncated;
      counts.truncated_trained += all_trained - trained;
      if (all_trained > trained && counts.first_truncated_trained.empty())
        counts.first_truncated_trained = place;
    }
    counts.tokens += static_cast<int64_t>(example.ids.size());
    counts.trained_tokens += trained;
    store_.add(example);
    if (keep_places_) file_.places.push_back(place);
  }

  SftFile& file_;
  const SftSettings& settings_;
  const ExampleEncoder& encoder_;
  bool keep_places_;
  BadRecords bad_;
  int64_t refused_ = 0;  // invalid records that were parsed, and so are counted as records
  EmptyAnswers empty_;
  SpelledTokens spelled_;
  std::optional<RecordReader> reader_;
  std::optional<MappedNames> names_;
  std::vector<Json> records_;
  std::vector<std::string> places_;
  ExampleStore store_;
};

constexpr size_t kMostIdentity = 1 << 16;  // bytes of a setting in an identity

/// The settings that determine the packs, except those in ExampleEncoder::identity().
std::map<std::string, std::string> settings_of_packs(const SftSettings& s) {
  return {{"columns", columns_identity(s.records.columns)},
          {"format", s.format},
          {"on_bad", s.records.on_bad},
          {"packed_length", cat(s.packed_length)},
          {"prompt", s.records.prompt},
          {"roles", brief(s.records.roles, kMostIdentity)},
          {"too_long", s.too_long}};
}

}  // namespace

std::string columns_identity(const Node& columns) {
  Node renaming = Node::map();
  for (const auto& entry : columns.entries())
    if (!entry.value.is(NodeKind::string) || entry.value.as_text() != entry.key)
      renaming.set(entry.key, entry.value);
  return brief(renaming, kMostIdentity);
}

std::string alpaca_form(const RecordSettings& settings) {
  return settings.prompt.empty() ? "Stanford Alpaca's prompt" : "the prompt of dataset.prompt";
}

AskedPrompt ask_as_text(const Tokenizer& tokenizer, const std::string& text, bool parse_special) {
  AskedPrompt out{.ids = tokens_before_text(tokenizer)};
  std::vector<int32_t> ids;
  call_plugin(tokenizer, "encode()",
              [&] { tokenizer.encode_with(text, {.parse_special = parse_special}, ids, nullptr); });
  // A text that spells its first token has it once.
  if (parse_special && !out.ids.empty() && !ids.empty() && ids[0] == out.ids[0]) out.ids.clear();
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  mtrain::check_ids(tokenizer, out.ids);
  return out;
}

std::string SftFile::summary() const {
  std::string out = cat(printable(path.string()), " (", format, "): ", examples->size(), " of ",
                        counted(counts.records, "record"), ", ", counts.trained_tokens, " of ",
                        counts.tokens, " tokens are trained on");
  auto add = [&](int64_t count, const std::string& what) {
    if (count > 0) out += cat("; ", count, " ", what);
  };
  add(counts.truncated,
      cat("truncated to ", longest, " tokens",
          counts.truncated_trained == 0 ? ""
                                        : cat(", without ", counts.truncated_trained,
                                              " of the tokens that should be trained on (first: ",
                                              counts.first_truncated_trained, ")")));
  add(counts.trained_beyond, cat("left out because all tokens to train on come after their first ",
                                 longest, " tokens (first: ", counts.first_trained_beyond, ")"));
  add(counts.too_long, cat("left out for having more than ", longest, " tokens"));
  add(counts.untrained, "left out because they have no tokens to train on");
  add(counts.bad, "invalid ones left out");
  return out;
}

void SftFile::log_unused() const {
  for (const std::string& warning : unused) log_warn(warning);
}

void SftFile::log_summary() const {
  log_unused();
  if (counts.truncated_trained == 0 && counts.trained_beyond == 0) return log_info(summary());
  // Without the records that are too long, others are left only where not all of these are.
  const bool others = examples->size() > counts.truncated;
  log_warn(summary(), "\n  help: raise ", limited_by,
           others ? ", or drop long records with dataset.too_long=drop" : "");
}

SftFile load_sft_file(const fs::path& path, const SftSettings& settings,
                      const ExampleEncoder& encoder, int64_t seq_length, bool keep_places) {
  SftFile out;
  out.path = path;
  FileLoader(out, settings, encoder, seq_length, keep_places).run();
  MT_USER_CHECK(
      out.examples->size() > 0, ErrorClass::data,
      cat("nothing to train on is left: ", out.summary()),
      out.counts.trained_beyond > 0 || out.counts.too_long > 0
          ? cat("raise ", out.limited_by)
          : std::string(
                "each record needs an answer that is not empty: a message of the assistant, a "
                "completion, or a text"));
  out.digest = record_digest(path);
  return out;
}

ExampleEncoder make_encoder(const SftSettings& settings, const DatasetContext& context) {
  MT_USER_CHECK(context.tokenizer, ErrorClass::config,
                "records are text, but there is no tokenizer", "set tokenizer.type");
  EncoderOptions options = settings.records.encoder_options(context.base_directory);
  options.train_on = train_on_of(settings.train_on);
  ExampleEncoder encoder(*context.tokenizer, options);
  const std::vector<std::string> missing = encoder.missing_special_tokens();
  if (!missing.empty() && context.log_summary)
    log_warn("the chat template writes ", printable(join(missing, ", ")),
             ", which the tokenizer does not have as single tokens; check that the template "
             "belongs to this model");
  if (encoder.has_template() && context.log_summary &&
      chat::lacks_legacy(context.tokenizer->folder()))
    log_warn(
        "transformers 5 encodes texts after special tokens, such as the turns of a chat, in "
        "another way than ",
        printable(context.tokenizer->folder().string()),
        "/tokenizer.json, by which this run is trained: it adds no blank there\n  help: set "
        "\"legacy\": true in tokenizer_config.json, as mtrain export does");
  return encoder;
}

fs::path record_path(const std::string& path, const DatasetContext& context) {
  return fs::path(path).is_absolute() ? fs::path(path) : context.base_directory / path;
}

std::map<std::string, std::string> packed_settings(const SftSettings& settings, const SftFile& file,
                                                   int64_t seq_length) {
  auto out = settings_of_packs(settings);
  out["format"] = file.format;
  out["records"] = encoded_format(file.format);
  out["packed_length"] = cat(settings.packed_length > 0 ? settings.packed_length : seq_length);
  return out;
}

int64_t SftSettings::pack_length(int64_t seq_length) const {
  return packing == "offline" && packed_length > 0 ? packed_length : seq_length;
}

PackedOrigin packed_origin(const SftSettings& settings, const ExampleEncoder& encoder,
                           const DatasetContext& context) {
  std::map<std::string, std::string> changed = settings_of_packs(settings);
  const auto defaults = settings_of_packs({});
  std::erase_if(changed,
                [&](const auto& entry) { return defaults.at(entry.first) == entry.second; });
  return {.tokenizer = context.tokenizer->identity(),
          .encoding = encoder.identity(),
          .chat_template = encoder.template_name(),
          .vocab_size = context.tokenizer->vocab_size(),
          .seq_length = context.seq_length,
          .settings = std::move(changed),
          .source = {},
          .source_sha256 = {}};
}

namespace {

/// split_ranges(), but each part with a share above 0 has an example if there are enough: rounding
/// would leave the validation of 8 examples without any. The largest part gives them up.
std::array<SequenceRange, 3> example_ranges(const std::string& split, int64_t count) {
  constexpr int64_t kMany = int64_t{1} << 40;  // each share above 0 has some of them
  auto ranges = split_ranges(split, count);
  const auto shares = split_ranges(split, kMany);
  std::array<int64_t, 3> sizes{};
  int64_t parts = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = ranges[i].end - ranges[i].begin;
    parts += shares[i].begin < shares[i].end;
  }
  if (parts > count) return ranges;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] == 0 && shares[i].begin < shares[i].end) {
      --*std::max_element(sizes.begin(), sizes.end());
      sizes[i] = 1;
    }
  int64_t at = 0;
  for (size_t i = 0; i < sizes.size(); at += sizes[i], ++i) ranges[i] = {at, at + sizes[i]};
  return ranges;
}

}  // namespace

std::vector<int32_t> share_of_examples(const std::string& split, Split which, int64_t count,
                                       const std::string& file, std::string_view what) {
  const auto ranges = example_ranges(split, count);
  const SequenceRange range = ranges[static_cast<size_t>(which)];
  MT_USER_CHECK(range.begin < range.end, ErrorClass::data,
                cat("the ", name(which), " split of ", file, " is empty: the proportions ", split,
                    " of ", count, " ", what, " give it none"),
                cat("change dataset.split, or set dataset.", name(which), "_path",
                    which == Split::valid ? "; or disable validation: validation.steps=0" : ""));
  const Permutation order(count, 0, name_key("finetune.split"), 0);
  std::vector<int32_t> out;
  for (int64_t i = range.begin; i < range.end; ++i) out.push_back(static_cast<int32_t>(order(i)));
  std::sort(out.begin(), out.end());
  return out;
}

Packs make_packs(const ExampleStore& examples, const std::vector<int32_t>& chosen,
                 const SftSettings& settings, int64_t seq_length) {
  Packs out;
  if (settings.packing == "offline") {
    const int64_t capacity = settings.pack_length(seq_length);
    std::vector<int32_t> lengths;
    for (int32_t example : chosen) lengths.push_back(examples.length(example));
    out = pack_first_fit_decreasing(lengths, static_cast<int32_t>(capacity));
  } else {
    out = pack_singly(static_cast<int64_t>(chosen.size()));
  }
  for (int32_t& item : out.items) item = chosen[static_cast<size_t>(item)];
  return out;
}

int32_t padding_id(const Tokenizer& tokenizer) {
  return tokenizer.pad().value_or(tokenizer.eod().value_or(0));
}

}  // namespace mtrain::finetune
