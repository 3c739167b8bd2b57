// Normalizers that replace, insert or strip text.
#include <algorithm>

#include "mtrain/tokenize/byte_alphabet.h"
#include "mtrain/tokenize/normalizer.h"
#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {
namespace {

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(AlignedText& text) const override {
    const std::string_view in = text.text;
    const CharTable& table = CharTable::get();
    size_t begin = 0, end = in.size();
    if (left_)
      while (begin < end && table.is(decode_char(in, begin).value, kWhiteSpace))
        begin += char_bytes(in[begin]);
    while (right_ && end > begin) {
      size_t last = end - 1;
      while (last > begin && is_tail_byte(in[last])) --last;
      if (!table.is(decode_char(in, last).value, kWhiteSpace)) break;
      end = last;
    }
    if (begin == 0 && end == in.size()) return;
    TextEditor edit(text);
    edit.copy(begin, end);
    text = edit.take();
  }

 private:
  bool left_, right_;
};

class CleanNmt final : public Normalizer {
 public:
  void apply(AlignedText& text) const override {
    TextEditor edit(text);
    for (size_t at = 0; at < text.text.size();) {
      auto c = decode_char(text.text, at);
      if (blank(c.value))
        edit.put(" ", at);
      else if (!dropped(c.value))
        edit.copy(at, at + c.bytes);
      at += c.bytes;
    }
    text = edit.take();
  }

 private:
  static bool dropped(char32_t c) {
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
  }
  static bool blank(char32_t c) {
    return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
  }
};

class Replace final : public Normalizer {
 public:
  Replace(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(AlignedText& text) const override {
    TextEditor edit(text);
    size_t done = 0;
    pattern_.each(text.text, [&](size_t begin, size_t end) {
      edit.copy(done, begin);
      edit.put(content_, end - 1);
      done = end;
    });
    if (done == 0) return;
    edit.copy(done, text.text.size());
    text = edit.take();
  }

 private:
  Regex pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  void apply(AlignedText& text) const override {
    if (text.text.empty()) return;
    TextEditor edit(text);
    edit.put(text_, 0);
    edit.copy(0, text.text.size());
    text = edit.take();
  }

 private:
  std::string text_;
};

class BytesAsChars final : public Normalizer {
 public:
  void apply(AlignedText& text) const override {
    TextEditor edit(text);
    for (size_t at = 0; at < text.text.size(); ++at)
      edit.put(byte_chars()[static_cast<unsigned char>(text.text[at])], at);
    text = edit.take();
  }
};

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const BertCleaning& cleaning) : cleaning_(cleaning) {
    if (cleaning.strip_accents) {
      after_.push_back(normalize_unicode(UnicodeForm::nfd));
      after_.push_back(strip_accents());
    }
    if (cleaning.lowercase) after_.push_back(lowercase());
  }

  void apply(AlignedText& text) const override {
    const CharTable& table = CharTable::get();
    TextEditor edit(text);
    for (size_t at = 0; at < text.text.size();) {
      auto c = decode_char(text.text, at);
      const size_t end = at + c.bytes;
      const bool line = c.value == '\t' || c.value == '\n' || c.value == '\r';
      const bool junk = c.value == 0 || c.value == 0xFFFD || (!line && table.is(c.value, kControl));
      if (cleaning_.clean_text && junk) {
        at = end;
        continue;
      }
      const bool ideograph = cleaning_.space_ideographs && is_cjk_ideograph(c.value);
      if (ideograph) edit.put(" ", at);
      if (cleaning_.clean_text && table.is(c.value, kWhiteSpace))
        edit.put(" ", at);
      else
        edit.copy(at, end);
      if (ideograph) edit.put(" ", at);
      at = end;
    }
    text = edit.take();
    for (const auto& step : after_) step->apply(text);
  }

 private:
  BertCleaning cleaning_;
  std::vector<NormalizerPtr> after_;
};

class InTurn final : public Normalizer {
 public:
  explicit InTurn(std::vector<NormalizerPtr> steps) : steps_(std::move(steps)) {}
  void apply(AlignedText& text) const override {
    for (const auto& step : steps_) step->apply(text);
  }
  bool keeps(std::string_view text) const override {
    return std::all_of(steps_.begin(), steps_.end(),
                       [&](const auto& step) { return step->keeps(text); });
  }

 private:
  std::vector<NormalizerPtr> steps_;
};

}  // namespace

NormalizerPtr strip(bool left, bool right) { return std::make_unique<Strip>(left, right); }
NormalizerPtr clean_nmt() { return std::make_unique<CleanNmt>(); }
NormalizerPtr replace(Regex pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}
NormalizerPtr prepend(std::string text) { return std::make_unique<Prepend>(std::move(text)); }
NormalizerPtr bytes_as_chars() { return std::make_unique<BytesAsChars>(); }
NormalizerPtr bert_normalizer(const BertCleaning& cleaning) {
  return std::make_unique<BertNormalizer>(cleaning);
}
NormalizerPtr in_turn(std::vector<NormalizerPtr> steps) {
  return std::make_unique<InTurn>(std::move(steps));
}

}  // namespace mtrain::tokenize
