// The tokenizers of SentencePiece's .model files (Kudo and Richardson 2018, arXiv:1808.06226): BPE
// and unigram.
#include <algorithm>

#include "model_file.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/plugin/plugin.h"
#include "mtrain/tokenize/bpe.h"
#include "mtrain/tokenize/byte_bpe.h"
#include "mtrain/tokenize/unigram.h"
#include "spm_normalizer.h"

namespace mtrain {
namespace {

using namespace tokenize;
using namespace sentencepiece;
namespace fs = std::filesystem;

constexpr float kUnknownPenalty = 10;
constexpr const char* kPathHint =
    "tokenizer.path is a tokenizer.model or spiece.model, or a folder with one";

struct SentencePieceConfig {
  std::string path;
  int64_t extra_ids = 0;
  void bind(Fields& f) {
    f("path", path, "the model file, or the folder that contains it")
        .required()
        .example("/models/Llama-2-7b-hf")
        .resume(ResumeClass::safe)  // the identity compares the contents
        .renamed_from({"tokenizer_model"})
        .input_path();
    f("extra_ids", extra_ids,
      "number of special tokens <extra_id_0>, <extra_id_1>, … after the file's tokens; "
      "<extra_id_0> has the largest id")
        .min(0)
        .max(10000)
        .example("100")
        .resume(ResumeClass::impossible)
        .renamed_from({"vocab_extra_ids"});
  }
};

struct LoadedModel {
  ModelFile file;
  PipelineParts parts;
};

std::unique_ptr<TokenTable> table_of(const ModelFile& file, const std::string& name) {
  auto out = std::make_unique<TokenTable>(file.pieces.size());
  for (const auto& piece : file.pieces) {
    const bool text = piece.type == PieceType::normal || piece.type == PieceType::byte;
    out->add(piece.text, out->size(), name, text);
  }
  return out;
}

/// Ranks by score; equal scores share a rank. Only for pieces that can result from text.
std::vector<uint32_t> ranks_of(const std::vector<Piece>& pieces) {
  std::vector<float> scores;
  for (const auto& piece : pieces)
    if (piece.type == PieceType::normal) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  std::vector<uint32_t> out;
  for (const auto& piece : pieces)
    out.push_back(piece.type != PieceType::normal
                      ? UINT32_MAX
                      : static_cast<uint32_t>(std::lower_bound(scores.begin(), scores.end(),
                                                               piece.score, std::greater<>()) -
                                              scores.begin()));
  return out;
}

void make_bpe(const ModelFile& file, const TokenTable& tokens, const std::string& name,
              PipelineParts& parts) {
  BpeOptions options;
  options.unknown = static_cast<int32_t>(file.unknown);
  options.fuse_unknown = true;
  options.byte_fallback = file.byte_fallback;
  auto merges = implied_merges(tokens, ranks_of(file.pieces));
  const std::string blank(kEscapedBlank);
  if (file.escape_blanks && tokens.find(blank) >= 0 && begins_words(tokens, merges, blank))
    parts.pre_tokenizer = split_before_runs(blank);
  parts.model = std::make_unique<Bpe>(tokens, std::move(merges), std::move(options), name);
}

void make_unigram(const ModelFile& file, const TokenTable& tokens, const std::string& name,
                  PipelineParts& parts) {
  UnigramOptions options;
  float lowest = 0;
  bool any = false;
  for (const auto& piece : file.pieces) {
    options.scores.push_back(piece.score);
    options.never.push_back(piece.type != PieceType::normal);
    if (piece.type != PieceType::normal) continue;
    lowest = any ? std::min(lowest, piece.score) : piece.score;
    any = true;
  }
  options.unknown = static_cast<int32_t>(file.unknown);
  options.unknown_score = lowest - kUnknownPenalty;
  options.byte_fallback = file.byte_fallback;
  options.single_precision = true;
  parts.model = std::make_unique<Unigram>(tokens, std::move(options), name);
}

void add_tokens(const ModelFile& file, int64_t extra_ids, PipelineParts& parts) {
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const auto& piece = file.pieces[i];
    const bool user = piece.type == PieceType::user_defined;
    if (!user && piece.type != PieceType::control) continue;
    AddedToken token{.text = piece.text, .id = static_cast<int32_t>(i), .special = !user};
    token.normalized = user;  // matched in the normalized text, where blanks are escaped
    parts.added.add(std::move(token));
  }
  const auto first = static_cast<int64_t>(file.pieces.size());
  for (int64_t i = 0; i < extra_ids; ++i)
    parts.added.add({.text = cat("<extra_id_", i, ">"),
                     .id = static_cast<int32_t>(first + extra_ids - 1 - i),
                     .special = true});
  parts.added.sort();
}

LoadedModel read(const SentencePieceConfig& config, const TokenizerContext& context) {
  const fs::path path = file_in(
      context.base_directory / config.path,
      {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "sentencepiece.model"});
  const std::string bytes = read_file(path, kPathHint), name = path.string();
  LoadedModel out{read_model_file(bytes, name), {}};
  const ModelFile& file = out.file;
  PipelineParts& parts = out.parts;
  auto tokens = table_of(file, name);
  file.kind == ModelKind::bpe ? make_bpe(file, *tokens, name, parts)
                              : make_unigram(file, *tokens, name, parts);
  parts.tokens = std::move(tokens);
  parts.normalizer = std::make_unique<SpmNormalizer>(file, name);
  add_tokens(file, config.extra_ids, parts);
  auto special = [&](int64_t id) {
    return parts.tokens->has(id) ? std::optional(static_cast<int32_t>(id)) : std::nullopt;
  };
  parts.bos = special(file.begin);
  parts.eod = special(file.end);
  parts.pad = special(file.pad);
  if (parts.bos)
    parts.before.push_back(*parts.bos);
  else if (parts.eod)
    parts.after.push_back(*parts.eod);
  parts.name = "sentencepiece";
  parts.folder = path.parent_path();
  parts.text_identity =
      cat("sentencepiece: ", file.pieces.size(), " pieces, file ", hex(hash_bytes(bytes)));
  parts.identity =
      cat(parts.text_identity, config.extra_ids ? cat(", ", config.extra_ids, " extra") : "");
  return out;
}

class SentencePieceTokenizer final : public TextPipeline {
 public:
  SentencePieceTokenizer(const SentencePieceConfig& config, TokenizerContext& context)
      : SentencePieceTokenizer(read_files("sentencepiece", context.base_directory / config.path,
                                          [&] { return read(config, context); })) {}

