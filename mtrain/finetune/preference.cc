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
namespace {

const Json& needed(const Json& record, const char* name, const FormatOptions& options) {
  if (const Json* found = find_field(record, name, options.columns)) return *found;
  throw RecordFault{
      missing_field(record, name, options.columns),
      "wanted chosen and rejected, or a label; dataset.columns maps them if they have other names"};
}

/// The text that two answers begin with, which is their prompt. It ends before the first word that
/// differs, since parts of words have other tokens; the blank before that word belongs to the
/// answers, as in trl's extract_prompt(). No answer becomes empty. Empty: they begin differently.
std::string common_beginning(const std::string& good, const std::string& bad) {
  constexpr const char* kBlanks = " \t\r\n";
  const std::string_view shared(
      good.data(), static_cast<size_t>(std::ranges::mismatch(good, bad).in1 - good.begin()));
  size_t end = shared.find_last_of(kBlanks) + 1;  // 0: nowhere
  while (end > 0 && (good.find_first_not_of(kBlanks, end) == std::string::npos ||
                     bad.find_first_not_of(kBlanks, end) == std::string::npos)) {
    const size_t word = shared.find_last_not_of(kBlanks, end - 1);
    end = word == std::string::npos ? 0 : shared.find_last_of(kBlanks, word) + 1;
  }
  if (end > 0 && shared[end - 1] == ' ') --end;
  const std::string out(shared.substr(0, end));
  return trim(out).empty() ? "" : out;
}

/// The prompt of two answers that are texts.
std::string prompt_of_texts(const Json& record, const Json& chosen, const Json& rejected,
                            const FormatOptions& options) {
  if (!chosen.is_string() || !rejected.is_string())
    throw RecordFault{"has a prompt and an answer that are not both texts",
                      "wanted texts, or lists of messages"};
  const auto mapped = options.columns.find("prompt");
  const bool none = mapped != options.columns.end() && mapped->second == kNoField;
  const auto texts = std::ranges::count_if(record, [](const Json& v) { return v.is_string(); });
  // Another text may be the prompt under another name.
  if (!none && (mapped != options.columns.end() || texts > 2))
    throw RecordFault{missing_field(record, "prompt", options.columns),
                      "wanted a prompt: if it has another name, dataset.columns='{prompt: NAME}'; "
                      "if chosen and rejected begin with it, dataset.columns='{prompt: none}'"};
  const std::string out = common_beginning(chosen.get_ref<const std::string&>(),
                                           rejected.get_ref<const std::string&>());
  if (out.empty())
    throw RecordFault{"has no prompt, and chosen and rejected have no first words in common",
                      "write {\"prompt\": …, \"chosen\": …, \"rejected\": …}, or chosen and "
                      "rejected that both begin with the prompt"};
  return out;
}

/// The messages as a list; `value` is a list or a single message.
Json messages_of(const Json& value) {
  if (value.is_object()) return Json::array({value});
  if (value.is_array()) return value;
  throw RecordFault{cat("has ", value.type_name(), " where messages are required"),
                    "wanted a message or a list of them"};
}

/// The messages before the answers; empty when the answers contain them.
Json messages_before(const Json& record, const FormatOptions& options) {
  for (const char* name : {"prompt", "conversations", "messages"})
    if (const Json* found = find_field(record, name, options.columns); found && found->is_array())
      return *found;
  return Json::array();
}

/// Whether messages have the prompt, a text, as one of the user's; false: they have none of the
/// user.
bool has_prompt(const Conversation& messages, std::string_view prompt) {
  const std::vector<std::string> users = messages.texts_of("user");
  if (users.empty()) return false;
  if (std::ranges::any_of(users, [&](const auto& user) { return trim(user) == trim(prompt); }))
    return true;
  throw RecordFault{
      cat("has the prompt '", printable(prompt, 60), "', but the user's messages differ from it: '",
          printable(users.front(), 60), "'"),
      "leave the prompt out, or messages of the user; dataset.columns={prompt: none} "
      "ignores it"};
}

/// Adds a prompt that is a text to the messages before the answers, as the user's, unless these or
/// the answers have it already.
void add_prompt_text(const Json& record, const FormatOptions& options,
                     const std::vector<const Json*>& answers, Json& before) {
  const Json* text = find_field(record, "prompt", options.columns);
  if (!text || !text->is_string() || *text == "" || (before.empty() && answers.empty())) return;
  const auto& prompt = text->get_ref<const std::string&>();
  Conversation context(options);
  context.add_all(before, "prompt");
  if (has_prompt(context, prompt)) return;
  size_t with_prompt = 0;
  for (const Json* answer : answers) {
    Conversation said(options);
    said.add_all(*answer, "answer");
    const bool has = has_prompt(said, prompt);
    with_prompt += has;
    if (!has && said.begins_with("system"))
      throw RecordFault{"has a prompt that is a text, and answers that begin with a system message",
                        "write the prompt as a list of messages, with the system message"};
  }
  if (with_prompt == answers.size() && with_prompt > 0) return;
  if (with_prompt > 0)
    throw RecordFault{
        "has a prompt; one of its answers has the user's message, and the other does "
        "not",
        "give both answers the user's message, or neither"};
  before.insert(before.begin() + (context.begins_with("system") ? 1 : 0),
                Json{{"role", "user"}, {"content", prompt}});
}

Example answer(const Json& record, const Json& context, const Json& words, size_t alike,
               const FormatOptions& options) {
  Conversation out(options);
  if (const Json* system = find_field(record, "system", options.columns);
      system && system->is_string() && !system->get<std::string>().empty())
    out.add_text("system", system->get<std::string>(), false);
  out.add_all(context, "prompt", false);
  for (size_t i = 0; i < words.size(); ++i) out.add(words[i], i >= alike);
  if (out.empty()) throw RecordFault{"has an answer without messages", ""};
  if (const Json* tools = find_field(record, "tools", options.columns)) out.set_tools(*tools);
  return std::move(out).finish();
}

Example text_answer(const Json& prompt, const Json& words) {
  if (!prompt.is_string() || !words.is_string())
    throw RecordFault{"has a prompt and an answer that are not both texts",
                      "wanted texts, or lists of messages"};
  Example out;
  out.kind = Example::Kind::prompted;
  out.texts = {{prompt.get<std::string>(), false}, {words.get<std::string>(), true}};
  return out;
}

/// Refuses two conversations whose first difference is a message that the model does not write.
void require_one_prompt(const Json& good, const Json& bad, size_t alike) {
  for (const Json* messages : {&good, &bad}) {
    if (alike >= messages->size() || !(*messages)[alike].is_object()) continue;
    for (const char* key : {"role", "from"}) {
      const auto role = (*messages)[alike].find(key);
      if (role == (*messages)[alike].end()) continue;
      for (const char* other : {"user", "human", "system"})
        if (*role == other)
          throw RecordFault{cat("has two conversations that differ in message ", alike + 1,
                                ", which is one of the ", other),
                            "chosen and rejected are answers to one prompt: their messages before "
                            "the answers are the same"};
    }
  }
}

Preference read_pair(const Json& record, const FormatOptions& options) {
  refuse_alpaca_fields(record, options.columns);
  const Json &chosen = needed(record, "chosen", options),
             &rejected = needed(record, "rejected", options);
  if (chosen.is_string()) {
    refuse_with_texts(record, options.columns);
    if (const Json* prompt = find_field(record, "prompt", options.columns))
      return {text_answer(*prompt, chosen), text_answer(*prompt, rejected)};
    const std::string prompt = prompt_of_texts(record, chosen, rejected, options);
    auto answer_of = [&](const Json& text) {
      return text_answer(prompt, text.get_ref<const std::string&>().substr(prompt.size()));
    };
    return {answer_of(chosen), answer_of(rejected)};
  }
  const Json good = messages_of(chosen), bad = messages_of(rejected);
  Json context = messages_before(record, options);
  add_prompt_text(record, options, {&good, &bad}, context);
  size_t alike = 0;  // common first messages are the prompt, unless a prompt is given
  while (context.empty() && alike < std::min(good.size(), bad.size()) && good[alike] == bad[alike])
    ++alike;
  if (context.empty()) require_one_prompt(good, bad, alike);
  if (context.empty() && alike > 0 && good == bad) --alike;  // the same answer twice, not two empty
  return {answer(record, context, good, alike, options),
          answer(record, context, bad, alike, options)};
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

Preference read_label(const Json& record, const FormatOptions& options) {
  refuse_alpaca_fields(record, options.columns);
  const Json& label = needed(record, "label", options);
  if (!label.is_boolean())
    throw RecordFault{cat("has the label ",
                          printable(label.dump(-1, ' ', false, Json::error_handler_t::replace), 40),
                          ", which is neither true nor false"),
                      "a label is true for a good answer and false for a bad one, without quotes"};
  Preference out;
  out.good = label.get<bool>();
  const Json *completion = find_field(record, "completion", options.columns),
             *prompt = find_field(record, "prompt", options.columns);
  if (completion && completion->is_string()) {
    refuse_with_texts(record, options.columns);
    out.chosen = text_answer(prompt ? *prompt : Json(""), *completion);
    return out;
  }
  Json context = messages_before(record, options);
  if (completion) {
    const Json words = messages_of(*completion);
    if (words.empty()) throw RecordFault{"has an answer without messages", ""};
    add_prompt_text(record, options, {&words}, context);
    out.chosen = answer(record, context, words, 0, options);
    return out;
  }
  add_prompt_text(record, options, {}, context);
  if (context.empty()) throw RecordFault{"has a label but neither messages nor a completion", ""};
  out.chosen = answer(record, Json::array(), context, context.size() - 1, options);
  return out;
}

}  // namespace

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

Preference read_preference(const Json& record, const std::string& format,
                           const FormatOptions& options, const std::string& place) {
  Preference out = format == "labels" ? read_label(record, options) : read_pair(record, options);
  out.chosen.place = place;
  if (out.rejected) out.rejected->place = place;
  return out;
}

std::string PreferenceFile::summary(int64_t seq_length) const {
  std::string out = cat(printable(path.string()), " (", format, "): ", size(), " of ",
                        counted(records, "record"));
  if (!pairs) out += cat(", ", std::count(good.begin(), good.end(), true), " of them good");
  if (too_long > 0)
    out += cat("; ", too_long, " left out for having more than ", seq_length, " tokens");
  if (untrained > 0) out += cat("; ", untrained, " left out because an answer is empty");
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
               ? std::string("remove the records with an empty answer, or complete them")
               : cat("raise model.seq_length: the longest record needs ", longest, " tokens"));
}

