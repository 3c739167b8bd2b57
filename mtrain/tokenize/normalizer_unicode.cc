// The Unicode normalization forms, and normalizers that use character properties.
#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <optional>

#include "mtrain/base/error.h"
#include "mtrain/tokenize/normalizer.h"
#include "mtrain/tokenize/unicode.h"

namespace mtrain::tokenize {
namespace {

void check(UErrorCode code) { MT_CHECK(U_SUCCESS(code), "ICU: ", u_errorName(code)); }

const icu::Normalizer2& instance(UnicodeForm form) {
  UErrorCode code = U_ZERO_ERROR;
  const icu::Normalizer2* out = form == UnicodeForm::nfc   ? icu::Normalizer2::getNFCInstance(code)
                                : form == UnicodeForm::nfd ? icu::Normalizer2::getNFDInstance(code)
                                : form == UnicodeForm::nfkc
                                    ? icu::Normalizer2::getNFKCInstance(code)
                                    : icu::Normalizer2::getNFKDInstance(code);
  check(code);
  return *out;
}

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<signed char>(c) < 0; });
}

struct OrderedChar {
  CharChange at;
  uint8_t combining_class;
};

/// The decomposed text in canonical order, each character with its change.
std::vector<OrderedChar> decompose(std::string_view text, const icu::Normalizer2& forms) {
  std::vector<OrderedChar> out;
  icu::UnicodeString parts;
  auto push = [&](UChar32 c, int change) {
    out.push_back({{static_cast<char32_t>(c), change}, u_getCombiningClass(c)});
  };
  for (size_t at = 0; at < text.size();) {
    auto c = decode_char(text, at);
    at += c.bytes;
    if (!forms.getDecomposition(static_cast<UChar32>(c.value), parts)) {
      push(static_cast<UChar32>(c.value), 0);
      continue;
    }
    for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1))
      push(parts.char32At(i), i == 0 ? 0 : 1);
  }
  for (size_t begin = 0; begin < out.size();) {
    size_t end = begin + 1;
    if (out[begin].combining_class != 0) {
      while (end < out.size() && out[end].combining_class != 0) ++end;
      std::stable_sort(
          out.begin() + static_cast<std::ptrdiff_t>(begin),
          out.begin() + static_cast<std::ptrdiff_t>(end),
          [](const auto& a, const auto& b) { return a.combining_class < b.combining_class; });
    }
    begin = end;
  }
  return out;
}

/// Canonical composition (UAX #15, section 1.3): a character joins the last starter unless
/// something between blocks it.
std::vector<CharChange> compose(const std::vector<OrderedChar>& in, const icu::Normalizer2& forms) {
  std::vector<CharChange> out;
  std::optional<size_t> starter;
  int last_class = -1;  // combining class of the last character after the starter; -1: none
  for (const auto& c : in) {
    const bool free = starter && (last_class < 0 || last_class < c.combining_class);
    const UChar32 joined = !free ? U_SENTINEL
                                 : forms.composePair(static_cast<UChar32>(out[*starter].value),
                                                     static_cast<UChar32>(c.at.value));
    if (joined >= 0) {
      out[*starter] = {static_cast<char32_t>(joined), out[*starter].change + c.at.change - 1};
      continue;
    }
    if (c.combining_class == 0) {
      starter = out.size();
      last_class = -1;
    } else if (starter) {
      last_class = c.combining_class;
    }
    out.push_back(c.at);
  }
  return out;
}

class UnicodeNormalizer final : public Normalizer {
 public:
  explicit UnicodeNormalizer(UnicodeForm form) : form_(form), forms_(instance(form)) {}

  bool keeps(std::string_view text) const override {
    if (is_ascii(text)) return true;
    UErrorCode code = U_ZERO_ERROR;
    const bool same =
        forms_.isNormalizedUTF8({text.data(), static_cast<int32_t>(text.size())}, code) != 0;
    check(code);
    return same;
  }

  void apply(AlignedText& text) const override {
    if (keeps(text.text)) return;
    if (!text.aligned) {
      std::string out;
      UErrorCode code = U_ZERO_ERROR;
      icu::StringByteSink<std::string> sink(&out);
      forms_.normalizeUTF8(0, {text.text.data(), static_cast<int32_t>(text.text.size())}, sink,
                           nullptr, code);
      check(code);
      text.text = std::move(out);
      return;
    }
    auto parts = decompose(text.text, forms_);
    std::vector<CharChange> changes;
    if (form_ == UnicodeForm::nfc || form_ == UnicodeForm::nfkc)
      changes = compose(parts, forms_);
    else
      for (const auto& part : parts) changes.push_back(part.at);
    transform(text, changes);
  }

 private:
  UnicodeForm form_;
  const icu::Normalizer2& forms_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(AlignedText& text) const override {
    TextEditor edit(text);
    std::u32string lower;
    const std::string_view in = text.text;
    for (size_t at = 0; at < in.size();) {
      auto c = decode_char(in, at);
      if (c.value < 0x80) {
        const char ascii = in[at] >= 'A' && in[at] <= 'Z' ? static_cast<char>(in[at] + 32) : in[at];
        edit.put(std::string_view(&ascii, 1), at);
      } else {
        lower.clear();
        append_lower(lower, c.value);
        for (char32_t l : lower) edit.put(l, at);
      }
      at += c.bytes;
    }
    text = edit.take();
  }
};

/// Keeps the characters for which `Keep` is true.
template <class Keep>
class Filter final : public Normalizer {
 public:
  explicit Filter(Keep keep) : keep_(keep) {}
  void apply(AlignedText& text) const override {
    TextEditor edit(text);
    for (size_t at = 0; at < text.text.size();) {
      auto c = decode_char(text.text, at);
      if (keep_(c.value)) edit.copy(at, at + c.bytes);
      at += c.bytes;
    }
    text = edit.take();
  }

 private:
  Keep keep_;
};

}  // namespace

NormalizerPtr normalize_unicode(UnicodeForm form) {
  return std::make_unique<UnicodeNormalizer>(form);
}

NormalizerPtr lowercase() { return std::make_unique<Lowercase>(); }

NormalizerPtr strip_accents() {
  auto keep = [](char32_t c) { return !CharTable::get().is(c, kNonspacing); };
  return std::make_unique<Filter<decltype(keep)>>(keep);
}

void transform(AlignedText& text, const std::vector<CharChange>& changes, size_t skipped) {
  const std::string_view in = text.text;
  TextEditor edit(text);
  size_t at = 0;
  auto skip = [&](size_t chars) {
    for (; chars > 0 && at < in.size(); --chars) at += char_bytes(in[at]);
  };
  skip(skipped);
  for (const auto& c : changes) {
    if (c.change > 0)
      edit.put(c.value, at == 0 ? 0 : at - 1);
    else
      edit.put(c.value, std::min(at, in.size() - 1));
    if (c.change <= 0) skip(static_cast<size_t>(1 - c.change));
  }
  text = edit.take();
}

}  // namespace mtrain::tokenize
