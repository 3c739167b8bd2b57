#include "mtrain/train/vocabulary_fit.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "mtrain/base/checked.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/shell_word.h"
#include "mtrain/base/text.h"
#include "mtrain/record/saved_config.h"
#include "mtrain/record/saved_step.h"
#include "mtrain/record/train_state.h"

namespace mtrain {
namespace {

/// Published models pad to a multiple of 128, or by up to 2 % of their ids (Phi-1.5 has 51200 rows
/// for 50295).
int64_t most_padding(int64_t ids) { return std::max<int64_t>(128, ids / 32); }

/// Before the number of ids.
const char* what_to_do_with_ids(const ModelSection& model) {
  if (model.init_from.empty())
    return "choose the tokenizer that the model was trained with; for a model that starts from "
           "random values, set model.vocab_size=0 or at least ";
  if (model.resizes_vocabulary()) return "leave model.vocab_size out, or set it to at least ";
  return "choose the tokenizer that the model was trained with; to train a Hugging Face folder "
         "with further tokens: model.init_vocab=resize, and model.vocab_size left out or at least ";
}

/// What an id stands for, twice: tokenizers may leave out the space before the first token.
class TokenTexts {
 public:
  explicit TokenTexts(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    for (SpecialToken& token : tokenizer.special_tokens())
      special_[token.id] = std::move(token.text);
  }
  std::string of(int32_t id) const {
    if (const auto found = special_.find(id); found != special_.end())
      return found->second + found->second;
    try {
      return tokenizer_.decode_bytes(std::array{id, id});
    } catch (const Error&) {
      return {};  // an id without a token
    }
  }
  /// For messages.
  std::string quoted(int32_t id) const {
    const auto found = special_.find(id);
    const std::string text =
        found != special_.end() ? found->second : tokenizer_.decode(std::array{id});
    return cat('"', printable(text, 40), '"');
  }

 private:
  const Tokenizer& tokenizer_;
  std::map<int32_t, std::string> special_;
};

/// How the ids that both have differ in their tokens; empty: not at all, so every row of a table
/// keeps its meaning.
std::string differing_tokens(const Tokenizer& theirs, const Tokenizer& ours) {
  const TokenTexts there(theirs), here(ours);
  const auto ids = static_cast<int32_t>(std::min(theirs.vocab_size(), ours.vocab_size()));
  int32_t count = 0, first = 0;
  for (int32_t id = 0; id < ids; ++id)
    if (there.of(id) != here.of(id) && count++ == 0) first = id;
  if (count == 0) return {};
  return cat(count, " of ", counted(ids, "id"),
             count == 1 ? " is another token" : " are other tokens", " there, the first is ", first,
             ": ", there.quoted(first), " there, ", here.quoted(first), " here");
}

/// The tokenizer in a Hugging Face folder; null if it has none that can be read.
std::unique_ptr<Tokenizer> tokenizer_in(const fs::path& folder, PluginHost& plugins) {
  const std::string type = tokenizer_type_in(folder);
  if (type.empty()) return nullptr;
  Node section = Node::map();
  section.set("path", Node::string(fs::absolute(folder).string()));
  TokenizerContext context{};
  try {
    return plugins.make<Tokenizer>(type, section, context);
  } catch (const Error&) {  // the recipe does not use it
    return nullptr;
  }
}

void warn_of_folder(const Recipe& recipe, const fs::path& folder, const Tokenizer& tokenizer,
                    PluginHost& plugins) {
  if (tokenizer.text_identity().empty()) return;  // for ids without text
  std::error_code ignored;
  if (!tokenizer.folder().empty() && fs::equivalent(tokenizer.folder(), folder, ignored)) return;
  const std::unique_ptr<Tokenizer> theirs = tokenizer_in(folder, plugins);
  if (!theirs || theirs->identity() == tokenizer.identity()) return;
  const std::string differing = differing_tokens(*theirs, tokenizer);
  if (differing.empty()) return;
  const std::string from = printable(recipe.settings.model.init_from);
  log_warn("model.init_from: the tokenizer in ", from, " differs from the recipe's: ", differing,
           "\n  there ", printable(theirs->identity()), ",\n  here  ",
           printable(tokenizer.identity()),
           "\n  help: the rows of the embedding belong to its tokens; use them: ",
           "tokenizer={type: ", theirs->name(), ", path: ", from, "}");
}

/// How the tokens of the tokenizer in the folder differ; empty: not at all, or there is none.
std::string differing_in_folder(const fs::path& folder, const Tokenizer& tokenizer,
                                PluginHost& plugins) {
  if (tokenizer.text_identity().empty()) return {};
  const std::unique_ptr<Tokenizer> theirs = tokenizer_in(folder, plugins);
  if (!theirs || theirs->identity() == tokenizer.identity()) return {};
  return differing_tokens(*theirs, tokenizer);
}

}  // namespace

std::string differing_parts(const std::string& theirs, const std::string& ours) {
  const auto a = split(theirs, ','), b = split(ours, ',');
  if (a.size() != b.size() || a.empty() || a.front() != b.front()) return {};
  std::vector<std::string> parts;
  for (size_t i = 1; i < a.size(); ++i)
    if (a[i] != b[i]) parts.push_back(cat(printable(trim(a[i])), " and ", printable(trim(b[i]))));
  return parts.empty() ? std::string() : cat(", which differ in: ", join(parts, ", "));
}

std::string tokenizer_type_in(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& [file, type] : {std::pair{"tokenizer.json", "hf"},
                                   {"tokenizer.model", "sentencepiece"},
                                   {"vocab.json", "gpt2_bpe"}})
    if (fs::exists(folder / file, ignored)) return type;
  return {};
}

