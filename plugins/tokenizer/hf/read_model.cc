// The `model` section: vocabularies and merges.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "mtrain/base/text.h"
#include "mtrain/tokenize/bpe.h"
#include "mtrain/tokenize/byte_alphabet.h"
#include "mtrain/tokenize/unigram.h"
#include "mtrain/tokenize/word_piece.h"
#include "tokenizer_json.h"

namespace mtrain::hf {
namespace {

using namespace tokenize;

constexpr const char* kBlank = "\xE2\x96\x81";  // U+2581, SentencePiece's blank
constexpr double kUnknownPenalty = 10;          // below the lowest score, as in SentencePiece

/// Matches whole words only.
class WordLevel final : public WordModel {
 public:
  WordLevel(const TokenTable& tokens, std::optional<int32_t> unknown)
      : tokens_(tokens), unknown_(unknown) {}
  void encode(std::string_view word, WordTokens& out) const override {
    const int32_t id = tokens_.find(word);
    MT_USER_CHECK(id >= 0 || unknown_, ErrorClass::data,
                  cat("the word '", printable(word, 40),
                      "' has no token, and the tokenizer has no unknown token"),
                  "use a tokenizer whose vocabulary covers the data");
    out.add(id >= 0 ? id : *unknown_, word.size());
  }

 private:
  const TokenTable& tokens_;
  std::optional<int32_t> unknown_;
};

bool is_special(const AddedTokens& added, int64_t id) {
  const AddedToken* token = id <= INT32_MAX ? added.find(static_cast<int32_t>(id)) : nullptr;
  return token && token->special;
}

/// {"text": id, …}
std::unique_ptr<TokenTable> read_vocab(const JsonItem& item, const AddedTokens& added,
                                       bool by_bytes) {
  const auto members = item.object();
  auto out = std::make_unique<TokenTable>(members.size());
  std::string bytes;
  for (const auto& member : members) {
    int64_t id = 0;
    if (member.value.get_int64().get(id) != simdjson::SUCCESS)
      item.fail(cat("the id of '", printable(member.key, 60), "' is not an integer"));
    bytes.clear();
    // A token outside the byte alphabet never results from text; it keeps its own bytes.
    const bool reachable = !by_bytes || chars_to_bytes(member.key, bytes);
    const bool decoded = by_bytes && reachable;
    out->add(decoded ? std::string_view(bytes) : member.key, id, item.path(),
             reachable && !is_special(added, id));
  }
  out->check_gaps(item.path());
  return out;
}

class MergeReader {
 public:
  MergeReader(const TokenTable& tokens, bool by_bytes, const std::string& prefix,
              const JsonItem& item)
      : tokens_(tokens), by_bytes_(by_bytes), prefix_(prefix), item_(item) {}

  std::vector<BpeMerge> read() {
    std::vector<BpeMerge> out;
    const auto list = item_.array();
    if (list.size() > static_cast<size_t>(TokenTable::kMaxTokens))
      item_.fail("there are too many merges");
    out.reserve(list.size());
    std::vector<Sides> batch;
    for (auto value : list) {
      batch.push_back(sides(value, out.size() + batch.size()));
      if (batch.size() == kBatch) add(batch, out);
    }
    add(batch, out);
    return out;
  }

 private:
  static constexpr size_t kBatch = 64;
  using Sides = std::pair<std::string_view, std::string_view>;

  /// "a b" or ["a", "b"].
  Sides sides(simdjson::dom::element value, size_t index) const {
    std::string_view text;
    if (value.get_string().get(text) == simdjson::SUCCESS) {
      const size_t blank = text.find(' ');
      if (blank == std::string_view::npos || text.find(' ', blank + 1) != std::string_view::npos)
        fail(index, cat("two tokens with one space between them are required, not '",
                        printable(text, 60), "'"));
      return {text.substr(0, blank), text.substr(blank + 1)};
    }
    simdjson::dom::array pair;
    Sides out;
    const bool good = value.get_array().get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
                      pair.at(0).get_string().get(out.first) == simdjson::SUCCESS &&
                      pair.at(1).get_string().get(out.second) == simdjson::SUCCESS;
    if (!good) fail(index, "must be a string or a pair of strings");
    return out;
  }

