#include "mtrain/finetune/classes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/text.h"
#include "mtrain/finetune/record_fields.h"

namespace mtrain::finetune {

void ClassSettings::bind(Fields& f) {
  f.objective(Dataset::kClasses);
  bind_files(f, "records for training: a file of JSON lines or of one JSON list",
             "data/reviews.jsonl");
  f("labels", labels,
    "the names of the classes, in the order of their numbers, as many as model.labels; empty: "
    "records have numbers from 0 on")
      .example("[negative, positive]")
      .resume(ResumeClass::impossible);
  f("text_field", text_field, "the field of a record that is its text");
  f("label_field", label_field, "the field of a record that is the name or number of its class");
  f("too_long", too_long,
    "action at a text that does not fit into a sample; truncate: its beginning is used, drop: "
    "leave the record out, fail: stop")
      .one_of({"truncate", "drop", "fail"});
  f("on_bad", on_bad, "action at a record that cannot be read; fail: stop, skip: leave it out")
      .one_of({"fail", "skip"});
  f("max_bad", max_bad, "on_bad=skip: maximum number of skipped records; more are an error")
      .min(0)
      .resume(ResumeClass::safe);
}

std::string ClassFile::summary(const ClassSettings& settings, int64_t seq_length) const {
  std::string out = cat(printable(path.string()), ": ", size(), " of ", counted(records, "record"));
  for (size_t i = 0; i < of_class.size() && of_class.size() <= 10; ++i)
    out += cat(i == 0 ? "; of class " : ", ",
               settings.labels.empty() ? std::to_string(i) : printable(settings.labels[i], 40), " ",
               of_class[i]);
  if (too_long > 0)
    out +=
        cat("; ", too_long,
            settings.too_long == "truncate" ? " truncated to " : " left out for having more than ",
            seq_length, " tokens");
  if (bad > 0) out += cat("; ", bad, " invalid ones left out");
  return out;
}

namespace {

/// A fault of a record's content.
[[noreturn]] void refuse(const std::string& place, const std::string& what,
                         const std::string& hint) {
  throw Error(ErrorClass::data, cat(place, ": ", what), hint);
}

const Json& field_of(const Json& record, const std::string& name, const char* setting,
                     const std::string& place) {
  const auto found = record.find(name);
  if (found != record.end() && found->is_null())
    refuse(place, cat("has no value in the field '", printable(name, 60), "' (null)"),
           "give it one, or leave such records out: dataset.on_bad=skip");
  if (found != record.end()) return *found;
  const bool text = setting == std::string_view("text_field");
  const std::string likely = likely_field(record, text ? "text" : "label", {});
  refuse(place,
         cat("has no field '", printable(name, 60), "'; its fields are ", field_names(record)),
         likely.empty() ? cat("set dataset.", setting, " to the field's name in the file")
                        : cat("if '", printable(likely, 60), "' is it: dataset.", setting, "=",
                              printable(likely, 60)));
}

}  // namespace

void require_class_names(const std::vector<std::string>& names, int64_t classes) {
  MT_USER_CHECK(names.empty() || std::ssize(names) == classes, ErrorClass::config,
                cat("dataset.labels has ", names.size(), " names, and model.labels is ", classes),
                cat("set model.labels=", names.size(),
                    "; weights that have another number of scores cannot start such a model"));
  for (size_t i = 0; i < names.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      MT_USER_CHECK(names[i] != names[k], ErrorClass::config,
                    cat("dataset.labels has '", printable(names[i], 60),
                        "' twice, for the classes ", k, " and ", i),
                    "each class needs a name of its own");
}

std::pair<size_t, size_t> text_to_remove(const std::vector<int32_t>& ids, size_t most,
                                         const Tokenizer& tokenizer) {
  std::vector<int32_t> added;  // around an empty text
  call_plugin(tokenizer, "encode()",
              [&] { tokenizer.encode_with("", {.add_special = true}, added, nullptr); });
  const auto differs = std::mismatch(added.rbegin(), added.rend(), ids.rbegin(), ids.rend());
  const auto after = std::min(static_cast<size_t>(differs.first - added.rbegin()), most - 1);
  return {most - after, ids.size() - after};
}

RecordCount take_records(const fs::path& path, bool skip, int64_t max_bad,
                         const std::function<void(Json& record, const std::string& place)>& take) {
  RecordCount out;
  BadRecords bad(skip, max_bad);
  read_records(path, bad, [&](Json& record, const std::string& place) {
    try {
      take(record, place);
      ++out.records;
    } catch (const Error& error) {
      if (error.error_class() != ErrorClass::data || !skip) throw;
      bad.reject(place, error.message(), error.hint());
    }
  });
  out.bad = bad.skipped();
  out.records += out.bad;
  return out;
}

int32_t class_of(const Json& label, const std::vector<std::string>& names, int64_t classes,
                 const std::string& place) {
  if (label.is_string()) {
    const auto name = label.get<std::string>();
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      refuse(place,
             cat("has the label '", printable(name, 60), "', which is not in dataset.labels (",
                 names.empty() ? "empty" : printable(join(names, ", "), 200), ")"),
             "dataset.labels lists the names of all classes, in the order of their numbers");
    return static_cast<int32_t>(found - names.begin());
  }
  const bool number = label.is_number_integer();
  if (!number || label.get<int64_t>() < 0 || label.get<int64_t>() >= classes)
    refuse(place,
           cat("has the label ", printable(label.dump(), 60),
               ", wanted a name or a whole number "
               "from 0 to ",
               classes - 1),
           "model.labels is the number of classes");
  return static_cast<int32_t>(label.get<int64_t>());
}

namespace {

class ClassLoader {
 public:
  ClassLoader(ClassFile& file, const ClassSettings& settings, const Tokenizer& tokenizer,
              int64_t seq_length, int64_t classes)
      : file_(file),
        settings_(settings),
        tokenizer_(tokenizer),
        seq_length_(seq_length),
        classes_(classes) {
    file_.of_class.assign(static_cast<size_t>(classes), 0);
  }

  void run() {
    const RecordCount count =
        take_records(file_.path, settings_.on_bad == "skip", settings_.max_bad,
                     [&](Json& record, const std::string& place) { take(record, place); });
    file_.records = count.records, file_.bad = count.bad;
    file_.texts = std::make_shared<const ExampleStore>(std::move(store_));
  }

 private:
  void take(const Json& record, const std::string& place) {
    const Json& text = field_of(record, settings_.text_field, "text_field", place);
    if (!text.is_string())
      refuse(place,
             cat("has ", text.type_name(), " as '", printable(settings_.text_field, 60), "'"),
             "wanted a text");
    const int32_t number = class_of(field_of(record, settings_.label_field, "label_field", place),
                                    settings_.labels, classes_, place);
    TokenizedExample example;
    call_plugin(tokenizer_, "encode()", [&] {
      tokenizer_.encode_with(text.get<std::string>(), {.add_special = true}, example.ids, nullptr);
    });
    check_ids(tokenizer_, example.ids);
    if (example.ids.empty()) refuse(place, "has an empty text", "leave the record out");
    const auto most = static_cast<size_t>(seq_length_);
    if (example.ids.size() > most) {
      if (settings_.too_long == "fail")
        refuse(place, cat("has ", example.ids.size(), " tokens; a sample takes ", most),
               "raise model.seq_length, or set dataset.too_long to truncate or drop");
      ++file_.too_long;
      if (settings_.too_long == "drop") return;
      const auto [begin, end] = text_to_remove(example.ids, most, tokenizer_);
      example.ids.erase(example.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                        example.ids.begin() + static_cast<std::ptrdiff_t>(end));
    }
    ++file_.of_class[static_cast<size_t>(number)];
    store_.add(scored_example(std::move(example), number));
  }

  ClassFile& file_;
  const ClassSettings& settings_;
  const Tokenizer& tokenizer_;
  int64_t seq_length_, classes_;
  ExampleStore store_;
};

}  // namespace

ClassFile load_class_file(const fs::path& path, const ClassSettings& settings,
                          const Tokenizer& tokenizer, int64_t seq_length, int64_t classes) {
  ClassFile out;
  out.path = path;
  ClassLoader(out, settings, tokenizer, seq_length, classes).run();
  MT_USER_CHECK(out.size() > 0, ErrorClass::data,
                cat("no records are left: ", out.summary(settings, seq_length)),
                "check dataset.path and dataset.too_long");
  out.digest = record_digest(path);
  return out;
}

}  // namespace mtrain::finetune
