// ExampleEncoder: examples to tokens and what is learnt of them. Refers to its tokenizer. Immutable
// once made: const members are safe from any thread.
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
#include "mtrain/data/tokenizer.h"
#include "mtrain/finetune/example.h"

namespace mtrain::finetune {

/// Whose words are learnt: the assistant's (the completion's), those of its last turn, everybody's.
enum class TrainOn : uint8_t { assistant, last, all };

struct EncoderOptions {
  std::string chat_template = {};  // a ready-made one (chat::ready_made_names), or empty
  std::string template_path =
      {};  // else; empty: the template next to the tokenizer's files, where there is one
  std::string template_name = "default";  // among several
  std::filesystem::path base_directory;   // relative paths start here
  std::string date = "2024-07-26";  // what templates take for today, so that the same data give the
                                    // same tokens on any day
  TrainOn train_on = TrainOn::assistant;
};

class MT_API ExampleEncoder {
 public:
  /// Error(config) for a date that is none, or both chat_template and template_path; what
  /// read_template throws for a template_path that is given.
  ExampleEncoder(const Tokenizer& tokenizer, const EncoderOptions& options);

  /// Throws Error(data) with the example's place for what cannot be rendered, or an id outside the
  /// vocabulary; Error(config) for a conversation where there is no template.
  TokenizedExample encode(const Example& example) const;
  /// The same for many, on `threads` threads (0: one for each core). The result does not depend on
  /// how many. A fault of an example is told to `rejected`, on this thread and in order, and leaves
  /// nothing of it.
  std::vector<TokenizedExample> encode_all(
      std::span<const Example> examples,
      const std::function<void(const Example&, const Error&)>& rejected, int threads = 0) const;
  bool has_template() const { return template_ != nullptr; }
  /// Tokens that the template writes, "<|im_end|>", and the tokenizer spells with several: it
  /// belongs to another model then.
  std::vector<std::string> missing_special_tokens() const;
  /// Text that changes when the encoding does.
  std::string identity() const;

 private:
  TokenizedExample chat(const Example& example) const;
  TokenizedExample prompted(const Example& example) const;
  TokenizedExample segments(const Example& example) const;
  void mark_learnt(const chat::RenderedChat& chat, const Example& example,
                   std::vector<uint8_t>& learnt) const;
  void check_ids(const TokenizedExample& example) const;

  const Tokenizer& tokenizer_;
  EncoderOptions options_;
  chat::TemplateFile file_;
  std::vector<std::string> special_tokens_;  // of the tokenizer
  std::unique_ptr<const chat::ChatTemplate> template_;
  std::tm date_{};
};

}  // namespace mtrain::finetune
