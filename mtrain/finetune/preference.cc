#include "mtrain/finetune/preference.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/finetune/mapped_names.h"
#include "mtrain/finetune/messages.h"
#include "mtrain/finetune/record_file.h"

namespace mtrain::finetune {

void PreferenceSettings::bind(Fields& f) {
  f.objective(kPreferences);
  records.bind(f);
  f("format", format,
    "format of the records; pairs: a chosen and a rejected answer, labels: one answer with a good "
    "or bad label, auto: detected")
      .one_of({"auto", "pairs", "labels"});
  f("too_long", too_long,
    "action at a record whose answers do not both fit into a sample; drop: leave it out, fail: "
    "stop")
      .one_of({"drop", "fail"});
}

std::string PreferenceFile::summary(int64_t seq_length) const {
  std::string out = cat(printable(path.string()), " (", format, "): ", size(), " of ",
                        counted(records, "record"));
  if (!pairs) out += cat(", ", std::count(good.begin(), good.end(), true), " of them good");
  if (too_long > 0)
    out += cat("; ", too_long, " left out for having more than ", seq_length, " tokens");
  if (untrained > 0)
    out += cat("; ", untrained, " left out because an answer is empty or has weight 0");
  if (bad > 0) out += cat("; ", bad, " invalid ones left out");
  return out;
}

void PreferenceFile::log_unused() const {
  for (const std::string& warning : unused) log_warn(warning);
}

void PreferenceFile::log_summary(int64_t seq_length) const {
  log_unused();
  const std::string words = cat(summary(seq_length), "; its answers are trained on ", form);
  if (too_long == 0 && untrained == 0) return log_info(words);
  log_warn(words, "\n  help: ",
           too_long == 0
               ? std::string(
                     "remove the records whose answer is empty or has weight 0, or complete them")
               : cat("raise model.seq_length: the longest record needs ", longest, " tokens"));
}

namespace {

/// Answers are compared as the template writes them.
std::string template_advice(const PreferenceFile& file) {
  return file.chats == 0 ? "" : "; a chat template may leave out what differs, such as reasoning";
}

std::string alike_words(const PreferenceFile& file) {
  return cat(file.alike, " of ", counted(file.size(), "pair"), file.alike == 1 ? " has" : " have",
             " the same answer twice and ", file.alike == 1 ? "teaches" : "teach",
             " no preference");
}

/// A field that other tools write, too: it is read only where it has an effect.
float margin_of(const Json& record, const FormatOptions& options) {
  const Json* margin = find_field(record, "margin", options.columns);
  if (!margin) return 0;
  if (!margin->is_number() || !std::isfinite(margin->get<double>()))
    throw RecordFault{cat("has the margin ", printable(margin->dump(), 60)),
                      "wanted a number: by how much the score of chosen should be above that of "
                      "rejected"};
  return margin->get<float>();
}

/// Reads a file in blocks, as sft does, but keeps or drops both answers of a pair together.
class PreferenceLoader {
 public:
  PreferenceLoader(PreferenceFile& file, const PreferenceSettings& settings,
                   const ExampleEncoder& encoder, int64_t seq_length, bool scored)
      : file_(file),
        settings_(settings),
        encoder_(encoder),
        seq_length_(seq_length),
        scored_(scored),
        options_(settings.records.format_options()),
        bad_(settings.records.on_bad == "skip", settings.records.max_bad) {}

  void run() {
    read_records(file_.path, bad_, [&](Json& record, const std::string& place) {
      ++file_.records;
      take_record(record, place);
      if (block_.size() == kRecordsAtOnce) take_block();
    });
    take_block();
    MT_USER_CHECK(file_.records + bad_.skipped() > 0, ErrorClass::data,
                  cat(printable(file_.path.string()), " has no records"),
                  "wanted one object per line, or a list of objects; is dataset.path right?");
    file_.bad = bad_.skipped();
    file_.records += bad_.skipped() - refused_;
    const std::string in_template =
        cat("in the chat template ", printable(encoder_.template_name()));
    file_.form = file_.chats == 0 ? "as plain text, without a chat template"
                 : texts_ > 0     ? cat("partly as plain text, partly ", in_template)
                                  : in_template;
    if (names_) note_unused(cat(printable(file_.path.string()), " (", file_.format, ")"));
    file_.answers = std::make_shared<const ExampleStore>(std::move(store_));
    MT_USER_CHECK(
        file_.size() > 0, ErrorClass::data,
        cat("no records are left: ", file_.summary(seq_length_)),
        file_.too_long == 0
            ? std::string(
                  "each record needs an answer that is not empty: a message of the assistant, a "
                  "completion, or a text")
            : cat("raise model.seq_length: the shortest of these records needs ", shortest_,
                  " tokens, and all of them ", file_.longest));
  }

