#include "mtrain/data/sentences.h"

#include <unicode/ubrk.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>
#include <unicode/utf8.h>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

std::string_view without_blanks(std::string_view text) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  int32_t begin = 0, end = static_cast<int32_t>(text.size());
  while (begin < end) {
    int32_t at = begin;
    UChar32 c = 0;
    U8_NEXT(bytes, at, end, c);
    if (!u_isUWhiteSpace(c)) break;
    begin = at;
  }
  while (end > begin) {
    int32_t at = end;
    UChar32 c = 0;
    U8_PREV(bytes, begin, at, c);
    if (!u_isUWhiteSpace(c)) break;
    end = at;
  }
  return text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

}  // namespace

struct SentenceSplitter::Iterator {
  UBreakIterator* breaks = nullptr;
  UText* text = nullptr;
  Iterator() {
    UErrorCode status = U_ZERO_ERROR;
    breaks = ubrk_open(UBRK_SENTENCE, "", nullptr, 0, &status);
    MT_USER_CHECK(U_SUCCESS(status), ErrorClass::io,
                  cat("ICU has no rules for sentences: ", u_errorName(status)),
                  "install libicu with its data");
  }
  ~Iterator() {
    utext_close(text);
    ubrk_close(breaks);
  }
  Iterator(const Iterator&) = delete;
  Iterator& operator=(const Iterator&) = delete;
};

SentenceSplitter::SentenceSplitter() : iterator_(std::make_unique<Iterator>()) {}
SentenceSplitter::~SentenceSplitter() = default;

void SentenceSplitter::split(std::string_view text, std::vector<std::string_view>& out) {
  MT_USER_CHECK(
      text.size() <= INT32_MAX, ErrorClass::data,
      cat("a text of ", human_bytes(text.size()), " is too long to be split into sentences"), "");
  UErrorCode status = U_ZERO_ERROR;
  iterator_->text =
      utext_openUTF8(iterator_->text, text.data(), static_cast<int64_t>(text.size()), &status);
  ubrk_setUText(iterator_->breaks, iterator_->text, &status);
  MT_CHECK(U_SUCCESS(status), u_errorName(status));
  int32_t begin = 0;
  for (int32_t end = 0; (end = ubrk_next(iterator_->breaks)) != UBRK_DONE; begin = end) {
    const auto sentence =
        without_blanks(text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    if (!sentence.empty()) out.push_back(sentence);
  }
}

}  // namespace mtrain
