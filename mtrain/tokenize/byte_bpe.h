// What the byte-level formats share: special tokens by their texts, and files read whole.
// Stateless.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/tokenize/bpe.h"
#include "mtrain/tokenize/text_pipeline.h"

namespace mtrain::tokenize {

/// The parts of a byte-level tokenizer over these tokens: its model, its pattern, ids joined as
/// bytes. `pattern`: a regular expression; known ones are scanned by hand.
MT_API PipelineParts byte_level_parts(std::unique_ptr<const TokenTable> tokens,
                                      std::vector<BpeMerge> merges, bool whole_words,
                                      const std::string& pattern, const std::string& where);
/// Gives special tokens the ids from `first` on, one after the other. Those of the vocabulary keep
/// theirs.
MT_API void add_special_tokens(PipelineParts& parts, const std::vector<std::string>& texts,
                               int64_t first);
/// The id of a special token or of the vocabulary. Error(config) when there is none; nothing for an
/// empty text.
MT_API std::optional<int32_t> token_named(const PipelineParts& parts, const std::string& text,
                                          const char* setting);

/// The whole file. Error(io) when it cannot be read, Error(data) when it is larger than 1 GiB.
MT_API std::string read_file(const std::filesystem::path& file, const std::string& hint);
/// `path` itself, or the first of `names` that a folder `path` holds. Error(io) when there is none.
MT_API std::filesystem::path file_in(const std::filesystem::path& path,
                                     const std::vector<std::string>& names);

/// Which tokenizer plugin reads the files at `path`, a file or a folder, by their names and
/// contents: "hf", "sentencepiece", "gpt2_bpe", "tiktoken"; "" where that is not known.
MT_API std::string plugin_of_files(const std::filesystem::path& path);
/// Throws a fault of the files at `path` that the plugin `name` reads; where they are those of
/// another plugin, its hint names that one.
[[noreturn]] MT_API void throw_naming_plugin(const Error& fault, const std::string& name,
                                             const std::filesystem::path& path);
/// What `read` gives, which reads the files at `path` for the plugin `name`.
template <class Read>
auto read_files(const std::string& name, const std::filesystem::path& path, const Read& read) {
  try {
    return read();
  } catch (const Error& fault) {
    throw_naming_plugin(fault, name, path);
  }
}

}  // namespace mtrain::tokenize