  /// Adds the merges of these pairs, and clears the batch.
  void add(std::vector<Sides>& batch, std::vector<BpeMerge>& out) {
    texts_.clear();
    bytes_.clear();
    size_t size = 0;
    for (const auto& [left, right] : batch) size += left.size() + right.size();
    bytes_.reserve(size);  // views into it stay valid
    for (size_t i = 0; i < batch.size(); ++i)
      for (const auto text : {batch[i].first, batch[i].second})
        texts_.push_back(bytes_of(text, out.size() + i));
    ids_.resize(texts_.size());
    tokens_.find_all(texts_, ids_);
    for (size_t i = 0; i < batch.size(); ++i) {
      const size_t left = 2 * i, right = left + 1;
      if (ids_[left] < 0) unknown(batch[i].first, out.size());
      if (ids_[right] < 0) unknown(batch[i].second, out.size());
      const bool inner = !prefix_.empty() && batch[i].second.starts_with(prefix_);
      joined_.assign(texts_[left]).append(texts_[right].substr(inner ? prefix_.size() : 0));
      const int32_t result = made_of_joined(out.empty() ? 0 : out.back().result);
      if (result < 0)
        fail(out.size(),
             cat("'", printable(joined_, 60), "', the result of the merge, is not a token"));
      out.push_back({ids_[left], ids_[right], result, static_cast<uint32_t>(out.size())});
    }
    batch.clear();
  }

  std::string_view bytes_of(std::string_view text, size_t index) {
    if (!by_bytes_) return text;
    const size_t begin = bytes_.size();
    if (!chars_to_bytes(text, bytes_)) unknown(text, index);
    return std::string_view(bytes_).substr(begin);
  }

  /// The token that a merge results in. Merges are nearly ordered by result: most have the same
  /// result as the previous merge, or the next id.
  int32_t made_of_joined(int32_t last) const {
    for (const int32_t id : {last, last + 1})
      if (tokens_.findable(id) && tokens_.text(id) == joined_) return id;
    return tokens_.find(joined_);
  }

  [[noreturn]] void unknown(std::string_view text, size_t index) const {
    fail(index, cat("'", printable(text, 60), "' is not a token of the vocabulary"));
  }
  [[noreturn]] void fail(size_t index, const std::string& what) const {
    throw Error(ErrorClass::data, cat(item_.path(), "[", index, "]: ", what),
                "vocabulary and merges do not belong together: get the tokenizer's file again");
  }

