#include "mtrain/finetune/token_classes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/text.h"
#include "mtrain/finetune/classes.h"
#include "mtrain/finetune/record_fields.h"

namespace mtrain::finetune {

void LabeledSettings::bind(Fields& f) {
  f.objective(Dataset::kTokenClasses);
  bind_files(f, "records for training: a file of JSON lines or of one JSON list",
             "data/entities.jsonl");
  f("labels", labels,
    "the names of the classes, in the order of their numbers, as many as model.labels; empty: "
    "records have numbers from 0 on")
      .example("[O, B-PER, I-PER]")
      .resume(ResumeClass::impossible);
  f("tokens_field", tokens_field, "the field of a record that is the list of its words");
  f("labels_field", labels_field,
    "the field of a record that is the list of its words' classes; empty: labels, ner_tags or tags")
      .example("pos_tags");
  f("separator", separator, "the text between two words");
  f("labeled", labeled,
    "which tokens of a word get its class; first: only the first token, as usual with "
    "transformers, all: each token, with I-PER after the first token of B-PER")
      .one_of({"first", "all"});
  f("packing", packing,
    "none: a sample is one record, offline: a sample is several short records, each a sequence of "
    "its own")
      .one_of({"none", "offline"});
  f("too_long", too_long,
    "action at a record that does not fit into a sample; truncate: its beginning is used, drop: "
    "leave the record out, fail: stop")
      .one_of({"truncate", "drop", "fail"});
  f("on_bad", on_bad, "action at a record that cannot be read; fail: stop, skip: leave it out")
      .one_of({"fail", "skip"});
  f("max_bad", max_bad, "on_bad=skip: maximum number of skipped records; more are an error")
      .min(0)
      .resume(ResumeClass::safe);
}

std::string LabeledFile::summary(const LabeledSettings& settings, int64_t seq_length) const {
  std::string out = cat(printable(path.string()), ": ", size(), " of ", counted(records, "record"),
                        ", ", counted(words, "word"), " with a class");
  for (size_t i = 0; i < of_class.size() && of_class.size() <= 20; ++i)
    out += cat(i == 0 ? "; tokens of class " : ", ",
               settings.labels.empty() ? std::to_string(i) : printable(settings.labels[i], 40), " ",
               of_class[i]);
  if (lost_words > 0)
    out +=
        cat("; ", counted(lost_words, "word"), " without a token, whose class is not trained on");
  if (too_long > 0)
    out +=
        cat("; ", too_long,
            settings.too_long == "truncate" ? " truncated to " : " left out for having more than ",
            seq_length, " tokens");
  if (truncated_labeled > 0)
    out += cat(", without ", truncated_labeled, " of the tokens that have a class");
  if (unlabeled > 0) out += cat("; ", unlabeled, " left out because no token has a class");
  if (bad > 0) out += cat("; ", bad, " invalid ones left out");
  return out;
}

void LabeledFile::log_summary(const LabeledSettings& settings, int64_t seq_length) const {
  if (truncated_labeled == 0) return log_info(summary(settings, seq_length));
  log_warn(summary(settings, seq_length),
           "\n  help: raise model.seq_length, split the long records, or leave them out with "
           "dataset.too_long=drop");
}

LabeledText encode_words(const std::vector<std::string>& words, const std::vector<int32_t>& classes,
                         const std::string& separator, std::span<const int32_t> further,
                         const Tokenizer& tokenizer, int64_t& lost) {
  MT_CHECK(words.size() == classes.size(), words.size(), " words, ", classes.size(), " classes");
  std::string text;
  std::vector<TextSpan> places;
  for (const std::string& word : words) {
    if (!places.empty()) text += separator;
    const auto begin = static_cast<uint32_t>(text.size());
    places.push_back({begin, static_cast<uint32_t>((text += word).size())});
  }
  LabeledText out;
  std::vector<TextSpan> spans;
  call_plugin(tokenizer, "encode()",
              [&] { tokenizer.encode_with(text, {.add_special = true}, out.ids, &spans); });
  check_ids(tokenizer, out.ids);
  std::vector<bool> given(words.size());
  for (const TextSpan& span : spans) {
    int32_t own = kIgnoredTarget;
    auto word = static_cast<size_t>(
        std::partition_point(places.begin(), places.end(),
                             [&](const TextSpan& place) { return place.end <= span.begin; }) -
        places.begin());
    for (; own == kIgnoredTarget && word < words.size() && places[word].begin < span.end; ++word) {
      if (places[word].begin == places[word].end) continue;
      const bool first = !given[word] || classes[word] == kIgnoredTarget;
      if (first || !further.empty())
        own = first ? classes[word] : further[static_cast<size_t>(classes[word])];
      given[word] = true;
    }
    out.classes.push_back(own);
  }
  for (size_t i = 0; i < words.size(); ++i)
    lost += classes[i] != kIgnoredTarget && !given[i] ? 1 : 0;
  return out;
}

namespace {

class LabeledLoader {
 public:
  LabeledLoader(LabeledFile& file, const LabeledSettings& settings, const Tokenizer& tokenizer,
                int64_t seq_length, int64_t classes)
      : file_(file),
        settings_(settings),
        tokenizer_(tokenizer),
        most_(static_cast<size_t>(seq_length)),
        classes_(classes) {
    file_.of_class.assign(static_cast<size_t>(classes), 0);
    if (settings.labeled == "all") further_ = further_classes();
  }

