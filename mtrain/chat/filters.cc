// Filters of chat templates: those of Jinja that templates use.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "interpreter.h"
#include "mtrain/base/error.h"

namespace mtrain::chat {

using VK = Value::Kind;

namespace {

using A = Arguments;
using I = Interpreter;
using Filter = Value (*)(I&, const Value&, A&);

Value text_value(const Text& text) { return Value::text(text); }

bool truth_or(const Value* value, bool otherwise) { return value ? value->truth() : otherwise; }

/// Reads "a.b" and 0 like Jinja's attribute arguments.
Value dotted(I& i, Value value, const Value& path) {
  if (!path.is(VK::text)) return i.item(value, path);
  Meter::made(path.as_text().bytes.size());
  for (const auto& part : mtrain::split(path.as_text().bytes, '.')) {
    bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos &&
                  part.size() < 18;
    value = i.item(value, number ? Value::integer(std::stoll(part)) : text_value(Text(part)));
  }
  return value;
}

Value length(I&, const Value& v, A&) {
  switch (v.kind()) {
    case VK::missing:
      return Value::integer(0);
    case VK::text:
      return Value::integer(static_cast<int64_t>(characters(v.as_text().bytes)));
    case VK::list:
    case VK::tuple:
      return Value::integer(static_cast<int64_t>(v.items().size()));
    case VK::map:
      return Value::integer(static_cast<int64_t>(v.as_map().entries.size()));
    default:
      throw Fault("TypeError", cat("object of type '", v.type_name(), "' has no len()"));
  }
}

Value items(I&, const Value& v, A&) {
  if (v.is(VK::missing)) return Value::generator({});
  if (!v.is(VK::map)) throw Fault("TypeError", "Can only get item pairs from a mapping.");
  List out;
  for (const auto& [key, value] : v.as_map().entries) out.push_back(Value::tuple({key, value}));
  return Value::generator(std::move(out));
}

Value join_items(I& i, const Value& v, A& a) {
  const Value *by = a.get(0, "d"), *attribute = a.get(1, "attribute");
  Text separator = by ? to_text(*by) : Text(), out;
  bool first = true;
  for (const Value& item : i.iterate(v)) {
    if (!std::exchange(first, false)) out.append(separator);
    out.append(to_text(attribute ? dotted(i, item, *attribute) : item));
  }
  return Value::text(std::move(out));
}

Value indent(I&, const Value& v, A& a) {
  const Value* width = a.get(0, "width");
  Text by =
      width && width->is(VK::text)
          ? width->as_text()
          : Text(std::string(
                static_cast<size_t>(std::clamp<int64_t>(integer_or(width, 4), 0, 4096)), ' '));
  bool first = truth_or(a.get(1, "first"), false), blank = truth_or(a.get(2, "blank"), false);
  Text text = to_text(v), out;
  text.append(Text("\n"));
  for (size_t begin = 0; begin < text.bytes.size();) {
    size_t end = text.bytes.find('\n', begin);
    bool leads = begin == 0 ? first : blank || end > begin;
    if (begin > 0) out.append(Text("\n"));
    if (leads) out.append(by);
    out.append(text.sub(begin, end - begin));
    begin = end + 1;
  }
  return Value::text(std::move(out));
}

Value tojson(I&, const Value& v, A& a) {
  const Value* width = a.get(1, "indent");  // after ensure_ascii, as in transformers
  if (!width && !a.positional.empty() && a.positional[0].is(VK::integer))
    width = a.positional.data();
  Text text = to_json(v, static_cast<int>(std::clamp<int64_t>(integer_or(width, -1), -1, 64)),
                      truth_or(a.get(9, "sort_keys"), false));
  return Value::text(std::move(text));
}

/// select, reject, selectattr, rejectattr: the items for which a test holds, or does not hold.
Value chosen(I& i, const Value& v, A& a, bool by_attribute, bool keep) {
  size_t used = by_attribute ? 1 : 0;
  if (a.positional.size() < used)
    throw Fault("FilterArgumentError", "Missing parameter for attribute name");
  List out;
  if (!v.truth()) return Value::generator({});  // even for a value that is not iterable
  Arguments rest;
  if (a.positional.size() > used + 1)
    rest.positional.assign(a.positional.begin() + static_cast<std::ptrdiff_t>(used) + 1,
                           a.positional.end());
  for (const Value& element : i.iterate(v)) {
    Value probe = by_attribute ? dotted(i, element, a.positional[0]) : element;
    bool holds = a.positional.size() > used
                     ? i.test(text_argument(&a.positional[used], "a test").bytes, probe, rest)
                     : probe.truth();
    if (holds == keep) out.push_back(element);
  }
  return Value::generator(std::move(out));
}

Value mapped(I& i, const Value& v, A& a) {
  const Value *attribute = a.get(99, "attribute"), *otherwise = a.get(99, "default");
  List out;
  if (!v.truth()) return Value::generator({});  // even for a value that is not iterable
  for (const Value& element : i.iterate(v)) {
    if (attribute) {
      Value found = dotted(i, element, *attribute);
      out.push_back(found.is(VK::missing) && otherwise ? *otherwise : found);
      continue;
    }
    if (a.positional.empty()) throw Fault("FilterArgumentError", "map requires a filter argument");
    Arguments rest{{a.positional.begin() + 1, a.positional.end()}, a.named};
    out.push_back(i.filter(text_argument(a.positional.data(), "a filter").bytes, element, rest));
  }
  return Value::generator(std::move(out));
}

Value sort_key(I& i, const Value& element, const Value* attribute, bool sensitive) {
  Value key = attribute ? dotted(i, element, *attribute) : element;
  return key.is(VK::text) && !sensitive ? text_value(lower_case(key.as_text())) : key;
}

Value sorted(I& i, const Value& v, A& a) {
  bool reverse = truth_or(a.get(0, "reverse"), false),
       sensitive = truth_or(a.get(1, "case_sensitive"), false);
  const Value* attribute = a.get(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& element : i.iterate(v)) {
    Value key = sort_key(i, element, attribute, sensitive);
    keyed.emplace_back(std::move(key), std::move(element));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [reverse](const auto& x, const auto& y) {
    return reverse ? less(y.first, x.first) : less(x.first, y.first);
  });
  List out;
  for (auto& entry : keyed) out.push_back(std::move(entry.second));
  return Value::list(std::move(out));
}

Value unique(I& i, const Value& v, A& a) {
  bool sensitive = truth_or(a.get(0, "case_sensitive"), false);
  const Value* attribute = a.get(1, "attribute");
  List seen, out;
  for (const Value& element : i.iterate(v)) {
    Value key = sort_key(i, element, attribute, sensitive);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& s) { return equal(s, key); }))
      continue;
    seen.push_back(std::move(key));
    out.push_back(element);
  }
  return Value::generator(std::move(out));
}