 private:
  /// Warnings of settings without effect, and of records that teach nothing or too little.
  void note_unused(const std::string& what) {
    file_.unused = names_->finish(what);
    for (const std::string& warning : {empty_.warning(what, file_.records), spelled_.warning(what)})
      if (!warning.empty()) file_.unused.push_back(warning);
    if (!settings_.records.prompt.empty())
      file_.unused.push_back(
          cat("dataset.prompt has no effect on ", what, ": only alpaca records of sft use it"));
    if (file_.chats == 0)
      for (std::string& warning : settings_.records.unused_templates(what))
        file_.unused.push_back(std::move(warning));
    if (file_.chats > 0 && texts_ > 0)
      file_.unused.push_back(
          cat(what, ": the answers of ", texts_, " of ", counted(texts_ + file_.chats, "record"),
              " (first: ", first_text_,
              ") are texts, which are trained on without the chat template of the others\n  help: "
              "write "
              "these answers as messages, or train on the two kinds in separate runs"));
    if (file_.alike > 0 && file_.alike < file_.size())
      file_.unused.push_back(cat(what, ": ", alike_words(file_),
                                 "\n  help: remove these records (first: ", first_alike_, ")",
                                 template_advice(file_)));
    const auto good = std::count(file_.good.begin(), file_.good.end(), true);
    if (!file_.good.empty() && (good == 0 || good == file_.size()))
      file_.unused.push_back(cat(what, ": all ", counted(file_.size(), "answer"), " are labeled ",
                                 good == 0 ? "bad" : "good",
                                 ", so no good answer is compared with a bad one\n  help: add "
                                 "answers with the label ",
                                 good == 0 ? "true" : "false",
                                 good == 0 ? "" : ", or train on the good ones: dataset=sft"));
  }

  /// The columns that make a record a pair or a label, if its fields have likely names.
  std::string help_for_format(const Json& record) const {
    const auto mapped = [&](const std::vector<const char*>& needed) {
      Columns found;
      for (const char* name : needed)
        if (!find_field(record, name, options_.columns))
          found.emplace(name, likely_field(record, name, options_.columns));
      const bool all = std::ranges::none_of(found, [](const auto& f) { return f.second.empty(); });
      return all ? columns_setting(options_.columns, found) : std::string();
    };
    const bool both = find_field(record, "label", options_.columns) != nullptr;
    for (const auto& needed : std::vector<std::vector<const char*>>{
             {"chosen", "rejected", "prompt"}, {"chosen", "rejected"}, {"label"}})
      if (const std::string columns = both ? "" : mapped(needed); !columns.empty())
        return cat("if these are its answers: ", columns);
    return "set dataset.format to pairs or labels, and dataset.columns where the fields have other "
           "names; to train on answers as they are: dataset=sft objective=tokens";
  }

  std::string null_label(const Json& record) const {
    const std::string field = name_in_file("label", options_.columns);
    const auto found = record.find(field);
    return found != record.end() && found->is_null()
               ? cat(" ('", printable(field, 60), "' is null)")
               : "";
  }

  void take_record(const Json& record, const std::string& place) {
    if (file_.format.empty()) {
      refuse_hiding_columns({&record, 1}, options_.columns, printable(file_.path.string()));
      const bool label = find_field(record, "label", options_.columns) != nullptr;
      const bool pair = find_field(record, "chosen", options_.columns) != nullptr;
      MT_USER_CHECK(
          settings_.format != "auto" || label != pair, ErrorClass::data,
          cat(place, ": has ",
              label ? "both a label and chosen" : "neither a label nor chosen and rejected",
              "; its fields are ", field_names(record), null_label(record)),
          help_for_format(record));
      file_.format = settings_.format != "auto" ? settings_.format : pair ? "pairs" : "labels";
      file_.pairs = file_.format == "pairs";
      names_.emplace(options_, file_.format);
    }
    names_->note(record);
    try {
      Preference preference = read_preference(record, file_.format, options_, place);
      if (scored_ && file_.pairs) preference.margin = margin_of(record, options_);
      block_.push_back(std::move(preference));
      const Preference& read = block_.back();
      const bool chat = read.chosen.kind == Example::Kind::chat;
      if (!chat && texts_ == 0) first_text_ = place;
      ++(chat ? file_.chats : texts_);
      empty_.note(read.rejected && has_empty_answer(*read.rejected) ? *read.rejected : read.chosen);
    } catch (const RecordFault& fault) {
      bad_.reject(place, fault.what, fault.hint);
      ++refused_;
    }
  }