  void run() {
    const RecordCount count =
        take_records(file_.path, settings_.on_bad == "skip", settings_.max_bad,
                     [&](Json& record, const std::string& place) { take(record, place); });
    file_.records = count.records, file_.bad = count.bad;
    file_.texts = std::make_shared<const std::vector<LabeledText>>(std::move(texts_));
  }

 private:
  /// Each class is also that of a word's other tokens, but that of B-PER is I-PER, if there is one.
  std::vector<int32_t> further_classes() const {
    std::vector<int32_t> out(static_cast<size_t>(classes_));
    std::iota(out.begin(), out.end(), 0);
    for (size_t i = 0; i < settings_.labels.size(); ++i) {
      const std::string& name = settings_.labels[i];
      if (!name.starts_with("B-")) continue;
      const auto inside = std::ranges::find(settings_.labels, cat("I-", name.substr(2)));
      if (inside != settings_.labels.end())
        out[i] = static_cast<int32_t>(inside - settings_.labels.begin());
    }
    return out;
  }

  [[noreturn]] static void refuse_words(const std::string& place, const std::string& what,
                                        const std::string& hint) {
    throw Error(ErrorClass::data, cat(place, ": ", what), hint);
  }

  const Json& list_of(const Json& record, const std::string& name, const char* setting,
                      const std::string& place) const {
    const auto found = record.find(name);
    if (found == record.end())
      refuse_words(
          place,
          cat("has no field '", printable(name, 60), "'; its fields are ", field_names(record)),
          cat("set dataset.", setting, " to the field's name in the file"));
    if (!found->is_array())
      refuse_words(place, cat("has ", found->type_name(), " as '", printable(name, 60), "'"),
                   "wanted a list, with an element for each word");
    return *found;
  }

  /// The field of the classes: the setting's, or the only usual one that the record has.
  std::string labels_field(const Json& record, const std::string& place) const {
    if (!settings_.labels_field.empty()) return settings_.labels_field;
    std::vector<std::string> there;
    for (const char* name : {"labels", "ner_tags", "tags"})
      if (record.contains(name)) there.emplace_back(name);
    if (there.size() > 1)
      refuse_words(place, cat("has the fields ", join(there, " and ")),
                   "dataset.labels_field names the one to learn");
    return there.empty() ? "labels" : there[0];
  }

  std::vector<int32_t> classes_of(const Json& list, const std::string& place) const {
    std::vector<int32_t> out;
    for (const Json& label : list) {
      const bool none = label.is_null() || (label.is_number_integer() && label == -100);
      out.push_back(none ? kIgnoredTarget : class_of(label, settings_.labels, classes_, place));
    }
    return out;
  }

