#include "mtrain/data/span_settings.h"

#include <algorithm>
#include <span>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/data/prepared_data.h"

namespace mtrain {

void SpanSettings::bind(Fields& f) {
  f("mask_probability", shares.mask_probability, "fraction of tokens that are moved to the targets")
      .exclusive_min(0)
      .exclusive_max(1);
  f("mean_span", shares.mean_span, "mean length of a removed span").min(1).unit("tokens");
  f("sentinels", sentinels,
    "maximum number of sentinel tokens; each removed span of a sample needs one")
      .min(1)
      .renamed_from({"vocab_extra_ids"});
  f("sentinel", sentinel,
    "name of the sentinels among the tokenizer's special tokens, with {} for 0, 1, 2 …; empty: "
    "the last ids of the vocabulary, in descending order")
      .example("<extra_id_{}>");
  f("closing_sentinel", shares.closing_sentinel,
    "add a sentinel after the last span, before the end token");
  f("end_token", end_token,
    "the special token at the end of the input and at the end of the targets; empty: the "
    "end-of-document token")
      .example("</s>");
}

namespace {

/// `count` sentinels by name, as far as the tokenizer has them.
std::vector<int32_t> named_sentinels(const Tokenizer& tokenizer, const std::string& pattern,
                                     int64_t count) {
  const size_t mark = pattern.find("{}");
  MT_USER_CHECK(mark != std::string::npos, ErrorClass::config,
                cat("dataset.sentinel: '", printable(pattern, 60), "' has no {} for the number"),
                "write it as <extra_id_{}>, or leave it empty for the last ids of the vocabulary");
  const auto special = tokenizer.special_tokens();
  std::vector<int32_t> out;
  for (int64_t k = 0; k < count; ++k) {
    const std::string text = cat(pattern.substr(0, mark), k, pattern.substr(mark + 2));
    const auto at = std::find_if(special.begin(), special.end(),
                                 [&](const SpecialToken& token) { return token.text == text; });
    if (at == special.end()) break;
    out.push_back(at->id);
  }
  MT_USER_CHECK(
      !out.empty(), ErrorClass::config,
      cat("dataset.sentinel: the tokenizer ", tokenizer.name(), " has no special token '",
          printable(cat(pattern.substr(0, mark), 0, pattern.substr(mark + 2)), 60), "'"),
      "set its name for sentinels, add sentinels (tokenizer.extra_ids=100, if it has that "
      "setting), or leave dataset.sentinel empty for the last ids of the vocabulary");
  return out;
}

std::vector<int32_t> last_ids(const Tokenizer& tokenizer, int64_t count) {
  const int64_t vocab = tokenizer.vocab_size();
  MT_USER_CHECK(
      count < vocab, ErrorClass::config,
      cat("dataset.sentinels: ", count, " of a vocabulary of ", vocab, " leave no id for text"),
      "use fewer");
  std::vector<int32_t> out(static_cast<size_t>(count));
  for (size_t k = 0; k < out.size(); ++k)
    out[k] = static_cast<int32_t>(vocab - 1) - static_cast<int32_t>(k);
  return out;
}

}  // namespace

int64_t SpanSettings::needed(int64_t tokens) const {
  return span_lengths(tokens, shares).spans + (shares.closing_sentinel ? 1 : 0);
}

SpanCorruptionConfig SpanSettings::corruption(const Tokenizer* known, int64_t tokens,
                                              int64_t seq_length) const {
  MT_USER_CHECK(known, ErrorClass::config, "span corruption needs a tokenizer, for its sentinels",
                "set tokenizer.type");
  const Tokenizer& tokenizer = *known;
  SpanCorruptionConfig out{.shares = shares,
                           .sentinels = sentinel.empty()
                                            ? last_ids(tokenizer, sentinels)
                                            : named_sentinels(tokenizer, sentinel, sentinels)};
  const int64_t needed = this->needed(tokens);
  const auto found = static_cast<int64_t>(out.sentinels.size());
  MT_USER_CHECK(
      needed <= found, ErrorClass::config,
      cat("dataset.sentinels: a sample of model.seq_length ", seq_length, " needs ", needed,
          " sentinels, but there are ", found, found < sentinels ? " in the tokenizer" : ""),
      cat(found < sentinels ? "choose a tokenizer with more of them" : "raise dataset.sentinels",
          ", raise dataset.mean_span, or lower dataset.mask_probability or model.seq_length"));
  MT_USER_CHECK(!end_token.empty() || tokenizer.eod(), ErrorClass::config,
                "dataset.end_token is not set, and the tokenizer has no end-of-document token",
                "name one of its special tokens");
  out.end = end_token.empty() ? *tokenizer.eod()
                              : special_token_id(tokenizer, end_token, "dataset.end_token");
  for (int32_t taken : {out.end, tokenizer.eod().value_or(out.end)})
    MT_USER_CHECK(
        std::find(out.sentinels.begin(), out.sentinels.end(), taken) == out.sentinels.end(),
        ErrorClass::config,
        cat("dataset.sentinel: id ", taken, " is both a sentinel and the end token"),
        "name special tokens without another function, such as <extra_id_{}>");
  return out;
}

std::string special_tokens_hash(const SpanCorruptionConfig& config, int64_t sentinels) {
  std::string marks = cat(config.end);
  for (int32_t id : std::span(config.sentinels).first(static_cast<size_t>(sentinels)))
    marks += cat(",", id);
  return sha256(marks);
}

}  // namespace mtrain
