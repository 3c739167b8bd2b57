#include "mtrain/tokenize/text_pipeline.h"

#include <algorithm>
#include <limits>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {

TextPipeline::TextPipeline(PipelineParts parts)
    : parts_(std::move(parts)), encoder_(std::move(parts_.model)) {
  vocab_size_ = parts_.tokens->size();
  for (const auto& token : parts_.added.all())
    vocab_size_ = std::max<int64_t>(vocab_size_, int64_t{token.id} + 1);
  parts_.added.finish([&](const std::string& text) {
    if (!parts_.normalizer) return text;
    AlignedText normal;
    normal.start(text, 0, false, true);
    parts_.normalizer->apply(normal);
    return normal.text;
  });
  raw_ = !parts_.normalizer && parts_.pattern != KnownPattern::none;
}

std::vector<SpecialToken> TextPipeline::special_tokens() const {
  std::vector<SpecialToken> out;
  for (const auto& token : parts_.added.all())
    if (token.special) out.push_back({token.text, token.id});
  return out;
}

void TextPipeline::encode_to(std::string_view text, std::vector<int32_t>& ids) const {
  encode_with(text, {}, ids, nullptr);
}

void TextPipeline::encode_with(std::string_view text, const EncodeOptions& options,
                               std::vector<int32_t>& ids, std::vector<TextSpan>* spans) const {
  MT_USER_CHECK(text.size() < std::numeric_limits<uint32_t>::max(), ErrorClass::data,
                cat("a text of ", human_bytes(text.size()),
                    " is longer than the limit of a tokenizer (4 GiB)"),
                "split it into documents");
  const Output out{ids, spans};
  const size_t first = ids.size(), first_span = spans ? spans->size() : 0;
  if (options.add_special) {
    ids.insert(ids.end(), parts_.before.begin(), parts_.before.end());
    if (spans) spans->resize(spans->size() + parts_.before.size());
  }
  const size_t begin = ids.size(), begin_span = spans ? spans->size() : 0;
  if (!parts_.added.any(false, options.parse_special)) {
    encode_part(text, 0, options.parse_special, out);
  } else {
    for (const auto& part : parts_.added.split(text, false, options.parse_special)) {
      if (part.id < 0) {
        encode_part(text.substr(part.span.begin, part.span.end - part.span.begin), part.span.begin,
                    options.parse_special, out);
        continue;
      }
      ids.push_back(part.id);
      if (spans) spans->push_back(part.span);
    }
  }
  if (spans && parts_.trim_spans) trim(*spans, begin_span, std::span(ids).subspan(begin));
  if (options.add_special) {
    ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
    if (spans) spans->resize(spans->size() + parts_.after.size());
  }
  MT_CHECK(!spans || spans->size() - first_span == ids.size() - first,
           "the number of spans differs from the number of ids");
}

/// Encodes the text between added tokens.
void TextPipeline::encode_part(std::string_view part, size_t offset, bool with_special,
                               const Output& out) const {
  const bool normalized_tokens = parts_.added.any(true, with_special);
  const bool same = !parts_.normalizer || (valid_utf8(part) && parts_.normalizer->keeps(part));
  if (!out.spans && parts_.pattern != KnownPattern::none && same && !normalized_tokens)
    return encoder_.encode(part, parts_.pattern, out.ids);
  AlignedText text;
  const bool origin = out.spans || (parts_.pre_tokenizer && parts_.pre_tokenizer->wants_origin());
  text.start(part, offset, origin, !raw_);
  if (parts_.normalizer) parts_.normalizer->apply(text);
  if (!normalized_tokens) return encode_words(std::move(text), out);
  for (const auto& piece : parts_.added.split(text.text, true, with_special)) {
    if (piece.id < 0) {
      encode_words(text.slice(piece.span.begin, piece.span.end), out);
      continue;
    }
    out.ids.push_back(piece.id);
    if (out.spans) out.spans->push_back(text.span(piece.span.begin, piece.span.end));
  }
}

void TextPipeline::encode_words(AlignedText text, const Output& out) const {
  if (text.text.empty()) return;
  if (!out.spans && parts_.pattern != KnownPattern::none)
    return encoder_.encode(text.text, parts_.pattern, out.ids);
  Words words{std::move(text), {}};
  words.ranges.push_back({0, static_cast<uint32_t>(words.text.text.size())});
  if (parts_.pattern != KnownPattern::none)
    split_known(parts_.pattern)->apply(words);
  else if (parts_.pre_tokenizer)
    parts_.pre_tokenizer->apply(words);
  if (!out.spans) return encoder_.encode(words.text.text, words.ranges, out.ids);
  WordTokens tokens;
  for (const auto& range : words.ranges) {
    if (range.end == range.begin) continue;
    tokens.clear();
    encoder_.encode_word(
        std::string_view(words.text.text).substr(range.begin, range.end - range.begin), tokens);
    size_t at = range.begin;
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      out.ids.push_back(tokens.ids[i]);
      out.spans->push_back(words.text.span(at, at + tokens.bytes[i]));
      at += tokens.bytes[i];
    }
  }
}

/// Removes the white space at the ends of each token from its span.
void TextPipeline::trim(std::vector<TextSpan>& spans, size_t first,
                        std::span<const int32_t> ids) const {
  const CharTable& table = CharTable::get();
  for (size_t i = 0; i < ids.size(); ++i) {
    TextSpan& span = spans[first + i];
    const std::string_view token = token_text(ids[i]);
    uint32_t leading = 0, trailing = 0, chars = 0;
    for (size_t at = 0; at < token.size(); ++chars) {
      const auto c = decode_char(token, at);
      at += c.bytes;
      const bool blank = table.is(c.value, kWhiteSpace);
      if (blank && leading == chars) ++leading;
      trailing = blank ? trailing + 1 : 0;
    }
    if (leading > 0 && parts_.blank_was_added && (i == 0 || span.begin == 0)) --leading;
    span.begin = std::min(span.begin + leading, span.end);
    if (span.end >= trailing) span.end = std::max(span.end - trailing, span.begin);
  }
}

std::string_view TextPipeline::token_text(int32_t id) const {
  if (const AddedToken* token = parts_.added.find(id)) return token->text;
  return parts_.tokens->has(id) ? parts_.tokens->text(id) : std::string_view();
}

std::string TextPipeline::decode_bytes(std::span<const int32_t> ids) const {
  std::vector<std::string> texts;
  std::string out;
  for (int32_t id : ids) {
    MT_USER_CHECK(id >= 0 && id < vocab_size_, ErrorClass::data,
                  cat("id ", id, " is outside the vocabulary of ", vocab_size_, " of tokenizer ",
                      parts_.name),
                  "");
    const AddedToken* added = parts_.added.find(id);
    if (added && added->special && id != parts_.unknown) continue;
    if (!added && !parts_.tokens->has(id)) continue;
    const std::string_view text = added ? std::string_view(added->text) : parts_.tokens->text(id);
    parts_.tokens_are_bytes ? void(out.append(text)) : void(texts.emplace_back(text));
  }
  if (parts_.tokens_are_bytes) return out;
  for (const auto& step : parts_.decoder) step->apply(texts);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0 && parts_.join_with_blanks) out += ' ';
    out += texts[i];
  }
  return out;
}

}  // namespace mtrain::tokenize