Value end_of(I& i, const Value& v, bool last) {
  List all = i.iterate(v);
  if (all.empty())
    return Value::missing(cat("No ", last ? "last" : "first", " item, sequence was empty."));
  return last ? all.back() : all.front();
}

Value reversed(I& i, const Value& v, A&) {
  List all = i.iterate(v);
  std::reverse(all.begin(), all.end());
  if (!v.is(VK::text)) return Value::generator(std::move(all));
  Text out;
  for (const Value& c : all) out.append(c.as_text());
  return Value::text(std::move(out));
}

Value extreme(I& i, const Value& v, A& a, bool largest) {
  List all = i.iterate(v);
  if (all.empty()) return Value::missing("No aggregated item, sequence was empty.");
  const Value* attribute = a.get(1, "attribute");
  bool sensitive = truth_or(a.get(0, "case_sensitive"), false);
  Value best = all[0], best_key = sort_key(i, best, attribute, sensitive);
  for (const Value& element : all) {
    Value key = sort_key(i, element, attribute, sensitive);
    if (largest ? less(best_key, key) : less(key, best_key))
      best = element, best_key = std::move(key);
  }
  return best;
}

Value to_integer(I&, const Value& v, A& a) {
  Value otherwise = a.get(0, "default") ? *a.get(0, "default") : Value::integer(0);
  if (v.is(VK::real))
    return std::fabs(v.as_real()) < 9e18 ? Value::integer(static_cast<int64_t>(v.as_real()))
                                         : otherwise;
  if (v.number()) return Value::integer(v.as_integer());
  if (!v.is(VK::text)) return otherwise;
  std::string text = strip(v.as_text(), nullptr, true, true).bytes;
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' || !(std::fabs(value) < 9e18)
             ? otherwise
             : Value::integer(static_cast<int64_t>(value));
}

