#include "tokenizer_json.h"

#include <set>

#include "mtrain/base/text.h"

namespace mtrain::hf {
namespace {

using namespace tokenize;

void read_added_tokens(const JsonItem& root, AddedTokens& out) {
  auto list = root.find("added_tokens");
  if (!list) return;
  std::set<int64_t> ids;
  for (const auto& item : list->items()) {
    AddedToken token;
    const int64_t id = item.at("id").integer();
    if (id < 0 || id >= TokenTable::kMaxTokens) item.fail(cat("the id ", id, " is out of range"));
    if (!ids.insert(id).second) item.fail(cat("the id ", id, " appears twice"));
    token.id = static_cast<int32_t>(id);
    token.text = item.at("content").text();
    if (token.text.size() > TokenTable::kMaxTokenBytes) item.fail("the token is too long");
    token.special = item.flag_or("special", false);
    token.single_word = item.flag_or("single_word", false);
    token.strip_left = item.flag_or("lstrip", false);
    token.strip_right = item.flag_or("rstrip", false);
    token.normalized = item.flag_or("normalized", !token.special);
    out.add(std::move(token));
  }
}

/// The steps of a section; a sequence is expanded into its steps.
std::vector<JsonItem> steps_of(const JsonItem& root, const char* section, const char* list) {
  auto item = root.find(section);
  if (!item) return {};
  if (item->type() == "Sequence") return item->at(list).items();
  return {*item};
}

/// Whether words can be passed to the model as bytes: the byte alphabet is the last step before the
/// model and the first one after it.
bool works_on_bytes(const JsonItem& root) {
  const auto before = steps_of(root, "pre_tokenizer", "pretokenizers");
  const auto after = steps_of(root, "decoder", "decoders");
  const JsonItem model = root.at("model");
  if (before.empty() || after.size() != 1) return false;
  if (before.back().type() != "ByteLevel" || after[0].type() != "ByteLevel") return false;
  for (size_t i = 0; i + 1 < before.size(); ++i)
    if (before[i].type() == "ByteLevel" || before[i].type() == "Sequence") return false;
  return model.find("merges") && model.text_or("continuing_subword_prefix", "").empty() &&
         model.text_or("end_of_word_suffix", "").empty() && !model.find("unk_token") &&
         !model.flag_or("byte_fallback", false);
}

/// The scanner that implements the whole pre-tokenizer.
KnownPattern pattern_of(const JsonItem& root) {
  const auto steps = steps_of(root, "pre_tokenizer", "pretokenizers");
  const JsonItem& last = steps.back();
  if (last.flag_or("add_prefix_space", true)) return KnownPattern::none;
  const bool own = last.flag_or("use_regex", true);
  if (steps.size() == 1) return own ? KnownPattern::gpt2 : KnownPattern::none;
  if (steps.size() != 2 || own || steps[0].type() != "Split") return KnownPattern::none;
  const std::string behavior = steps[0].text_or("behavior", "Isolated");
  const bool invert = steps[0].flag_or("invert", false);
  auto regex = steps[0].at("pattern").find("Regex");
  const bool all_kept = (behavior == "Isolated" && !invert) || (behavior == "Removed" && invert);
  return regex && all_kept ? recognize_pattern(regex->text()) : KnownPattern::none;
}

/// Checks that added tokens and the vocabulary agree.
void check_added(const JsonItem& root, const AddedTokens& added, const TokenTable& tokens,
                 bool by_bytes) {
  int64_t largest = tokens.size() - 1;
  for (const auto& token : added.all()) {
    largest = std::max<int64_t>(largest, token.id);
    if (!tokens.has(token.id) || by_bytes) continue;
    if (tokens.text(token.id) != token.text)
      root.at("added_tokens")
          .fail(cat("'", printable(token.text, 60), "' has the id ", token.id,
                    ", which in the vocabulary is '", printable(tokens.text(token.id), 60), "'"));
  }
  if (largest > static_cast<int64_t>(tokens.count() + added.all().size()) * 2 + 65536)
    root.at("added_tokens").fail(cat("the id ", largest, " is far beyond the vocabulary"));
}

void check_around(const JsonItem& root, const PipelineParts& parts) {
  for (const auto* ids : {&parts.before, &parts.after})
    for (int32_t id : *ids)
      if (!parts.tokens->has(id) && !parts.added.find(id))
        root.at("post_processor").fail(cat("there is no token with the id ", id));
}

}  // namespace

PipelineParts read_tokenizer_json(const simdjson::padded_string& text, const std::string& name) {
  simdjson::dom::parser parser;
  const JsonItem root = parse_json(parser, text, name);
  PipelineParts parts;
  read_added_tokens(root, parts.added);
  parts.added.sort();
  const bool by_bytes = works_on_bytes(root);
  auto [tokens, model, neutral_split, unknown] =
      read_model(root.at("model"), parts.added, by_bytes);
  check_added(root, parts.added, *tokens, by_bytes);
  parts.tokens = std::move(tokens);
  parts.model = std::move(model);
  parts.unknown = unknown;
  parts.tokens_are_bytes = by_bytes;
  if (auto item = root.find("normalizer")) parts.normalizer = read_normalizer(*item);
  if (by_bytes) parts.pattern = pattern_of(root);
  if (auto item = root.find("pre_tokenizer"); item && parts.pattern == KnownPattern::none)
    parts.pre_tokenizer = read_pre_tokenizer(*item, by_bytes);
  if (!root.find("pre_tokenizer")) parts.pre_tokenizer = std::move(neutral_split);
  if (auto item = root.find("decoder"))
    read_decoder(*item, parts.decoder);
  else
    parts.join_with_blanks = true;
  if (auto item = root.find("post_processor")) read_post_processor(*item, parts);
  check_around(root, parts);
  return parts;
}

}  // namespace mtrain::hf
