#include "mtrain/train/answer_tokens.h"

#include <optional>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/data/prepared_data.h"

namespace mtrain {
namespace {

std::optional<int32_t> dataset_token(const Recipe& recipe, const Tokenizer& tokenizer,
                                     const char* setting) {
  const Node* name = recipe.config.root().find(setting);
  if (!name || !name->is(NodeKind::string) || name->as_text().empty()) return std::nullopt;
  return special_token_id(tokenizer, name->as_text(), setting);
}

}  // namespace

AnswerTokens answer_tokens(const Recipe& recipe, const Tokenizer& tokenizer) {
  std::optional<int32_t> end = dataset_token(recipe, tokenizer, "dataset.end_token");
  if (!end) end = tokenizer.eod();
  MT_USER_CHECK(end, ErrorClass::config,
                cat("the tokenizer ", tokenizer.name(),
                    " has no token for the end of a text, which encoder and decoder need"),
                "use another tokenizer");
  if (auto start = dataset_token(recipe, tokenizer, "dataset.start_token")) return {*start, *end};
  if (auto start = dataset_context(recipe, &tokenizer).decoder_start) return {*start, *end};
  const bool trained = recipe.settings.dataset.type == "t5_seq2seq";
  return {trained ? *end : tokenizer.pad().value_or(*end), *end};
}

}  // namespace mtrain