Value to_real(I&, const Value& v, A& a) {
  Value otherwise = a.get(0, "default") ? *a.get(0, "default") : Value::real(0);
  if (v.number()) return Value::real(v.as_real());
  if (!v.is(VK::text)) return otherwise;
  std::string text = strip(v.as_text(), nullptr, true, true).bytes;
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' ? otherwise : Value::real(value);
}

Value rounded(I&, const Value& v, A& a) {
  if (!v.number())
    throw Fault("TypeError", cat("type ", v.type_name(), " doesn't define __round__ method"));
  double scale = std::pow(10.0, static_cast<double>(std::clamp<int64_t>(
                                    integer_or(a.get(0, "precision"), 0), -300, 300)));
  std::string method =
      a.get(1, "method") ? text_argument(a.get(1, "method"), "a method").bytes : "common";
  double x = v.as_real() * scale;
  return Value::real((method == "ceil"    ? std::ceil(x)
                      : method == "floor" ? std::floor(x)
                                          : std::nearbyint(x)) /
                     scale);
}

Value summed(I& i, const Value& v, A& a) {
  const Value* attribute = a.get(0, "attribute");
  Value total = a.get(1, "start") ? *a.get(1, "start") : Value::integer(0);
  for (const Value& element : i.iterate(v)) {
    Value next = attribute ? dotted(i, element, *attribute) : element;
    if (!total.number() || !next.number())
      throw Fault("TypeError", cat("unsupported operand type(s) for +: '", total.type_name(),
                                   "' and '", next.type_name(), "'"));
    bool real = total.is(VK::real) || next.is(VK::real);
    int64_t sum = 0;
    if (!real && __builtin_add_overflow(total.as_integer(), next.as_integer(), &sum))
      throw Fault("OverflowError", "a whole number beyond 64 bits");
    total = real ? Value::real(total.as_real() + next.as_real()) : Value::integer(sum);
  }
  return total;
}

Value replaced(I&, const Value& v, A& a) {
  Text out = replace(to_text(v), text_argument(a.get(0, "old"), "what is replaced"),
                     text_argument(a.get(1, "new"), "what replaces it"),
                     integer_or(a.get(2, "count"), -1));
  return Value::text(std::move(out));
}

Value trimmed(I&, const Value& v, A& a) {
  const Value* set = a.get(0, "chars");
  bool given = set && !set->is(VK::none);
  return text_value(
      strip(to_text(v), given ? &text_argument(set, "strip arg").bytes : nullptr, true, true));
}

Value or_default(I&, const Value& v, A& a) {
  bool falls = v.is(VK::missing) || (truth_or(a.get(1, "boolean"), false) && !v.truth());
  const Value* otherwise = a.get(0, "default_value");
  return !falls ? v : otherwise ? *otherwise : text_value(Text());
}

Value dict_sorted(I& i, const Value& v, A&) {
  if (!v.is(VK::map)) throw Fault("TypeError", "dictsort needs a mapping");
  Arguments by{{Value::boolean(false), Value::boolean(false), Value::integer(0)}, {}}, none;
  return sorted(i, items(i, v, none), by);
}