  void take_block() {
    std::vector<Example> examples;
    for (auto& preference : block_) {
      examples.push_back(std::move(preference.chosen));
      if (preference.rejected) examples.push_back(std::move(*preference.rejected));
    }
    for (const Example& example : examples) spelled_.note(encoder_, example);
    const size_t each = file_.pairs ? 2 : 1;
    std::vector<bool> rejected(block_.size());
    auto encoded = encoder_.encode_all(examples, [&](const Example& example, const Error& error) {
      if (error.error_class() != ErrorClass::data) throw error;
      const size_t record = static_cast<size_t>(&example - examples.data()) / each;
      if (rejected[record]) return;
      bad_.reject(example.place, error.message(), error.hint());
      rejected[record] = true;
      ++refused_;
    });
    for (size_t i = 0; i < block_.size(); ++i)
      if (!rejected[i])
        take(std::span(encoded).subspan(i * each, each), block_[i], examples[i * each].place);
    block_.clear();
  }

  void take(std::span<TokenizedExample> answers, const Preference& record,
            const std::string& place) {
    int64_t places = 0;
    for (const auto& answer : answers) {
      places += static_cast<int64_t>(answer.ids.size()) - (scored_ ? 0 : 1);
      if (answer.ids.size() >= 2 &&
          std::count(answer.trained.begin() + 1, answer.trained.end(), 1) > 0)
        continue;
      ++file_.untrained;
      return;
    }
    if (places > seq_length_) {
      MT_USER_CHECK(settings_.too_long == "drop", ErrorClass::data,
                    cat(place, ": has ", places, " tokens; a sample takes ", seq_length_),
                    "raise model.seq_length, or set dataset.too_long=drop");
      ++file_.too_long;
      shortest_ = std::min(shortest_, places);
      file_.longest = std::max(file_.longest, places);
      return;
    }
    if (file_.pairs && answers[0].ids == answers[1].ids && file_.alike++ == 0) first_alike_ = place;
    for (auto& answer : answers)
      store_.add(scored_ ? scored_example(std::move(answer), 0) : std::move(answer));
    file_.places.push_back(place);
    if (!file_.pairs) file_.good.push_back(record.good);
    if (file_.pairs && scored_) file_.margins.push_back(record.margin);
  }

  PreferenceFile& file_;
  const PreferenceSettings& settings_;
  const ExampleEncoder& encoder_;
  int64_t seq_length_;
  bool scored_;
  FormatOptions options_;
  BadRecords bad_;
  int64_t refused_ = 0;  // invalid records that were parsed, and so are counted as records
  EmptyAnswers empty_;
  SpelledTokens spelled_;
  int64_t texts_ = 0;  // records of texts
  std::string first_alike_, first_text_;
  int64_t shortest_ = INT64_MAX;  // tokens of the shortest record that is too long
  std::optional<MappedNames> names_;
  std::vector<Preference> block_;
  ExampleStore store_;
};

}  // namespace

PreferenceFile load_preference_file(const fs::path& path, const PreferenceSettings& settings,
                                    const ExampleEncoder& encoder, int64_t seq_length,
                                    bool scored) {
  PreferenceFile out;
  out.path = path;
  PreferenceLoader(out, settings, encoder, seq_length, scored).run();
  MT_USER_CHECK(
      out.alike < out.size(), ErrorClass::data,
      cat(printable(path.string()), ": ", alike_words(out)),
      cat("is dataset.columns right? chosen and rejected are to be different answers; inspect "
          "the records with mtrain data show",
          template_advice(out)));
  out.digest = record_digest(path);
  return out;
}

Packs preference_packs(const PreferenceFile& file, const std::vector<int32_t>& chosen) {
  Packs out;
  for (int32_t record : chosen) {
    const int32_t first = file.pairs ? 2 * record : record;
    out.items.push_back(first);
    if (file.pairs) out.items.push_back(first + 1);
    out.begin.push_back(static_cast<int64_t>(out.items.size()));
  }
  return out;
}

}  // namespace mtrain::finetune
