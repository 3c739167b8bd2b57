// The sections `normalizer`, `pre_tokenizer`, `decoder` and `post_processor`.
#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/tokenize/charsmap.h"
#include "mtrain/tokenize/unicode.h"
#include "tokenizer_json.h"

namespace mtrain::hf {

using namespace tokenize;

namespace {

[[noreturn]] void unknown_type(const JsonItem& item, const char* known) {
  item.fail(cat("the type '", printable(item.type(), 60), "' is not known: ", known));
}

SplitBehavior behavior_of(const JsonItem& item, const char* otherwise) {
  const std::string name = item.text_or("behavior", otherwise);
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  item.at("behavior")
      .fail("must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

PreTokenizerPtr read_split(const JsonItem& item) {
  Regex pattern = read_pattern(item.at("pattern"));
  const SplitBehavior behavior = behavior_of(item, "Isolated");
  const bool invert = item.flag_or("invert", false);
  const bool regex = item.at("pattern").find("Regex").has_value();
  const KnownPattern known = regex ? recognize_pattern(pattern.pattern()) : KnownPattern::none;
  // Known patterns match every byte, so "removed" with inversion is the same as "isolated".
  const bool all_kept =
      (behavior == SplitBehavior::isolated) || (behavior == SplitBehavior::removed && invert);
  if (known != KnownPattern::none && all_kept) return split_known(known);
  return split_regex(std::move(pattern), behavior, invert);
}

char32_t one_char(const JsonItem& item, const char* key) {
  const JsonItem value = item.at(key);
  const std::string_view text = value.text();
  if (text.empty() || decode_char(text, 0).bytes != text.size())
    value.fail("must be one character");
  return decode_char(text, 0).value;
}

PreTokenizerPtr bert_pre_tokenizer() {
  std::vector<PreTokenizerPtr> steps;
  steps.push_back(split_chars(is_white_space, SplitBehavior::removed));
  steps.push_back(split_chars(is_punctuation, SplitBehavior::isolated));
  return in_turn(std::move(steps));
}

PreTokenizerPtr read_metaspace(const JsonItem& item) {
  const std::string replacement = item.text_or("replacement", "\xE2\x96\x81");
  if (replacement.empty()) item.fail("'replacement' is empty");
  return metaspace(replacement, read_prepend_scheme(item), item.flag_or("split", true));
}

/// The ids of a template's special tokens, before or after the text.
void read_template(const JsonItem& item, PipelineParts& parts) {
  const JsonItem tokens = item.at("special_tokens");
  bool behind = false;
  for (const auto& piece : item.at("single").items()) {
    if (auto special = piece.find("SpecialToken")) {
      auto& ids = behind ? parts.after : parts.before;
      for (const auto& id : tokens.at(special->at("id").text()).at("ids").items())
        ids.push_back(static_cast<int32_t>(id.integer()));
    } else {
      piece.at("Sequence");
      behind = true;
    }
  }
}

}  // namespace

Regex read_pattern(const JsonItem& item) {
  if (item.is_string()) return Regex::literal(std::string(item.text()));
  if (auto text = item.find("String")) return Regex::literal(std::string(text->text()));
  return {std::string(item.at("Regex").text()), item.path()};
}

PrependScheme read_prepend_scheme(const JsonItem& item) {
  const bool older = item.flag_or("add_prefix_space", true);
  const std::string name = item.text_or("prepend_scheme", older ? "always" : "never");
  if (name == "always") return PrependScheme::always;
  if (name == "first") return PrependScheme::first;
  if (name == "never") return PrependScheme::never;
  item.at("prepend_scheme").fail("must be always, first or never");
}

NormalizerPtr read_normalizer(const JsonItem& item) {
  const std::string type = item.type();
  if (type == "Sequence") {
    std::vector<NormalizerPtr> steps;
    for (const auto& step : item.at("normalizers").items()) steps.push_back(read_normalizer(step));
    return in_turn(std::move(steps));
  }
  if (type == "NFC") return normalize_unicode(UnicodeForm::nfc);
  if (type == "NFD") return normalize_unicode(UnicodeForm::nfd);
  if (type == "NFKC") return normalize_unicode(UnicodeForm::nfkc);
  if (type == "NFKD") return normalize_unicode(UnicodeForm::nfkd);
  if (type == "Lowercase") return lowercase();
  if (type == "StripAccents") return strip_accents();
  if (type == "Strip")
    return strip(item.flag_or("strip_left", true), item.flag_or("strip_right", true));
  if (type == "Nmt") return clean_nmt();
  if (type == "Prepend") return prepend(std::string(item.at("prepend").text()));
  if (type == "Replace")
    return replace(read_pattern(item.at("pattern")), std::string(item.at("content").text()));
  if (type == "ByteLevel") return bytes_as_chars();
  if (type == "Precompiled") {
    const JsonItem map = item.at("precompiled_charsmap");
    return precompiled(Charsmap(decode_base64(map.text(), map.path()), map.path()));
  }
  if (type == "BertNormalizer") {
    BertCleaning cleaning;
    cleaning.clean_text = item.flag_or("clean_text", true);
    cleaning.space_ideographs = item.flag_or("handle_chinese_chars", true);
    cleaning.lowercase = item.flag_or("lowercase", true);
    cleaning.strip_accents = item.flag_or("strip_accents", cleaning.lowercase);
    return bert_normalizer(cleaning);
  }
  unknown_type(item,
               "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Nmt, Prepend, "
               "Replace, ByteLevel, "
               "Precompiled or BertNormalizer");
}

PreTokenizerPtr read_pre_tokenizer(const JsonItem& item, bool as_bytes) {
  const std::string type = item.type();
  if (type == "Sequence") {
    std::vector<PreTokenizerPtr> steps;
    const auto items = item.at("pretokenizers").items();
    for (size_t i = 0; i < items.size(); ++i)
      steps.push_back(read_pre_tokenizer(items[i], as_bytes && i + 1 == items.size()));
    return in_turn(std::move(steps));
  }
  if (type == "ByteLevel")
    return byte_level({.add_prefix_space = item.flag_or("add_prefix_space", true),
                       .use_regex = item.flag_or("use_regex", true),
                       .to_chars = !as_bytes});
  if (type == "Split") return read_split(item);
  if (type == "Whitespace") return split_words_and_marks();
  if (type == "WhitespaceSplit") return split_chars(is_white_space, SplitBehavior::removed);
  if (type == "BertPreTokenizer") return bert_pre_tokenizer();
  if (type == "Metaspace") return read_metaspace(item);
  if (type == "Punctuation") return split_chars(is_punctuation, behavior_of(item, "Isolated"));
  if (type == "Digits") {
    const bool each = item.flag_or("individual_digits", false);
    return split_chars([](char32_t c) { return CharTable::get().is(c, kNumber); },
                       each ? SplitBehavior::isolated : SplitBehavior::contiguous);
  }
  if (type == "CharDelimiterSplit")
    return split_chars([c = one_char(item, "delimiter")](char32_t other) { return c == other; },
                       SplitBehavior::removed);
  if (type == "FixedLength") {
    const int64_t length = item.integer_or("length", 5);
    if (length < 1) item.fail("'length' must be at least 1");
    return split_every(length);
  }
  if (type == "UnicodeScripts") return split_scripts();
  unknown_type(item,
               "Sequence, ByteLevel, Split, Whitespace, WhitespaceSplit, BertPreTokenizer, "
               "Metaspace, Punctuation, "
               "Digits, CharDelimiterSplit, FixedLength or UnicodeScripts");
}

void read_decoder(const JsonItem& item, std::vector<DecodeStepPtr>& out) {
  const std::string type = item.type();
  if (type == "Sequence") {
    for (const auto& step : item.at("decoders").items()) read_decoder(step, out);
    return;
  }
  auto add = [&](DecodeStepPtr step) { out.push_back(std::move(step)); };
  if (type == "ByteLevel") return add(decode_byte_level());
  if (type == "WordPiece")
    return add(decode_word_piece(item.text_or("prefix", "##"), item.flag_or("cleanup", true)));
  if (type == "Metaspace")
    return add(
        decode_metaspace(item.text_or("replacement", "\xE2\x96\x81"), read_prepend_scheme(item)));
  if (type == "BPEDecoder") return add(decode_bpe_suffix(item.text_or("suffix", "</w>")));
  if (type == "Replace")
    return add(
        decode_replace(read_pattern(item.at("pattern")), std::string(item.at("content").text())));
  if (type == "Fuse") return add(decode_fuse());
  if (type == "Strip")
    return add(decode_strip(std::string(item.at("content").text()), item.integer_or("start", 0),
                            item.integer_or("stop", 0)));
  if (type == "ByteFallback") return add(decode_byte_fallback());
  if (type == "CTC")
    return add(decode_ctc(item.text_or("pad_token", "<pad>"),
                          item.text_or("word_delimiter_token", "|"),
                          item.flag_or("cleanup", true)));
  unknown_type(item,
               "Sequence, ByteLevel, WordPiece, Metaspace, BPEDecoder, Replace, Fuse, Strip, "
               "ByteFallback or CTC");
}

void read_post_processor(const JsonItem& item, PipelineParts& parts) {
  const std::string type = item.type();
  if (type == "Sequence") {
    for (const auto& step : item.at("processors").items()) read_post_processor(step, parts);
    return;
  }
  if (type == "TemplateProcessing") return read_template(item, parts);
  if (type == "ByteLevel" || type == "RobertaProcessing") {
    parts.trim_spans = item.flag_or("trim_offsets", true);
    parts.blank_was_added = item.flag_or("add_prefix_space", true);
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    parts.before.push_back(static_cast<int32_t>(item.at("cls")[1].integer()));
    parts.after.push_back(static_cast<int32_t>(item.at("sep")[1].integer()));
    return;
  }
  if (type != "ByteLevel")
    unknown_type(item,
                 "Sequence, TemplateProcessing, ByteLevel, BertProcessing or RobertaProcessing");
}

}  // namespace mtrain::hf