  const TokenTable& tokens_;
  bool by_bytes_;
  std::string prefix_, bytes_, joined_;
  std::vector<std::string_view> texts_;
  std::vector<int32_t> ids_;
  JsonItem item_;
};

/// The id of a token that the model names; it may be a special one.
std::optional<int32_t> named_token(const JsonItem& model, const char* key, const TokenTable& tokens,
                                   const AddedTokens& added) {
  auto item = model.find(key);
  if (!item) return std::nullopt;
  const std::string_view text = item->text();
  for (const auto& token : added.all())
    if (token.text == text) return token.id;
  const int32_t id = tokens.find(text);
  if (id < 0) item->fail(cat("'", printable(text, 60), "' is not a token of the vocabulary"));
  return id;
}

ModelParts read_bpe(const JsonItem& model, const AddedTokens& added, bool by_bytes) {
  ModelParts out;
  out.tokens = read_vocab(model.at("vocab"), added, by_bytes);
  BpeOptions options;
  options.by_bytes = by_bytes;
  options.whole_words = model.flag_or("ignore_merges", false);
  options.byte_fallback = model.flag_or("byte_fallback", false);
  options.fuse_unknown = model.flag_or("fuse_unk", false);
  options.unknown = named_token(model, "unk_token", *out.tokens, added);
  options.inner_prefix = model.text_or("continuing_subword_prefix", "");
  options.end_suffix = model.text_or("end_of_word_suffix", "");
  if (auto dropout = model.find("dropout"); dropout && dropout->number() != 0)
    dropout->fail("dropping merges at random is not supported; set it to null");
  auto merges = MergeReader(*out.tokens, by_bytes, options.inner_prefix, model.at("merges")).read();
  const bool plain =
      options.inner_prefix.empty() && options.end_suffix.empty() && !options.whole_words;
  if (plain && !by_bytes && out.tokens->find(kBlank) >= 0 &&
      begins_words(*out.tokens, merges, kBlank))
    out.neutral_split = split_before_runs(kBlank);
  out.unknown = options.unknown;
  out.model =
      std::make_unique<Bpe>(*out.tokens, std::move(merges), std::move(options), model.path());
  return out;
}

ModelParts read_word_piece(const JsonItem& model, const AddedTokens& added) {
  ModelParts out;
  out.tokens = read_vocab(model.at("vocab"), added, false);
  WordPieceOptions options;
  auto unknown = named_token(model, "unk_token", *out.tokens, added);
  if (!unknown) model.fail("'unk_token' is missing");
  options.unknown = *unknown;
  options.inner_prefix = model.text_or("continuing_subword_prefix", "##");
  options.max_chars = model.integer_or("max_input_chars_per_word", 100);
  if (options.max_chars < 1) model.fail("'max_input_chars_per_word' must be at least 1");
  out.unknown = unknown;
  out.model = std::make_unique<WordPiece>(*out.tokens, std::move(options));
  return out;
}

/// A score as the Hugging Face library reads it from JSON: all digits as one integer, multiplied or
/// divided by a power of ten. This may differ in the last bit from `exact`, the double nearest to
/// the text, and so decides which of several divisions of a text has the highest sum.
double as_library_reads(double exact) {
  char text[32];  // "1.2130167007446289e+01": the shortest text that gives `exact`, as in files
  const char* end =
      std::to_chars(text, text + sizeof text, std::abs(exact), std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int power = 0;  // of ten
  const char* at = text;
  for (bool fraction = false; at < end && *at != 'e'; ++at) {
    if (*at == '.') {
      fraction = true;
      continue;
    }
    digits = digits * 10 + static_cast<uint64_t>(*at - '0');
    power -= fraction ? 1 : 0;
  }
  int exponent = 0;
  const char* sign = at + 1;  // from_chars reads no '+'
  std::from_chars(sign + (*sign == '+' ? 1 : 0), end, exponent);
  power += exponent;
  if (std::abs(power) > 308) return exact;
  double scale = 1;
  const std::string scale_text = cat("1e", std::abs(power));
  std::from_chars(scale_text.data(), scale_text.data() + scale_text.size(), scale);
  const auto value = static_cast<double>(digits);
  return std::copysign(power < 0 ? value / scale : value * scale, exact);
}

ModelParts read_unigram(const JsonItem& model, const AddedTokens& added) {
  ModelParts out;
  const JsonItem vocab = model.at("vocab");
  const auto list = vocab.array();
  auto tokens = std::make_unique<TokenTable>(list.size());
  UnigramOptions options;
  double lowest = 0;
  for (auto entry : list) {
    const auto id = static_cast<int64_t>(options.scores.size());
    simdjson::dom::array pair;
    std::string_view text;
    double score = 0;
    const bool good = entry.get_array().get(pair) == simdjson::SUCCESS && pair.size() == 2 &&
                      pair.at(0).get_string().get(text) == simdjson::SUCCESS &&
                      pair.at(1).get_double().get(score) == simdjson::SUCCESS &&
                      std::isfinite(score);
    if (!good) vocab.fail(cat("item ", id, " is not a pair of a text and a score"));
    tokens->add(text, id, vocab.path(), !is_special(added, id));
    options.never.push_back(is_special(added, id));
    score = as_library_reads(score);
    options.scores.push_back(score);
    lowest = options.scores.size() == 1 ? score : std::min(lowest, score);
  }
  if (auto unknown = model.find("unk_id")) {
    if (!tokens->has(unknown->integer())) unknown->fail("there is no token with this id");
    options.unknown = static_cast<int32_t>(unknown->integer());
  }
  options.unknown_score = lowest - kUnknownPenalty;
  options.byte_fallback = model.flag_or("byte_fallback", false);
  out.unknown = options.unknown;
  out.model = std::make_unique<Unigram>(*tokens, std::move(options), model.path());
  out.tokens = std::move(tokens);
  return out;
}

ModelParts read_word_level(const JsonItem& model, const AddedTokens& added) {
  ModelParts out;
  out.tokens = read_vocab(model.at("vocab"), added, false);
  out.unknown = named_token(model, "unk_token", *out.tokens, added);
  out.model = std::make_unique<WordLevel>(*out.tokens, out.unknown);
  return out;
}

}  // namespace

ModelParts read_model(const JsonItem& model, const AddedTokens& added, bool by_bytes) {
  std::string type = model.type();
  if (type.empty()) {  // older files have no type
    const auto vocab = model.at("vocab");
    type = model.find("merges") ? "BPE" : vocab.is_array() ? "Unigram" : "WordPiece";
  }
  if (type == "BPE") return read_bpe(model, added, by_bytes);
  if (type == "WordPiece") return read_word_piece(model, added);
  if (type == "Unigram") return read_unigram(model, added);
  if (type == "WordLevel") return read_word_level(model, added);
  model.fail(cat("the type '", printable(type, 60),
                 "' is not known: BPE, WordPiece, Unigram or WordLevel"));
}

}  // namespace mtrain::hf
