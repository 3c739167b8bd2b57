// Texts with classes: reads and encodes them, for a model of scores. Stateless functions over
// values; a ClassFile is immutable and safe from any thread.
//
//   {text, label}: the label is the number of the class, or one of dataset.labels
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/finetune/packed_source.h"
#include "mtrain/finetune/record_file.h"
#include "mtrain/finetune/record_files.h"

namespace mtrain::finetune {

struct MT_API ClassSettings : RecordFiles {
  std::string text_field = "text", label_field = "label", too_long = "truncate", on_bad = "fail";
  int64_t max_bad = 1000;
  std::vector<std::string> labels;
  void bind(Fields& f);
};

struct MT_API ClassFile {
  fs::path path;
  std::string digest;
  int64_t records = 0, bad = 0, too_long = 0;  // too_long: truncated or left out
  std::shared_ptr<const ExampleStore> texts;   // each with its class as the last id
  std::vector<int64_t> of_class;               // records that are left, by class
  int64_t size() const { return texts ? texts->size() : 0; }
  std::string summary(const ClassSettings& settings, int64_t seq_length) const;
};

/// The class of a record's label, less than `classes`: a number, or one of `names`
/// (dataset.labels). Throws Error(data) with its place.
MT_API int32_t class_of(const Json& label, const std::vector<std::string>& names, int64_t classes,
                        const std::string& place);
/// Error(config) unless `names` (dataset.labels) are none, or `classes` different ones.
MT_API void require_class_names(const std::vector<std::string>& names, int64_t classes);
/// The range [begin, end) of ids to remove if there are more than `most`: the end of the text, not
/// the tokens that the tokenizer adds after it.
MT_API std::pair<size_t, size_t> text_to_remove(const std::vector<int32_t>& ids, size_t most,
                                                const Tokenizer& tokenizer);

/// The records of a file, and how many of them were skipped.
struct RecordCount {
  int64_t records = 0, bad = 0;
};
/// Calls take(record, place) for each record of a file. Where it throws Error(data), the record is
/// skipped if `skip` is true, at most `max_bad` of them.
MT_API RecordCount
take_records(const fs::path& path, bool skip, int64_t max_bad,
             const std::function<void(Json& record, const std::string& place)>& take);

/// Texts are encoded as by transformers' tokenizers: with the special tokens that the tokenizer
/// adds around a text, such as <s>, and no other end. Throws Error(data) with file and line, also
/// when no record is left. `classes`: model.labels.
MT_API ClassFile load_class_file(const fs::path& path, const ClassSettings& settings,
                                 const Tokenizer& tokenizer, int64_t seq_length, int64_t classes);

}  // namespace mtrain::finetune
