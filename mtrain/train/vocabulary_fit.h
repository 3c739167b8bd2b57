// Checks that a tokenizer fits a model's embedding. Stateless functions; safe from any thread.
#pragma once
#include <cstdint>

#include "mtrain/checkpoint/store.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/nn/parameter.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

/// Rows of the model's embedding matrix: model.vocab_size, or the tokenizer's ids rounded up to
/// model.vocab_multiple. Throws Error(config) if the tokenizer has ids without a row.
MT_API int64_t vocabulary_rows(const Settings& settings, const Tokenizer& tokenizer);
/// Logs how many rows of model.vocab_size belong to no id of the tokenizer: as a warning if there
/// are more than padding explains.
MT_API void log_rows_without_id(const Recipe& recipe, const Tokenizer& tokenizer);
/// Describes how many rows model.init_vocab=resize adds to the rows of the folder, or drops from
/// them, to get `rows`, and how many rows become padding because only the first `ids` have a token;
/// empty for other recipes.
MT_API std::string resize_words(const Recipe& recipe, int64_t rows, int64_t ids);
/// Logs these words, if there are any.
void log_resize(const Recipe& recipe, int64_t rows, int64_t ids);
/// ", which differ in: file 12ab and file 34cd" for two identities of tokenizers of the same form
/// with equal numbers of tokens, where the numbers alone would look like the same tokenizer; else
/// empty.
MT_API std::string differing_parts(const std::string& theirs, const std::string& ours);
/// Warns if model.init_from is a run with another tokenizer, or a Hugging Face folder whose
/// tokenizer has another token for an id, since the rows of its table belong to other tokens.
MT_API void warn_of_other_tokenizer(const Recipe& recipe, const Tokenizer& tokenizer,
                                    PluginHost& plugins);
/// Throws Error(config) in these cases: for a teacher, whose distribution is over its own tokens.
MT_API void require_same_tokens(const Recipe& teacher, const Tokenizer& tokenizer,
                                PluginHost& plugins);
/// The type of the tokenizer in a Hugging Face folder by its files: "hf", "sentencepiece" or
/// "gpt2_bpe"; empty: there is none.
MT_API std::string tokenizer_type_in(const fs::path& folder);
/// Throws Error(checkpoint) if an embedding matrix of a saved model has another number of rows than
/// the parameter of its name. The message says whether the tokenizer is another one.
MT_API void require_saved_rows(const CheckpointStore& store, int64_t step,
                               const ParamList& parameters, const Tokenizer& tokenizer);

}  // namespace mtrain
