// ExampleEncoder encodes examples to tokens and their loss masks. Refers to its tokenizer, which
// must outlive it. Immutable: const members are safe from any thread.
#pragma once
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/chat/chat_template.h"
#include "mtrain/chat/template_file.h"
#include "mtrain/data/dataset.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/finetune/example.h"

namespace mtrain::finetune {

/// The text to train on: the assistant's (or the completion), only its last turn, or all text.
enum class TrainOn : uint8_t { assistant, last, all };

struct EncoderOptions {
  std::string chat_template = {};  // a ready-made template (chat::ready_made_names), or empty
  std::string template_path =
      {};  // otherwise a file; empty: the template next to the tokenizer's files, if there is one
  std::string template_name = "default";  // the name, if there are several templates
  std::filesystem::path base_directory;   // relative paths start here
  std::string date = "2024-07-26";  // today's date for templates; fixed, so the tokens of the data
                                    // do not depend on the day
  TrainOn train_on = TrainOn::assistant;
  bool parse_special = false;  // names of special tokens in a prompt and its completion, or in a
                               // text, are these tokens; else they are plain characters
};

class MT_API ExampleEncoder {
 public:
  /// Error(config) for an invalid date, or for both chat_template and template_path. Also throws
  /// what read_template throws for the given template_path.
  ExampleEncoder(const Tokenizer& tokenizer, const EncoderOptions& options);

  /// Throws Error(data) with the example's location when it cannot be rendered or has an id outside
  /// the vocabulary; Error(config) for a conversation without a template.
  TokenizedExample encode(const Example& example) const;
  /// Encodes many examples on `threads` threads (0: one per core). The result does not depend on
  /// the number of threads. Passes each faulty example to `rejected`, on the calling thread and in
  /// order; its result is empty.
  std::vector<TokenizedExample> encode_all(
      std::span<const Example> examples,
      const std::function<void(const Example&, const Error&)>& rejected, int threads = 0) const;
  /// A user's turn of the chat template up to the answer. REQUIRES: has_template().
  AskedPrompt ask(const std::string& text) const;
  bool has_template() const { return template_ != nullptr; }
  /// The chat template's name: a ready-made one, or its file. Empty: none.
  const std::string& template_name() const { return file_.name; }
  /// The chat template's text; empty: none.
  const std::string& template_text() const { return file_.source; }
  /// Special tokens of the template, such as "<|im_end|>", that the tokenizer encodes as several
  /// tokens. If there are any, the template belongs to another model.
  std::vector<std::string> missing_special_tokens() const;
  /// The first special token that a text of the example spells in plain characters; empty: none, or
  /// parse_special reads them.
  std::string spelled_special(const Example& example) const;
  /// A text that changes whenever the encoding changes.
  std::string identity() const;

 private:
  TokenizedExample chat(const Example& example) const;
  TokenizedExample prompted(const Example& example) const;
  TokenizedExample segments(const Example& example) const;
  void mark_trained(const chat::RenderedChat& chat, const Example& example,
                    std::vector<uint8_t>& trained) const;
  void check_ids(const TokenizedExample& example) const;

  const Tokenizer& tokenizer_;
  EncoderOptions options_;
  chat::TemplateFile file_;
  std::vector<std::string> special_tokens_;  // of the tokenizer
  std::unique_ptr<const chat::ChatTemplate> template_;
  std::tm date_{};
};

/// The day of a text such as 2024-07-26. Error(config) that names `setting` for any other.
MT_API std::tm parse_date(const std::string& text, const std::string& setting);

}  // namespace mtrain::finetune