  void take(const Json& record, const std::string& place) {
    const std::string field = labels_field(record, place);
    const Json &list = list_of(record, settings_.tokens_field, "tokens_field", place),
               &labels = list_of(record, field, "labels_field", place);
    if (list.size() != labels.size())
      refuse_words(place,
                   cat("has ", counted(static_cast<int64_t>(list.size()), "word"), " in '",
                       printable(settings_.tokens_field, 60), "' and ", labels.size(), " in '",
                       printable(field, 60), "'"),
                   "each word has a class; null and -100 are none");
    std::vector<std::string> words;
    for (const Json& word : list) {
      if (!word.is_string())
        refuse_words(place, cat("has ", word.type_name(), " as a word"), "wanted a text");
      words.push_back(word.get<std::string>());
    }
    if (words.empty()) refuse_words(place, "has no words", "leave the record out");
    const std::vector<int32_t> classes = classes_of(labels, place);
    int64_t lost = 0;
    LabeledText text =
        encode_words(words, classes, settings_.separator, further_, tokenizer_, lost);
    if (text.ids.size() > most_ && !shorten(text, place)) return;
    if (std::ranges::all_of(text.classes, [](int32_t c) { return c == kIgnoredTarget; })) {
      ++file_.unlabeled;
      return;
    }
    file_.lost_words += lost;
    for (const int32_t one : classes) file_.words += one != kIgnoredTarget ? 1 : 0;
    for (const int32_t one : text.classes)
      if (one != kIgnoredTarget) ++file_.of_class[static_cast<size_t>(one)];
    texts_.push_back(std::move(text));
  }

  /// Removes the end of the text, not the tokens that the tokenizer adds after it; false: the
  /// record is left out.
  bool shorten(LabeledText& text, const std::string& place) {
    if (settings_.too_long == "fail")
      refuse_words(place, cat("has ", text.ids.size(), " tokens; a sample takes ", most_),
                   "raise model.seq_length, or set dataset.too_long to truncate or drop");
    ++file_.too_long;
    if (settings_.too_long == "drop") return false;
    const auto [begin, end] = text_to_remove(text.ids, most_, tokenizer_);
    for (size_t i = begin; i < end; ++i)
      file_.truncated_labeled += text.classes[i] != kIgnoredTarget ? 1 : 0;
    for (std::vector<int32_t>* one : {&text.ids, &text.classes})
      one->erase(one->begin() + static_cast<std::ptrdiff_t>(begin),
                 one->begin() + static_cast<std::ptrdiff_t>(end));
    return true;
  }

  LabeledFile& file_;
  const LabeledSettings& settings_;
  const Tokenizer& tokenizer_;
  size_t most_;
  int64_t classes_;
  std::vector<int32_t> further_;  // by class, that of a word's other tokens; empty: none
  std::vector<LabeledText> texts_;
};

}  // namespace

LabeledFile load_labeled_file(const fs::path& path, const LabeledSettings& settings,
                              const Tokenizer& tokenizer, int64_t seq_length, int64_t classes) {
  LabeledFile out;
  out.path = path;
  LabeledLoader(out, settings, tokenizer, seq_length, classes).run();
  MT_USER_CHECK(out.size() > 0, ErrorClass::data,
                cat("no records are left: ", out.summary(settings, seq_length)),
                "check dataset.path and dataset.too_long");
  out.digest = record_digest(path);
  return out;
}

LabeledSource::LabeledSource(std::shared_ptr<const std::vector<LabeledText>> texts, Packs packs,
                             SampleOrder order, int32_t pad_id)
    : texts_(std::move(texts)),
      packs_(std::move(packs)),
      order_(order),
      pad_id_(pad_id),
      size_(order.size(packs_.size())) {}

void LabeledSource::get(int64_t index, Sample& out) const {
  MT_CHECK(index >= 0 && index < size_, "sample ", index, " of ", size_);
  out.starts.clear();
  size_t at = 0;
  for (const int32_t item : packs_[order_.item(index, packs_.size())]) {
    const LabeledText& text = (*texts_)[static_cast<size_t>(item)];
    const size_t count = text.ids.size();
    MT_CHECK(at + count <= out.tokens.size(), "a text of ", count, " at ", at);
    const auto offset = static_cast<std::ptrdiff_t>(at);
    out.starts.push_back(static_cast<int32_t>(at));
    std::ranges::copy(text.ids, out.tokens.begin() + offset);
    std::ranges::copy(text.classes, out.targets.begin() + offset);
    std::iota(out.positions.begin() + offset,
              out.positions.begin() + offset + static_cast<std::ptrdiff_t>(count), 0);
    at += count;
  }
  write_padding(at, pad_id_, out);
}

}  // namespace mtrain::finetune
