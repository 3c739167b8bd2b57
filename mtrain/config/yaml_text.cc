#include "mtrain/config/yaml_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "mtrain/base/text.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kMaxCharacterErrors = 20;
constexpr size_t kBlock = 256;  // bytes between two known character counts

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

/// True when every second byte at the beginning is 0.
bool is_utf16(std::string_view raw) {
  if (raw.starts_with("\xFE\xFF") || raw.starts_with("\xFF\xFE")) return true;
  if (raw.size() < 4 || (raw[0] == 0) == (raw[1] == 0)) return false;
  return (raw[0] == 0) == (raw[2] == 0) && (raw[1] == 0) == (raw[3] == 0);
}

/// True for binary files such as weights, archives and images: they have many control characters.
bool is_binary(std::string_view raw) {
  constexpr size_t kLooked = 1024, kFew = 4, kShare = 20;
  const std::string_view begin = raw.substr(0, kLooked);
  const auto controls =
      static_cast<size_t>(std::count_if(begin.begin(), begin.end(), [](unsigned char c) {
        return c == 0x7F || (c < 0x20 && c != '\t' && c != '\n' && c != '\r');
      }));
  return controls >= kFew && controls * kShare > begin.size();
}
}  // namespace

TextIndex::TextIndex(SourcePtr source)
    : source_(std::move(source)), text_(source_->text()), lines_{0} {
  if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  size_t characters = 0;
  for (size_t i = 0; i < text_.size(); ++i) {
    if (i % kBlock == 0) characters_.push_back(characters);
    characters += starts_character(text_[i]);
    if (text_[i] == '\n') lines_.push_back(i + 1);
  }
  characters_.push_back(characters);
}

size_t TextIndex::characters_before(size_t offset) const {
  size_t block = offset / kBlock, count = characters_[block];
  for (size_t i = block * kBlock; i < offset; ++i) count += starts_character(text_[i]);
  return count;
}

Location TextIndex::place(size_t offset) const {
  offset = std::min(offset, text_.size());
  auto line = std::upper_bound(lines_.begin(), lines_.end(), offset) - lines_.begin();
  size_t begin = line_begin(offset);
  size_t characters = characters_before(offset) - characters_before(begin);
  return {source_, static_cast<int>(line), static_cast<int>(characters) + 1};
}

bool TextIndex::check_characters(Report& report) const {
  std::string_view raw = source_->text();
  if (is_utf16(raw)) {
    report.error("yaml-encoding", "", {source_, 1, 1}, "the file is in UTF-16 or UTF-32")
        .fix("save it as UTF-8");
    return false;
  }
  if (is_binary(raw)) {
    report.error("yaml-encoding", "", {source_, 0, 0}, "the file is binary, not a recipe")
        .fix("a recipe is a text file in YAML");
    return false;
  }
  size_t bad = 0;
  if (!valid_utf8(text_, &bad)) {
    report
        .error("yaml-encoding", "", place(bad),
               fmt::format("the byte 0x{:02x} is not UTF-8",
                           static_cast<unsigned>(static_cast<unsigned char>(text_[bad]))))
        .fix("save the file as UTF-8");
    return false;
  }
  size_t errors = 0;
  for (size_t i = 0; i < text_.size() && errors < kMaxCharacterErrors; ++i) {
    auto c = static_cast<unsigned char>(text_[i]);
    bool line_end = c == '\n' || (c == '\r' && i + 1 < text_.size() && text_[i + 1] == '\n');
    if ((c >= 0x20 && c != 0x7F) || c == '\t' || line_end) continue;
    ++errors;
    report
        .error("yaml-encoding", "", place(i),
               fmt::format("the control character 0x{:02x}", static_cast<unsigned>(c)))
        .fix(c == '\r'
                 ? "end lines with a line feed (0x0a) instead, here and wherever there is a 0x0d"
                 : "remove it; in double quotes it can be written as an escape");
    if (c == '\r') break;
  }
  return errors == 0;
}

std::vector<size_t> TextIndex::deceptive_offsets() const {
  std::vector<size_t> out;
  for (size_t i = 0; i < text_.size();) {
    if (static_cast<unsigned char>(text_[i]) < 0x80) {
      ++i;
      continue;
    }
    size_t begin = i;
    if (deceptive(next_character(text_, i))) out.push_back(begin);
  }
  return out;
}

size_t TextIndex::quoted_end(size_t offset) const {
  size_t i = offset;
  // Skip "!tag " and "&anchor ".
  while (i < text_.size() && (text_[i] == '!' || text_[i] == '&')) {
    while (i < text_.size() && text_[i] != ' ' && text_[i] != '\n') ++i;
    while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\n' || text_[i] == '\r')) ++i;
  }
  if (i >= text_.size() || (text_[i] != '"' && text_[i] != '\'')) return offset;
  char quote = text_[i];
  for (++i; i < text_.size(); ++i) {
    if (quote == '"' && text_[i] == '\\')
      ++i;
    else if (text_[i] == quote && quote == '\'' && i + 1 < text_.size() && text_[i + 1] == '\'')
      ++i;
    else if (text_[i] == quote)
      return i + 1;
  }
  return text_.size() + 1;
}

size_t TextIndex::line_begin(size_t offset) const {
  return *std::prev(std::upper_bound(lines_.begin(), lines_.end(), offset));
}

bool TextIndex::first_on_line(size_t offset) const {
  size_t begin = line_begin(offset);
  return text_.substr(begin, offset - begin).find_first_not_of(" \t") == std::string_view::npos;
}

std::optional<size_t> TextIndex::tab_in_indentation(size_t offset) const {
  for (size_t i = line_begin(offset); i < text_.size(); ++i) {
    if (text_[i] == '\t') return i;
    if (text_[i] != ' ') break;
  }
  return std::nullopt;
}

}  // namespace mtrain