namespace {

std::string alike_words(const PreferenceFile& file) {
  return cat(file.alike, " of ", counted(file.size(), "pair"), file.alike == 1 ? " has" : " have",
             " the same answer twice and ", file.alike == 1 ? "teaches" : "teach",
             " no preference");
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
    file_.bad = bad_.skipped();
    file_.records += bad_.skipped() - refused_;
    const std::string in_template =
        cat("in the chat template ", printable(encoder_.template_name()));
    file_.form = file_.chats == 0 ? "as plain text, without a chat template"
                 : texts_ > 0     ? cat("partly as plain text, partly ", in_template)
                                  : in_template;
    if (names_) note_unused(cat(printable(file_.path.string()), " (", file_.format, ")"));
    file_.answers = std::make_shared<const ExampleStore>(std::move(store_));
    MT_USER_CHECK(file_.size() > 0, ErrorClass::data,
                  cat("no records are left: ", file_.summary(seq_length_)),
                  file_.too_long == 0
                      ? std::string("inspect the records with mtrain data show")
                      : cat("raise model.seq_length: the shortest of these records needs ",
                            shortest_, " tokens, and all of them ", file_.longest));
  }

 private:
  /// Warnings of settings without effect, and of records that teach nothing or too little.
  void note_unused(const std::string& what) {
    file_.unused = names_->finish(what);
    if (std::string warning = empty_.warning(what, file_.records); !warning.empty())
      file_.unused.push_back(std::move(warning));
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
                                 "\n  help: remove these records (first: ", first_alike_, ")"));
    const auto good = std::count(file_.good.begin(), file_.good.end(), true);
    if (!file_.good.empty() && (good == 0 || good == file_.size()))
      file_.unused.push_back(cat(what, ": all ", counted(file_.size(), "answer"), " are labeled ",
                                 good == 0 ? "bad" : "good",
                                 ", so no good answer is compared with a bad one\n  help: add "
                                 "answers with the label ",
                                 good == 0 ? "true" : "false",
                                 good == 0 ? "" : ", or train on the good ones: dataset=sft"));
  }

  void take_record(const Json& record, const std::string& place) {
    if (file_.format.empty()) {
      const bool label = find_field(record, "label", options_.columns) != nullptr;
      const bool pair = find_field(record, "chosen", options_.columns) != nullptr;
      MT_USER_CHECK(
          settings_.format != "auto" || label != pair, ErrorClass::data,
          cat(place, ": has ",
              label ? "both a label and chosen" : "neither a label nor chosen and rejected",
              "; its fields are ", field_names(record)),
          "set dataset.format to pairs or labels, and dataset.columns where the fields have other "
          "names");
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
      "is dataset.columns right? chosen and rejected are to be different answers; inspect "
      "the records with mtrain data show");
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