  std::string decode_bytes(std::span<const int32_t> ids) const override {
    std::string out, run;  // run: bytes of consecutive byte pieces
    bool at_begin = true, begin_seen = false;
    size_t run_pieces = 0;
    for (int32_t id : ids) {
      MT_USER_CHECK(id >= 0 && id < vocab_size(), ErrorClass::data,
                    cat("id ", id, " is outside the vocabulary of ", vocab_size(),
                        " of tokenizer sentencepiece"),
                    "");
      if (id >= static_cast<int32_t>(file_.pieces.size())) continue;
      const Piece& piece = file_.pieces[static_cast<size_t>(id)];
      if (piece.type == PieceType::byte && byte_token_value(piece.text) >= 0) {
        run += static_cast<char>(static_cast<unsigned char>(byte_token_value(piece.text)));
        ++run_pieces;
        continue;
      }
      finish_run(run, run_pieces, false, out);
      if (begin_seen || !out.empty()) at_begin = false;
      append_piece(piece, at_begin, begin_seen, out);
    }
    finish_run(run, run_pieces, true, out);
    return out;
  }

 private:
  explicit SentencePieceTokenizer(LoadedModel loaded)
      : TextPipeline(std::move(loaded.parts)), file_(std::move(loaded.file)) {}

  void append_piece(const Piece& piece, bool at_begin, bool& begin_seen, std::string& out) const {
    if (piece.type == PieceType::control) return;
    if (piece.type == PieceType::unknown) {
      out += file_.unknown_surface;
      return;
    }
    std::string_view text = piece.text;
    if (at_begin && (file_.add_dummy_prefix || file_.remove_extra_blanks) &&
        text.starts_with(kEscapedBlank)) {
      text.remove_prefix(kEscapedBlank.size());
      begin_seen = !file_.remove_extra_blanks;
    }
    for (size_t at = 0; at < text.size();) {
      const bool blank = text.substr(at).starts_with(kEscapedBlank);
      out += blank ? ' ' : text[at];
      at += blank ? kEscapedBlank.size() : 1;
    }
  }

  /// Bytes that form no character become U+FFFD each, as in SentencePiece; at the end of the text
  /// they are kept, since more bytes may follow.
  static void finish_run(std::string& run, size_t& pieces, bool at_end, std::string& out) {
    if (pieces == 0) return;
    out += at_end ? run : repair_utf8(run);
    run.clear();
    pieces = 0;
  }

  ModelFile file_;
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("sentencepiece", "SentencePiece's model files") {
  using namespace mtrain;
  registry.add<Tokenizer, SentencePieceTokenizer, SentencePieceConfig>(
      "sentencepiece", "SentencePiece's model files");
}