const std::map<std::string, Filter, std::less<>>& filters() {
  static const std::map<std::string, Filter, std::less<>> all = {
      {"abs",
       [](I&, const Value& v, A&) {
         if (v.is(VK::real)) return Value::real(std::fabs(v.as_real()));
         if (!v.number())
           throw Fault("TypeError", cat("bad operand type for abs(): '", v.type_name(), "'"));
         return Value::integer(std::abs(std::max(v.as_integer(), -INT64_MAX)));
       }},
      {"attr",
       [](I& i, const Value& v, A& a) {
         return i.attribute(v, text_argument(a.get(0, "name"), "a name").bytes);
       }},
      {"capitalize",
       [](I&, const Value& v, A&) { return text_value(title_case(to_text(v), WordStart::text)); }},
      {"count", length},
      {"d", or_default},
      {"default", or_default},
      {"dictsort", dict_sorted},
      {"first", [](I& i, const Value& v, A&) { return end_of(i, v, false); }},
      {"float", to_real},
      {"indent", indent},
      {"int", to_integer},
      {"items", items},
      {"join", join_items},
      {"last", [](I& i, const Value& v, A&) { return end_of(i, v, true); }},
      {"length", length},
      {"list", [](I& i, const Value& v, A&) { return Value::list(i.iterate(v)); }},
      {"lower", [](I&, const Value& v, A&) { return text_value(lower_case(to_text(v))); }},
      {"map", mapped},
      {"max", [](I& i, const Value& v, A& a) { return extreme(i, v, a, true); }},
      {"min", [](I& i, const Value& v, A& a) { return extreme(i, v, a, false); }},
      {"reject", [](I& i, const Value& v, A& a) { return chosen(i, v, a, false, false); }},
      {"rejectattr", [](I& i, const Value& v, A& a) { return chosen(i, v, a, true, false); }},
      {"replace", replaced},
      {"reverse", reversed},
      {"round", rounded},
      {"safe",
       [](I&, const Value& v, A&) {
         Text text = to_text(v);
         text.safe = true;
         return text_value(text);
       }},
      {"select", [](I& i, const Value& v, A& a) { return chosen(i, v, a, false, true); }},
      {"selectattr", [](I& i, const Value& v, A& a) { return chosen(i, v, a, true, true); }},
      {"sort", sorted},
      {"string", [](I&, const Value& v, A&) { return text_value(to_text(v)); }},
      {"sum", summed},
      {"title",
       [](I&, const Value& v, A&) { return text_value(title_case(to_text(v), WordStart::marks)); }},
      {"tojson", tojson},
      {"trim", trimmed},
      {"unique", unique},
      {"upper", [](I&, const Value& v, A&) { return text_value(upper_case(to_text(v))); }},
  };
  return all;
}

bool is_sequence(const Value& v) {
  return v.is(VK::list) || v.is(VK::tuple) || v.is(VK::text) || v.is(VK::map);
}

}  // namespace

Value Interpreter::filter(const std::string& name, const Value& input, Arguments& given) {
  auto found = filters().find(name);
  if (found == filters().end())
    throw Fault("TemplateAssertionError", cat("No filter named '", name, "'."));
  return found->second(*this, input, given);
}

bool Interpreter::test(const std::string& name, const Value& v, const Arguments& a) {
  const Value* other = a.get(0, "");
  auto needed = [&]() -> const Value& {
    if (!other) throw Fault("TypeError", cat("test '", name, "' needs an argument"));
    return *other;
  };
  if (name == "defined") return !v.is(VK::missing);
  if (name == "undefined") return v.is(VK::missing);
  if (name == "none") return v.is(VK::none);
  if (name == "string") return v.is(VK::text);
  if (name == "mapping") return v.is(VK::map);
  if (name == "sequence") return is_sequence(v);
  if (name == "iterable") return is_sequence(v) || v.is(VK::generator) || v.is(VK::missing);
  if (name == "number") return v.number();
  if (name == "integer") return v.is(VK::integer);
  if (name == "float") return v.is(VK::real);
  if (name == "boolean") return v.is(VK::boolean);
  if (name == "true" || name == "false")
    return v.is(VK::boolean) && v.as_bool() == (name == "true");
  if (name == "callable") return v.is(VK::callable);
  if (name == "in") return contains(needed(), v);
  if (name == "eq" || name == "equalto" || name == "sameas") return equal(v, needed());
  if (name == "ne") return !equal(v, needed());
  if (name == "lt" || name == "lessthan") return less(v, needed());
  if (name == "gt" || name == "greaterthan") return less(needed(), v, ">");
  if (name == "le") return !less(needed(), v, "<=");
  if (name == "ge") return !less(v, needed(), ">=");
  if (name == "even" || name == "odd" || name == "divisibleby") {
    int64_t by = name == "divisibleby" ? needed().as_integer() : 2;
    if (!v.is(VK::integer) || by == 0 || by == -1) return v.is(VK::integer) && by == -1;
    return (v.as_integer() % by == 0) != (name == "odd");
  }
  if (name == "lower" || name == "upper") {
    Text text = to_text(v);
    return (name == "upper" ? upper_case(text) : lower_case(text)).bytes == text.bytes;
  }
  throw Fault("TemplateAssertionError", cat("No test named '", name, "'."));
}

}  // namespace mtrain::chat
