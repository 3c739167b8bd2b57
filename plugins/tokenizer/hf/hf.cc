// The tokenizers of Hugging Face's tokenizer.json.
#include <unistd.h>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/base/text.h"
#include "mtrain/plugin/plugin.h"
#include "mtrain/tokenize/byte_bpe.h"
#include "special_names.h"
#include "tokenizer_json.h"

namespace mtrain {
namespace {

struct HfConfig {
  std::string path, eod;
  void bind(Fields& f) {
    f("path", path, "tokenizer.json, or the folder that contains it")
        .required()
        .example("/models/Llama-3.2-1B")
        .resume(ResumeClass::safe)  // the identity compares the contents
        .renamed_from({"tokenizer_model"})
        .input_path();
    f("eod", eod,
      "text of the end-of-document token; empty: as specified by the files next to tokenizer.json")
        .example("<|endoftext|>")
        .resume(ResumeClass::safe);  // the identity contains the token
  }
};

simdjson::padded_string load(const std::filesystem::path& file) {
  if (std::error_code ignored; std::filesystem::exists(file, ignored))
    ::close(open_regular_file(file));  // refuses a pipe, whose read could block
  simdjson::padded_string text;
  const auto fault = simdjson::padded_string::load(file.string()).get(text);
  MT_USER_CHECK(fault == simdjson::SUCCESS, ErrorClass::io, cat("cannot read ", file.string()),
                "tokenizer.path is a tokenizer.json or a folder with one: get it with the model's "
                "other files");
  return text;
}

tokenize::PipelineParts read(const HfConfig& config, const TokenizerContext& context) {
  std::filesystem::path file = context.base_directory / config.path;
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) file /= "tokenizer.json";
  for (const char* other : {"tokenizer_config.json", "special_tokens_map.json", "config.json",
                            "vocab.json", "added_tokens.json"})
    MT_USER_CHECK(
        file.filename() != other, ErrorClass::config,
        cat(file.string(), " is not the tokenizer, which is the tokenizer.json next to it"),
        "tokenizer.path names the tokenizer.json or its folder, whose other files are read, "
        "too");
  const auto text = load(file);
  auto parts = hf::read_tokenizer_json(text, file.string());
  hf::find_special_names(file, config.eod, parts);
  parts.name = "hf";
  parts.folder = file.parent_path();
  const uint64_t digest = tokenize::hash_bytes({text.data(), text.size()});
  parts.identity = cat("hf: ", parts.tokens->count(), " tokens, file ", hex(digest), ", eod ",
                       parts.eod ? std::to_string(*parts.eod) : "none");
  return parts;
}

class HfTokenizer final : public tokenize::TextPipeline {
 public:
  HfTokenizer(const HfConfig& config, TokenizerContext& context)
      : TextPipeline(tokenize::read_files("hf", context.base_directory / config.path,
                                          [&] { return read(config, context); })) {}
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("hf", "Hugging Face's tokenizer.json") {
  using namespace mtrain;
  registry.add<Tokenizer, HfTokenizer, HfConfig>("hf", "Hugging Face's tokenizer.json");
}
