// Reads SentencePiece's .model: a protocol buffer. Reads only the needed fields.
// Nothing in it is trusted: every length is compared with the remaining bytes. Stateless;
// thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mtrain::sentencepiece {

enum class PieceType : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};
enum class ModelKind : uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::normal;
};

struct ModelFile {
  std::vector<Piece> pieces;
  ModelKind kind = ModelKind::unigram;
  bool byte_fallback = false, blank_as_suffix = false;
  int64_t unknown = 0, begin = 1, end = 2, pad = -1;
  std::string unknown_surface = " \xE2\x81\x87 ";  // its text in decoding
  std::string charsmap;                            // normalization rules; may be empty
  bool add_dummy_prefix = true, remove_extra_blanks = true, escape_blanks = true;
};

/// Throws Error(data) with the offset of the first byte that is not part of a valid model.
ModelFile read_model_file(std::string_view bytes, const std::string& name);

}  // namespace mtrain::sentencepiece