int64_t vocabulary_rows(const Settings& settings, const Tokenizer& tokenizer) {
  const ModelSection& model = settings.model;
  const int64_t ids = tokenizer.vocab_size();
  if (model.vocab_size > 0) {
    MT_USER_CHECK(ids <= model.vocab_size, ErrorClass::config,
                  cat("model.vocab_size (", model.vocab_size,
                      ") is smaller than the vocabulary of tokenizer '", settings.tokenizer.type,
                      "' (", ids, ")"),
                  cat(what_to_do_with_ids(model), ids));
    return model.vocab_size;
  }
  const Checked<int64_t> multiple = model.vocab_multiple;
  const Checked<int64_t> padded = multiple * ((ids - 1) / model.vocab_multiple + 1);
  MT_USER_CHECK(padded.valid(), ErrorClass::config,
                cat("model.vocab_multiple (", model.vocab_multiple,
                    ") is too large: the padded vocabulary size overflows"),
                "choose a small power of two");
  return padded.value();
}

void log_rows_without_id(const Recipe& recipe, const Tokenizer& tokenizer) {
  const int64_t rows = recipe.settings.model.vocab_size, ids = tokenizer.vocab_size(),
                unused = rows - ids;
  if (rows == 0 || unused <= 0) return;
  const Node* setting = recipe.config.root().find("model.vocab_size");
  const std::string place = setting ? setting->loc().text() : "";
  const std::string sizes =
      cat("model.vocab_size is ", rows, place.empty() ? "" : cat(" (", place, ")"),
          ", and tokenizer '", recipe.settings.tokenizer.type, "' has ", ids, " ids");
  if (unused <= most_padding(ids))
    return log_info(sizes, ": the last ", counted(unused, "row"),
                    unused == 1 ? " belongs to no token" : " belong to no token");
  log_warn(sizes, ": ", unused,
           " rows belong to no token, which is more than padding explains\n  help: choose the "
           "tokenizer that the model was trained with; for a model that starts from random values, "
           "set model.vocab_size=0");
}

std::string resize_words(const Recipe& recipe, int64_t rows, int64_t ids) {
  const ModelSection& model = recipe.settings.model;
  if (!model.resizes_vocabulary() || recipe.folder_vocab == 0) return "";
  const int64_t theirs = recipe.folder_vocab;
  const std::string folder = printable(recipe.resolve(model.init_from).string());
  const std::string padding =
      ids < rows ? cat("; the last ", counted(rows - ids, "row"),
                       " without a token become padding, outside of the loss and of exports")
                 : "";
  if (rows == theirs)
    return cat("model.init_vocab=resize ", ids < rows ? "keeps all rows" : "changes nothing",
               ": the model has ", rows, " rows, as ", folder, padding);
  if (rows < theirs)
    return cat("model.init_vocab=resize drops the last ", theirs - rows, " of ", theirs,
               " rows of ", folder, padding);
  return cat("model.init_vocab=resize adds ", counted(rows - theirs, "row"), " to the ", theirs,
             " of ", folder, ": the mean of these", padding);
}

