// Methods of texts, lists and maps.
#include <algorithm>
#include <cctype>
#include <map>

#include "interpreter.h"
#include "mtrain/base/error.h"

namespace mtrain::chat {

using VK = Value::Kind;

const Text& text_argument(const Value* value, const char* what) {
  if (value && value->is(VK::text)) return value->as_text();
  throw Fault("TypeError", cat(what, " must be str, not ", value ? value->type_name() : "nothing"));
}

int64_t integer_or(const Value* value, int64_t otherwise) {
  return value && (value->is(VK::integer) || value->is(VK::boolean)) ? value->as_integer()
                                                                     : otherwise;
}

namespace {

/// The character that begins at `i`, and its size in bytes. Broken UTF-8 counts byte by byte.
std::pair<uint32_t, size_t> character_at(std::string_view s, size_t i) {
  auto byte = [&](size_t k) { return static_cast<unsigned char>(s[k]); };
  size_t length = byte(i) < 0xC0 ? 1 : byte(i) < 0xE0 ? 2 : byte(i) < 0xF0 ? 3 : 4;
  if (i + length > s.size()) return {byte(i), 1};
  uint32_t code = length == 1 ? byte(i) : byte(i) & (0x7Fu >> length);
  for (size_t k = 1; k < length; ++k) code = (code << 6) | (byte(i + k) & 0x3Fu);
  return {code, length};
}

/// Python's str.isspace.
bool space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::vector<uint32_t> characters_of(std::string_view s) {
  Meter::made(2 * s.size());
  std::vector<uint32_t> out;
  for (size_t i = 0; i < s.size();) {
    auto [code, length] = character_at(s, i);
    out.push_back(code);
    i += length;
  }
  return out;
}

/// The parts between separators; without a separator, the words between white space.
List split(const Text& text, const Value* separator, int64_t most) {
  List out;
  const std::string& s = text.bytes;
  if (separator && !separator->is(VK::none)) {
    const std::string& by = text_argument(separator, "a separator").bytes;
    if (by.empty()) throw Fault("ValueError", "empty separator");
    size_t begin = 0;
    for (size_t end = find_in(s, by); end != std::string::npos && most != 0;
         end = find_in(s, by, begin), --most) {
      out.push_back(Value::text(text.sub(begin, end - begin)));
      begin = end + by.size();
    }
    out.push_back(Value::text(text.sub(begin)));
    return out;
  }
  auto gap = [&](size_t i) { return space(character_at(s, i).first); };
  Meter::read(s.size());
  for (size_t i = 0; i < s.size();) {
    if (gap(i)) {
      i += character_at(s, i).second;
      continue;
    }
    size_t begin = i;
    if (most-- == 0) {
      out.push_back(Value::text(strip(text.sub(begin), nullptr, false, true)));
      break;
    }
    while (i < s.size() && !gap(i)) i += character_at(s, i).second;
    out.push_back(Value::text(text.sub(begin, i - begin)));
  }
  return out;
}

List split_lines(const Text& text) {
  List out;
  Meter::read(text.bytes.size());
  for (size_t begin = 0; begin < text.bytes.size();) {
    size_t end = text.bytes.find_first_of("\r\n", begin);
    out.push_back(Value::text(text.sub(begin, end == std::string::npos ? end : end - begin)));
    if (end == std::string::npos) break;
    begin = end + (text.bytes.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return out;
}

bool affix(const Text& text, const Value* what, bool front) {
  if (what && what->is(VK::tuple))
    return std::any_of(what->items().begin(), what->items().end(),
                       [&](const Value& v) { return affix(text, &v, front); });
  const std::string& part = text_argument(what, "a prefix or suffix").bytes;
  Meter::read(part.size() + 4);
  return front ? text.bytes.starts_with(part) : text.bytes.ends_with(part);
}

bool all_of_class(const Text& text, int (*is)(int)) {
  Meter::read(text.bytes.size());
  return !text.bytes.empty() && std::all_of(text.bytes.begin(), text.bytes.end(), [is](char c) {
    return is(static_cast<unsigned char>(c)) != 0;
  });
}

using Method = Value (*)(Interpreter&, const Value&, Arguments&);

Value stripped(const Value& of, const Arguments& given, bool left, bool right) {
  const Value* set = given.get(0, "chars");
  bool chosen = set && !set->is(VK::none);
  return Value::text(
      strip(of.as_text(), chosen ? &text_argument(set, "strip arg").bytes : nullptr, left, right));
}

Value position(const Value& of, const Arguments& given) {
  const std::string& s = of.as_text().bytes;
  size_t at = find_in(s, text_argument(given.get(0, ""), "what is looked for").bytes);
  if (at == std::string::npos) return Value::integer(-1);
  return Value::integer(static_cast<int64_t>(characters(std::string_view(s).substr(0, at))));
}

Value occurrences(const Value& of, const Arguments& given) {
  const std::string& part = text_argument(given.get(0, ""), "what is counted").bytes;
  const std::string& s = of.as_text().bytes;
  if (part.empty()) return Value::integer(static_cast<int64_t>(characters(s)) + 1);
  int64_t n = 0;
  for (size_t at = find_in(s, part); at != std::string::npos;
       at = find_in(s, part, at + part.size()))
    ++n;
  return Value::integer(n);
}

const std::map<std::string, Method, std::less<>>& text_methods() {
  using I = Interpreter;
  using A = Arguments;
  static const std::map<std::string, Method, std::less<>> all = {
      {"strip", [](I&, const Value& of, A& a) { return stripped(of, a, true, true); }},
      {"lstrip", [](I&, const Value& of, A& a) { return stripped(of, a, true, false); }},
      {"rstrip", [](I&, const Value& of, A& a) { return stripped(of, a, false, true); }},
      {"split",
       [](I&, const Value& of, A& a) {
         return Value::list(
             split(of.as_text(), a.get(0, "sep"), integer_or(a.get(1, "maxsplit"), -1)));
       }},
      {"splitlines",
       [](I&, const Value& of, A&) { return Value::list(split_lines(of.as_text())); }},
      {"startswith", [](I&, const Value& of,
                        A& a) { return Value::boolean(affix(of.as_text(), a.get(0, ""), true)); }},
      {"endswith", [](I&, const Value& of,
                      A& a) { return Value::boolean(affix(of.as_text(), a.get(0, ""), false)); }},
      {"replace",
       [](I&, const Value& of, A& a) {
         return Value::text(replace(of.as_text(),
                                    text_argument(a.get(0, "old"), "what is replaced"),
                                    text_argument(a.get(1, "new"), "what replaces it"),
                                    integer_or(a.get(2, "count"), -1)));
       }},
      {"upper", [](I&, const Value& of, A&) { return Value::text(upper_case(of.as_text())); }},
      {"lower", [](I&, const Value& of, A&) { return Value::text(lower_case(of.as_text())); }},
      {"title", [](I&, const Value& of,
                   A&) { return Value::text(title_case(of.as_text(), WordStart::uncased)); }},
      {"capitalize", [](I&, const Value& of,
                        A&) { return Value::text(title_case(of.as_text(), WordStart::text)); }},
      {"find", [](I&, const Value& of, A& a) { return position(of, a); }},
      {"count", [](I&, const Value& of, A& a) { return occurrences(of, a); }},
      {"join",
       [](I& i, const Value& of, A& a) {
         Arguments given{{of}, {}};
         const Value* items = a.get(0, "iterable");
         if (!items) throw Fault("TypeError", "str.join() takes exactly one argument (0 given)");
         for (const Value& item : items->is(VK::list) ? items->items() : List{})
           (void)text_argument(&item, "joined items");
         return i.filter("join", *items, given);
       }},
      {"isdigit", [](I&, const Value& of,
                     A&) { return Value::boolean(all_of_class(of.as_text(), std::isdigit)); }},
      {"isalpha", [](I&, const Value& of,
                     A&) { return Value::boolean(all_of_class(of.as_text(), std::isalpha)); }},
      {"isspace", [](I&, const Value& of,
                     A&) { return Value::boolean(all_of_class(of.as_text(), std::isspace)); }},
  };
  return all;
}

Value key_list(const Value& of, bool keys, bool values) {
  List out;
  for (const auto& [key, value] : of.as_map().entries)
    out.push_back(keys && values ? Value::tuple({key, value}) : keys ? key : value);
  return Value::list(std::move(out));
}

const std::map<std::string, Method, std::less<>>& map_methods() {
  using I = Interpreter;
  using A = Arguments;
  static const std::map<std::string, Method, std::less<>> all = {
      {"items", [](I&, const Value& of, A&) { return key_list(of, true, true); }},
      {"keys", [](I&, const Value& of, A&) { return key_list(of, true, false); }},
      {"values", [](I&, const Value& of, A&) { return key_list(of, false, true); }},
      {"get",
       [](I&, const Value& of, A& a) {
         const Value *key = a.get(0, "key"), *otherwise = a.get(1, "default");
         if (!key) throw Fault("TypeError", "get expected at least 1 argument, got 0");
         const Value* found = of.as_map().find(*key);
         return found ? *found : otherwise ? *otherwise : Value();
       }},
  };
  return all;
}

const std::map<std::string, Method, std::less<>>& list_methods() {
  using I = Interpreter;
  using A = Arguments;
  static const std::map<std::string, Method, std::less<>> all = {
      {"index",
       [](I& i, const Value& of, A& a) {
         const Value* what = a.get(0, "");
         List items = i.iterate(of);
         auto at = std::find_if(items.begin(), items.end(),
                                [&](const Value& v) { return what && equal(v, *what); });
         if (at == items.end()) throw Fault("ValueError", "the item is not in the list");
         return Value::integer(at - items.begin());
       }},
      {"count",
       [](I& i, const Value& of, A& a) {
         const Value* what = a.get(0, "");
         List items = i.iterate(of);
         return Value::integer(std::count_if(
             items.begin(), items.end(), [&](const Value& v) { return what && equal(v, *what); }));
       }},
  };
  return all;
}

/// Python's methods that change the value; they exist but are refused.
bool changes(VK kind, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "extend", "insert", "remove",
                                               "pop",    "clear",  "sort",   "reverse"};
  static constexpr std::string_view kMap[] = {"pop", "popitem", "update", "clear", "setdefault"};
  auto has = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return kind == VK::list ? has(kList) : kind == VK::map && has(kMap);
}

}  // namespace

Value bound_method(Interpreter& interpreter, const Value& of, const std::string& name) {
  const std::map<std::string, Method, std::less<>>* all = nullptr;
  if (of.is(VK::text)) all = &text_methods();
  if (of.is(VK::map)) all = &map_methods();
  if (of.is(VK::list) || of.is(VK::tuple)) all = &list_methods();
  if (!all) return Value::missing("");
  if (auto found = all->find(name); found != all->end())
    return Value::callable(
        "builtin_function_or_method",
        [&interpreter, of, run = found->second](Arguments& a) { return run(interpreter, of, a); });
  if (!changes(of.kind(), name)) return Value::missing("");
  return Value::callable("builtin_function_or_method", [name](Arguments&) -> Value {
    throw Fault("SecurityError", cat("'", name, "' changes its value, which templates may not"));
  });
}

Text strip(const Text& text, const std::string* set, bool left, bool right) {
  std::string_view s = text.bytes;
  std::vector<uint32_t> chosen = set ? characters_of(*set) : std::vector<uint32_t>();
  auto goes = [&](uint32_t c) {
    Meter::read(1 + 4 * chosen.size());
    return set ? std::find(chosen.begin(), chosen.end(), c) != chosen.end() : space(c);
  };
  size_t begin = 0, end = s.size();
  while (left && begin < end) {
    auto [code, length] = character_at(s, begin);
    if (!goes(code)) break;
    begin += length;
  }
  while (right && end > begin) {
    size_t last = end - 1;
    while (last > begin && (s[last] & 0xC0) == 0x80) --last;
    if (!goes(character_at(s.substr(0, end), last).first)) break;
    end = last;
  }
  return text.sub(begin, end - begin);
}

Text replace(const Text& text, const Text& from, const Text& to, int64_t count) {
  Text out;
  size_t begin = 0;
  if (from.bytes.empty()) {  // between all characters
    for (size_t i = 0; i < text.bytes.size() && count != 0; --count) {
      size_t length = character_at(text.bytes, i).second;
      out.append(to);
      out.append(text.sub(i, length));
      begin = i += length;
    }
    if (count != 0) out.append(to);
    out.append(text.sub(begin));
    return out;
  }
  for (size_t at = find_in(text.bytes, from.bytes); at != std::string::npos && count != 0;
       at = find_in(text.bytes, from.bytes, begin), --count) {
    out.append(text.sub(begin, at - begin));
    out.append(to);
    begin = at + from.bytes.size();
  }
  out.append(text.sub(begin));
  return out;
}

}  // namespace mtrain::chat
