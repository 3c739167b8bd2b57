// The tokens around the texts of a model with an encoder and a decoder. Stateless; safe from any
// thread.
#pragma once
#include <cstdint>

#include "mtrain/data/tokenizer.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

struct AnswerTokens {
  int32_t start = 0;  // before the decoder's text
  int32_t end = 0;    // after the text of the encoder and of the decoder
};

/// start: that of the dataset (dataset.start_token), else of the model (model.decoder_start_token),
/// else the end token for weights that the dataset t5_seq2seq trains, and the padding token for
/// others, as T5's released weights expect. Error(config) if the tokenizer lacks a token.
/// REQUIRES: the model has an encoder and a decoder.
MT_API AnswerTokens answer_tokens(const Recipe& recipe, const Tokenizer& tokenizer);

}  // namespace mtrain
