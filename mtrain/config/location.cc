#include "mtrain/config/location.h"

#include <algorithm>
#include <tuple>

#include "mtrain/base/text.h"

namespace mtrain {

std::string_view Source::line(int number) const {
  std::string_view rest = text_;
  for (int at = 1; at < number; ++at) {
    size_t end = rest.find('\n');
    if (end == std::string_view::npos) return {};
    rest.remove_prefix(end + 1);
  }
  std::string_view out = rest.substr(0, rest.find('\n'));
  if (!out.empty() && out.back() == '\r') out.remove_suffix(1);
  return out;
}

std::string Location::text() const {
  if (!source) return {};
  if (source->kind() != SourceKind::file || line == 0) return source->name();
  return cat(source->name(), ":", line, ":", column);
}

bool operator<(const Location& a, const Location& b) {
  auto rank = [](const Location& x) { return x.source ? static_cast<int>(x.source->kind()) : 3; };
  static const std::string kNone;
  auto name = [](const Location& x) -> const std::string& {
    return x.source ? x.source->name() : kNone;
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  // "argument 10" comes after "argument 2".
  if (name(a).size() != name(b).size() && rank(a) == 1) return name(a).size() < name(b).size();
  return std::tie(name(a), a.line, a.column) < std::tie(name(b), b.line, b.column);
}

Location locate(const SourcePtr& source, size_t offset) {
  std::string_view before = std::string_view(source->text()).substr(0, offset);
  auto line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
  size_t begin = before.rfind('\n');
  before.remove_prefix(begin == std::string_view::npos ? 0 : begin + 1);
  auto column = 1 + static_cast<int>(std::count_if(before.begin(), before.end(), [](char c) {
                  return (static_cast<unsigned char>(c) & 0xC0) !=
                         0x80;  // continuation bytes belong to the character before
                }));
  return {source, line, column};
}

}  // namespace mtrain
