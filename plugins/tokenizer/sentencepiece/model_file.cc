#include "model_file.h"

#include <cmath>
#include <cstring>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/tokenize/token_table.h"

namespace mtrain::sentencepiece {
namespace {

constexpr const char* kDamagedModel = "the model file is damaged or of another kind: get it again";

/// The fields of one message, in the wire format of protocol buffers.
class MessageFields {
 public:
  MessageFields(std::string_view bytes, size_t offset, const std::string& name)
      : bytes_(bytes), offset_(offset), name_(name) {}

  /// Moves to the next field; returns false at the end.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const uint64_t key = varint();
    number_ = key >> 3;
    wire_ = static_cast<int>(key & 7);
    if (number_ == 0) fail("a field has the number 0");
    begin_ = at_;
    switch (wire_) {
      case 0:
        value_ = varint();
        break;
      case 1:
        take(8);
        break;
      case 2: {
        const uint64_t size = varint();
        begin_ = at_;
        take(size);
        break;
      }
      case 5:
        take(4);
        break;
      default:
        fail(cat("a field has the unknown wire type ", wire_));
    }
    return true;
  }
  uint64_t number() const { return number_; }

  std::string_view text() const { return want(2), bytes_.substr(begin_, at_ - begin_); }
  MessageFields message() const { return {text(), offset_ + begin_, name_}; }
  int64_t integer() const { return want(0), static_cast<int64_t>(value_); }
  int32_t integer32() const { return static_cast<int32_t>(integer()); }
  bool flag() const { return integer() != 0; }
  float real() const {
    want(5);
    float out = 0;
    std::memcpy(&out, bytes_.data() + begin_, 4);
    return out;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorClass::data,
                cat(name_, " is not a SentencePiece model: at byte ", offset_ + at_, " ", what),
                kDamagedModel);
  }

 private:
  void want(int wire) const {
    if (wire_ != wire) fail(cat("field ", number_, " has the wire type ", wire_, ", not ", wire));
  }
  void take(uint64_t size) {
    if (size > bytes_.size() - at_)
      fail(cat("field ", number_, " is longer than the rest of the file"));
    at_ += size;
  }
  uint64_t varint() {
    uint64_t out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) fail("a number is truncated");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      out |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return out;
    }
    fail("a number has more than 64 bits");
  }

  std::string_view bytes_;
  size_t offset_, at_ = 0, begin_ = 0;
  const std::string& name_;
  uint64_t number_ = 0, value_ = 0;
  int wire_ = 0;
};

Piece read_piece(MessageFields fields, size_t index) {
  Piece out;
  while (fields.next()) {
    if (fields.number() == 1) out.text = fields.text();
    if (fields.number() == 2) out.score = fields.real();
    if (fields.number() == 3) {
      const int64_t type = fields.integer();
      if (type < 1 || type > 6) fields.fail(cat("piece ", index, " is of the unknown type ", type));
      out.type = static_cast<PieceType>(type);
    }
  }
  if (out.text.empty()) fields.fail(cat("piece ", index, " has no text"));
  if (!valid_utf8(out.text)) fields.fail(cat("piece ", index, " is not UTF-8"));
  if (!std::isfinite(out.score)) fields.fail(cat("piece ", index, " has no finite score"));
  return out;
}

void read_trainer(MessageFields fields, ModelFile& out) {
  while (fields.next()) switch (fields.number()) {
      case 3: {
        const int64_t kind = fields.integer();
        if (kind < 1 || kind > 4) fields.fail(cat("the model is of the unknown type ", kind));
        out.kind = static_cast<ModelKind>(kind);
        break;
      }
      case 24:
        out.blank_as_suffix = fields.flag();
        break;
      case 35:
        out.byte_fallback = fields.flag();
        break;
      case 40:
        out.unknown = fields.integer32();
        break;
      case 41:
        out.begin = fields.integer32();
        break;
      case 42:
        out.end = fields.integer32();
        break;
      case 43:
        out.pad = fields.integer32();
        break;
      case 44:
        out.unknown_surface = fields.text();
        break;
      default:
        break;
    }
}

void read_normalizer(MessageFields fields, ModelFile& out) {
  while (fields.next()) switch (fields.number()) {
      case 2:
        out.charsmap = fields.text();
        break;
      case 3:
        out.add_dummy_prefix = fields.flag();
        break;
      case 4:
        out.remove_extra_blanks = fields.flag();
        break;
      case 5:
        out.escape_blanks = fields.flag();
        break;
      default:
        break;
    }
}

}  // namespace

ModelFile read_model_file(std::string_view bytes, const std::string& name) {
  ModelFile out;
  MessageFields fields(bytes, 0, name);
  while (fields.next()) {
    if (fields.number() == 1) {
      if (out.pieces.size() >= static_cast<size_t>(tokenize::TokenTable::kMaxTokens))
        fields.fail("there are too many pieces");
      out.pieces.push_back(read_piece(fields.message(), out.pieces.size()));
    }
    if (fields.number() == 2) read_trainer(fields.message(), out);
    if (fields.number() == 3) read_normalizer(fields.message(), out);
  }
  auto check = [&](bool good, const std::string& what) {
    MT_USER_CHECK(good, ErrorClass::data, cat(name, " is not a SentencePiece model: ", what),
                  kDamagedModel);
  };
  check(!out.pieces.empty(), "it has no pieces");
  check(out.kind == ModelKind::unigram || out.kind == ModelKind::bpe,
        "word and character models are not supported; unigram and BPE models are");
  bool unknown = false;
  for (size_t i = 0; i < out.pieces.size(); ++i) {
    if (out.pieces[i].type != PieceType::unknown) continue;
    check(!unknown, "there are two unknown pieces");
    unknown = true;
    out.unknown = static_cast<int64_t>(i);
  }
  check(unknown, "there is no unknown piece");
  return out;
}

}  // namespace mtrain::sentencepiece
