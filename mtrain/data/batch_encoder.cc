#include "mtrain/data/batch_encoder.h"

#include <algorithm>
#include <span>

#include "mtrain/base/error.h"
#include "mtrain/base/plugin_call.h"

namespace mtrain {

BatchEncoder::BatchEncoder(const Tokenizer& tokenizer, const PrepareOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      json_(options.json_keys),
      texts_(options.json_keys.size()) {
  if (options.append_eod) eod_ = tokenizer.eod();
  if (eod_) check_ids(tokenizer, {&*eod_, 1});
  if (options.split_sentences) sentences_.emplace();
}

EncodedBatch BatchEncoder::encode(const InputBatch& batch) {
  EncodedBatch out{.source = batch.source,
                   .fields = std::vector<EncodedField>(texts_.size()),
                   .bad = batch.bad,
                   .file_bytes = batch.file_bytes,
                   .text_bytes = batch.text_bytes};
  for (auto& field : out.fields) field.ids.reserve(batch.bytes.size() / 3);
  for (const auto& item : batch.items) {
    if (!batch.json)
      texts_[0].assign(1, batch.text(item));
    else if (!read_line(batch, item, out.bad))
      continue;
    add_document(out.fields, item.line, out.bad);
    if (options_.on_bad == OnBad::fail && !out.bad.empty()) break;
  }
  return out;
}

/// Extracts the texts of a line of JSON; false if the line is invalid.
bool BatchEncoder::read_line(const InputBatch& batch, const InputBatch::Item& item,
                             std::vector<BadLine>& bad) {
  std::string_view line = batch.text(item);
  bool found = json_.read_fast(line);
  if (!found) {
    const bool repair = options_.on_bad == OnBad::replace;
    size_t at = 0;
    if (!valid_utf8(line, &at)) {
      bad.push_back({item.line, repair, cat("is not valid UTF-8 at byte ", at, " of the line"),
                     "convert the file to UTF-8, or use --bad-lines replace or --bad-lines skip"});
      if (!repair) return false;
      line = repaired_ = repair_utf8(line);
    }
    if (repair && repair_surrogates(line, escaped_)) {
      bad.push_back({item.line, true, "has half a surrogate pair", ""});
      line = escaped_;
    }
    if (std::string fault = json_.read_exactly(line); !fault.empty()) {
      bad.push_back(
          {item.line, false, std::move(fault),
           cat("each line is an object like {\"", printable(options_.json_keys[0]),
               "\": \"…\"}; --json-key NAME takes the text of another field; conversations, and "
               "prompts with answers, need no preparation: dataset=sft reads them; the "
               "objects "
               "of a list become lines with `jq -c '.[]'`")});
      return false;
    }
  }
  for (size_t k = 0; k < texts_.size(); ++k) texts_[k] = json_.texts(k);
  return true;
}

/// Adds the document in texts_; reports it as bad when the tokenizer refuses it.
void BatchEncoder::add_document(std::vector<EncodedField>& fields, int64_t line,
                                std::vector<BadLine>& bad) {
  std::vector<std::pair<size_t, size_t>> before;
  for (const auto& field : fields) before.emplace_back(field.ids.size(), field.lengths.size());
  try {
    for (size_t k = 0; k < fields.size(); ++k) encode_texts(texts_[k], fields[k]);
  } catch (const Error& error) {
    if (error.error_class() != ErrorClass::data) throw;
    for (size_t k = 0; k < fields.size(); ++k) {
      fields[k].ids.resize(before[k].first);
      fields[k].lengths.resize(before[k].second);
    }
    bad.push_back({line, false, cat("cannot be tokenized: ", error.message()), error.hint()});
    return;
  }
  for (auto& field : fields) field.bounds.push_back(static_cast<uint32_t>(field.lengths.size()));
}

/// Like Megatron's tool: a text without tokens gives no sequence, and the end-of-document token
/// belongs to the last sequence.
void BatchEncoder::encode_texts(const Texts& texts, EncodedField& field) {
  const size_t first = field.lengths.size();
  const Texts* pieces = &texts;
  if (sentences_ && texts.size() == 1) {
    pieces_.clear();
    sentences_->split(texts[0], pieces_);
    pieces = &pieces_;
  }
  for (std::string_view piece : *pieces) {
    const size_t begin = field.ids.size();
    call_plugin(tokenizer_, "encode()", [&] {
      if (options_.add_special)
        tokenizer_.encode_with(piece, {.add_special = true}, field.ids, nullptr);
      else
        tokenizer_.encode_to(piece, field.ids);
    });
    check_ids(tokenizer_, std::span(field.ids).subspan(begin));
    const size_t length = field.ids.size() - begin;
    MT_USER_CHECK(length < INT32_MAX, ErrorClass::data,
                  cat("a sequence of ", length, " tokens; the format holds 2147483647 at most"),
                  "split the document");
    if (length > 0) field.lengths.push_back(static_cast<int32_t>(length));
  }
  if (!eod_ || field.lengths.size() == first) return;
  field.ids.push_back(*eod_);
  ++field.lengths.back();
}

}  // namespace mtrain
