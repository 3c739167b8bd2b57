// Functions that the byte-level formats share: parts of a tokenizer, special tokens, reading of
// files. Stateless functions; safe from any thread.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/tokenize/bpe.h"
#include "mtrain/tokenize/text_pipeline.h"

namespace mtrain::tokenize {

/// The parts of a byte-level tokenizer: its model, its pattern, decoding by joining bytes.
/// `pattern`: a regular expression; known ones use a hand-written scanner (word_scanner.h).
MT_API PipelineParts byte_level_parts(std::unique_ptr<const TokenTable> tokens,
                                      std::vector<BpeMerge> merges, bool whole_words,
                                      const std::string& pattern, const std::string& where);
/// Assigns consecutive ids from `first` on to special tokens. Texts that are in the vocabulary keep
/// their ids.
MT_API void add_special_tokens(PipelineParts& parts, const std::vector<std::string>& texts,
                               int64_t first);
/// The id of a special token or of a token of the vocabulary. Error(config) when there is none;
/// nothing for an empty text.
MT_API std::optional<int32_t> token_named(const PipelineParts& parts, const std::string& text,
                                          const char* setting);

/// The whole file. Error(io) when it cannot be read, Error(data) when it is larger than 1 GiB.
MT_API std::string read_file(const std::filesystem::path& file, const std::string& hint);
/// `path` itself, or the first of `names` that exists in the folder `path`. Error(io) when there is
/// none.
MT_API std::filesystem::path file_in(const std::filesystem::path& path,
                                     const std::vector<std::string>& names);

/// The tokenizer plugin for the files at `path`, a file or a folder, by their names and contents:
/// "hf", "sentencepiece", "gpt2_bpe", "tiktoken"; "" when it is not known.
MT_API std::string plugin_of_files(const std::filesystem::path& path);
/// Rethrows a fault of the plugin `name` with the files at `path`; when they are files of another
/// plugin, the hint names that plugin.
[[noreturn]] MT_API void throw_naming_plugin(const Error& fault, const std::string& name,
                                             const std::filesystem::path& path);
/// Calls `read`, which reads the files at `path` for the plugin `name`, and returns its result.
template <class Read>
auto read_files(const std::string& name, const std::filesystem::path& path, const Read& read) {
  try {
    return read();
  } catch (const Error& fault) {
    throw_naming_plugin(fault, name, path);
  }
}

}  // namespace mtrain::tokenize