void log_resize(const Recipe& recipe, int64_t rows, int64_t ids) {
  if (const std::string words = resize_words(recipe, rows, ids); !words.empty()) log_info(words);
}

void warn_of_other_tokenizer(const Recipe& recipe, const Tokenizer& tokenizer,
                             PluginHost& plugins) {
  const std::string& from = recipe.settings.model.init_from;
  if (from.empty()) return;
  const fs::path run = recipe.resolve(from);
  if (!is_saved_run(run)) return warn_of_folder(recipe, run, tokenizer, plugins);
  const std::string theirs = identity_of(read_saved_config(run)).tokenizer,
                    ours = tokenizer.identity();
  if (theirs.empty() || theirs == ours) return;
  log_warn("model.init_from: the weights of ", printable(from),
           " were trained with another tokenizer:\n  then ", printable(theirs), ",\n  now ",
           printable(ours), differing_parts(theirs, ours),
           "\n  help: set the tokenizer section as in that run (mtrain config show tokenizer ",
           shell_word(from), ")");
}

void require_same_tokens(const Recipe& teacher, const Tokenizer& tokenizer, PluginHost& plugins) {
  const std::string& from = teacher.settings.model.init_from;
  if (from.empty()) return;
  const fs::path folder = teacher.resolve(from);
  std::string differing;
  if (is_saved_run(folder)) {
    const std::string theirs = identity_of(read_saved_config(folder)).tokenizer;
    if (!theirs.empty() && theirs != tokenizer.identity())
      differing = cat("there ", printable(theirs), ", here ", printable(tokenizer.identity()),
                      differing_parts(theirs, tokenizer.identity()));
  } else {
    differing = differing_in_folder(folder, tokenizer, plugins);
  }
  MT_USER_CHECK(differing.empty(), ErrorClass::config,
                cat(printable(folder.string()), " has another tokenizer: ", differing),
                "a student learns a distribution over the same tokens: choose a teacher with the "
                "student's tokenizer, or set the tokenizer section to the teacher's");
}

void require_saved_rows(const CheckpointStore& store, int64_t step, const ParamList& parameters,
                        const Tokenizer& tokenizer) {
  const std::vector<StoredTensorInfo> stored = store.tensors(step);
  for (const Parameter& p : parameters.all()) {
    if (p.dims.empty() || p.dims.front().name != "vocab") continue;
    const auto saved =
        std::ranges::find(stored, p.name, [](const StoredTensorInfo& t) { return t.name; });
    if (saved == stored.end() || saved->shape.rank() != p.global.rank() ||
        saved->shape[0] == p.global[0])
      continue;
    const std::string folder = store.step_folder(step).string(), ours = tokenizer.identity(),
                      theirs = meta_from_json(store.meta(step), folder).tokenizer,
                      then = cat(saved->shape[0], " rows"), now = cat(p.global[0], " rows"),
                      show = "as in that run: mtrain config show ";
    if (theirs == ours)
      throw Error(ErrorClass::checkpoint,
                  cat(printable(folder), ": ", p.name, " has ", then, ", and this model's has ",
                      now, "; the tokenizer is the same: ", printable(ours)),
                  cat("set model.vocab_size and model.vocab_multiple ", show, "model ",
                      shell_word(folder)));
    throw Error(ErrorClass::checkpoint,
                cat(printable(folder), " was trained with another tokenizer, and ", p.name,
                    " has another number of rows:\n  then ", printable(theirs), ": ", then,
                    ",\n  now ", printable(ours), ": ", now),
                cat("set the tokenizer section ", show, "tokenizer ", shell_word(folder)));
  }
}

}  // namespace mtrain
