// Expressions of a chat template, with Python's meaning.
#include <algorithm>
#include <cmath>

#include "interpreter.h"
#include "mtrain/base/error.h"

namespace mtrain::chat {

using VK = Value::Kind;
using EK = Expression::Kind;

namespace {

[[noreturn]] void undefined(const Value& value) { throw Fault("UndefinedError", value.why()); }
void need(const Value& value) {
  if (value.is(VK::missing)) undefined(value);
}
bool sequence(const Value& v) { return v.is(VK::list) || v.is(VK::tuple); }

/// Python's name of a type in messages about missing attributes.
std::string object_name(const Value& v) {
  return v.is(VK::none) ? "'None'" : cat("'", v.type_name(), " object'");
}

int64_t whole(const Value& v, const char* what) {
  if (!v.is(VK::integer) && !v.is(VK::boolean))
    throw Fault("TypeError", cat(what, " must be integers, not ", v.type_name()));
  return v.as_integer();
}

}  // namespace

size_t characters(std::string_view utf8) {
  Meter::read(utf8.size());
  return static_cast<size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

size_t offset_of(std::string_view utf8, size_t character) {
  size_t i = 0;
  for (; i < utf8.size(); ++i)
    if ((utf8[i] & 0xC0) != 0x80 && character-- == 0) break;
  Meter::read(i);
  return i;
}

List Interpreter::iterate(const Value& value) {
  switch (value.kind()) {
    case VK::missing:
      return {};
    case VK::list:
    case VK::tuple:
      Meter::elements(value.items().size());
      return value.items();
    case VK::map: {
      Meter::elements(value.as_map().entries.size());
      List keys;
      for (const auto& entry : value.as_map().entries) keys.push_back(entry.first);
      return keys;
    }
    case VK::generator: {
      Generator& g = value.as_generator();
      if (std::exchange(g.spent, true)) return {};
      Meter::elements(g.items.size());
      return g.items;
    }
    case VK::text: {
      const Text& text = value.as_text();
      List out;
      Meter::elements(text.bytes.size());
      for (size_t i = 0, end = 0; i < text.bytes.size(); i = end) {
        end = i + 1;
        while (end < text.bytes.size() && (text.bytes[end] & 0xC0) == 0x80) ++end;
        out.push_back(Value::text(text.sub(i, end - i)));
      }
      return out;
    }
    default:
      throw Fault("TypeError", cat("'", value.type_name(), "' object is not iterable"));
  }
}

Value Interpreter::eval(const Expression& e, Scope& scope) {
  Deeper deeper(*this);
  Meter::steps(1);
  Value value = eval_node(e, scope);
  at_ = e.place;
  return value;
}

Value Interpreter::eval_node(const Expression& e, Scope& scope) {
  at_ = e.place;
  auto part = [&](size_t i) { return eval(*e.parts[i], scope); };
  auto parts = [&] {
    List items;
    for (const auto& p : e.parts) items.push_back(eval(*p, scope));
    return items;
  };
  switch (e.kind) {
    case EK::literal:
      return e.value;
    case EK::name: {
      const Value* value = scope.find(e.name);
      return value ? *value : Value::missing(cat("'", e.name, "' is undefined"));
    }
    case EK::list:
      return Value::list(parts());
    case EK::tuple:
      return Value::tuple(parts());
    case EK::map:
      return eval_map(e, scope);
    case EK::attribute:
      return attribute(part(0), e.name);
    case EK::item: {
      Value of = part(0);
      return item(of, part(1));
    }
    case EK::slice:
      return slice(e, scope);
    case EK::call:
      return eval_call(e, scope);
    case EK::filter:
      return eval_filter(e, scope);
    case EK::test:
      return eval_test(e, scope);
    case EK::unary:
      return unary(e.name, part(0));
    case EK::binary: {
      Value a = part(0), b = part(1);
      at_ = e.place;
      return binary(e.name, a, b);
    }
    case EK::compare:
      return eval_compare(e, scope);
    case EK::both: {
      Value a = part(0);
      return a.truth() ? part(1) : a;
    }
    case EK::either: {
      Value a = part(0);
      return a.truth() ? a : part(1);
    }
    case EK::choice:
      if (part(0).truth()) return part(1);
      if (e.parts.size() > 2) return part(2);
      return Value::missing(
          "the inline if-expression evaluated to false and no else section was defined.");
  }
  return {};
}

Value Interpreter::eval_map(const Expression& e, Scope& scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i < e.parts.size(); i += 2) {
    Value key = eval(*e.parts[i], scope);
    if (!key.is(VK::text) && !key.number() && !key.is(VK::none))
      throw Fault("TypeError", cat("unhashable type: '", key.type_name(), "'"));
    entries.emplace_back(std::move(key), eval(*e.parts[i + 1], scope));
  }
  return Value::map(std::move(entries));
}

Value Interpreter::eval_filter(const Expression& e, Scope& scope) {
  Value input = e.parts[0] ? eval(*e.parts[0], scope) : Value::text(*block_text_);
  Arguments given = arguments(e.arguments, scope);
  at_ = e.place;
  return filter(e.name, input, given);
}

Value Interpreter::eval_test(const Expression& e, Scope& scope) {
  Value input = eval(*e.parts[0], scope);
  Arguments given = arguments(e.arguments, scope);
  at_ = e.place;
  return Value::boolean(test(e.name, input, given));
}

Arguments Interpreter::arguments(const CallArguments& given, Scope& scope) {
  Arguments out;
  for (const auto& e : given.positional) out.positional.push_back(eval(*e, scope));
  for (const auto& [name, e] : given.named) out.named.emplace_back(name, eval(*e, scope));
  return out;
}

Value Interpreter::eval_call(const Expression& e, Scope& scope) {
  Value function = eval(*e.parts[0], scope);
  Arguments given = arguments(e.arguments, scope);
  at_ = e.place;
  return call(function, given);
}

Value Interpreter::call(const Value& function, Arguments& given) {
  need(function);
  if (!function.is(VK::callable))
    throw Fault("TypeError", cat("'", function.type_name(), "' object is not callable"));
  return function.as_callable().call(given);
}

Value Interpreter::attribute(const Value& of, const std::string& name) {
  need(of);
  if (of.is(VK::space)) {
    if (Value* found = of.as_map().find(name)) return *found;
  } else if (Value method = bound_method(*this, of, name); !method.is(VK::missing)) {
    return method;  // takes precedence over the items of a map, like Python's attributes
  } else if (of.is(VK::map)) {
    if (Value* found = of.as_map().find(name)) return *found;
  }
  return Value::missing(cat(object_name(of), " has no attribute '", name, "'"));
}

Value Interpreter::item(const Value& of, const Value& key) {
  need(of);
  if (of.is(VK::map)) {
    if (Value* found = of.as_map().find(key)) return *found;
  } else if ((sequence(of) || of.is(VK::text)) && (key.is(VK::integer) || key.is(VK::boolean))) {
    auto count =
        static_cast<int64_t>(of.is(VK::text) ? characters(of.as_text().bytes) : of.items().size());
    int64_t index = key.as_integer() < 0 ? key.as_integer() + count : key.as_integer();
    if (index >= 0 && index < count) {
      auto i = static_cast<size_t>(index);
      if (sequence(of)) return of.items()[i];
      const Text& text = of.as_text();
      size_t begin = offset_of(text.bytes, i);
      return Value::text(text.sub(begin, offset_of(text.bytes, i + 1) - begin));
    }
  }
  if (key.is(VK::text)) return attribute(of, key.as_text().bytes);
  return Value::missing(cat(object_name(of), " has no element ", repr(key).bytes));
}

Value Interpreter::slice(const Expression& e, Scope& scope) {
  Value of = eval(*e.parts[0], scope);
  need(of);
  if (!sequence(of) && !of.is(VK::text))
    throw Fault("TypeError", cat("'", of.type_name(), "' object is not subscriptable"));
  List items = iterate(of);
  auto count = static_cast<int64_t>(items.size());
  auto bound = [&](size_t i) { return e.parts[i] ? eval(*e.parts[i], scope) : Value(); };
  Value from = bound(1), to = bound(2), by = bound(3);
  int64_t stride = by.is(VK::none) ? 1 : whole(by, "slice indices");
  if (stride == 0) throw Fault("ValueError", "slice step cannot be zero");
  auto place = [&](const Value& v, int64_t otherwise) {
    if (v.is(VK::none)) return otherwise;
    int64_t i = whole(v, "slice indices");
    if (i < 0) i += count;
    return stride > 0 ? std::clamp<int64_t>(i, 0, count) : std::clamp<int64_t>(i, -1, count - 1);
  };
  int64_t begin = place(from, stride > 0 ? 0 : count - 1), end = place(to, stride > 0 ? count : -1);
  List out;
  for (int64_t i = begin; stride > 0 ? i < end : i > end;) {
    out.push_back(items[static_cast<size_t>(i)]);
    int64_t left =
        stride > 0 ? end - i : i - end;  // a stride near the type's limit must not overflow
    if (left <= std::abs(stride)) break;
    i += stride;
  }
  if (of.is(VK::tuple)) return Value::tuple(std::move(out));
  if (of.is(VK::list)) return Value::list(std::move(out));
  Text text;
  for (const auto& c : out) text.append(c.as_text());
  return Value::text(std::move(text));
}

Value Interpreter::eval_compare(const Expression& e, Scope& scope) {
  Value left = eval(*e.parts[0], scope);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    Value right = eval(*e.parts[i + 1], scope);
    at_ = e.place;
    if (!compare(e.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

bool Interpreter::compare(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  if (op == "<") return less(a, b, "<");
  if (op == ">") return less(b, a, ">");
  if (op == "<=") return !less(b, a, "<=");
  return !less(a, b, ">=");
}

bool Interpreter::contains(const Value& where, const Value& what) {
  if (where.is(VK::text)) {
    need(what);
    if (!what.is(VK::text))
      throw Fault("TypeError",
                  cat("'in <string>' requires string as left operand, not ", what.type_name()));
    return find_in(where.as_text().bytes, what.as_text().bytes) != std::string::npos;
  }
  if (where.is(VK::map)) return where.as_map().find(what) != nullptr;
  if (!sequence(where) && !where.is(VK::generator) && !where.is(VK::missing))
    throw Fault("TypeError", cat("argument of type '", where.type_name(), "' is not iterable"));
  List items = iterate(where);
  return std::any_of(items.begin(), items.end(), [&](const Value& v) { return equal(v, what); });
}

Value Interpreter::unary(const std::string& op, const Value& a) {
  if (op == "not") return Value::boolean(!a.truth());
  need(a);
  if (!a.number())
    throw Fault("TypeError", cat("bad operand type for unary ", op, ": '", a.type_name(), "'"));
  if (a.is(VK::real)) return Value::real(op == "-" ? -a.as_real() : a.as_real());
  return op == "-" ? arithmetic("-", Value::integer(0), a) : Value::integer(a.as_integer());
}

Value Interpreter::add(const Value& a, const Value& b) {
  if (a.is(VK::text) && b.is(VK::text)) return Value::text(joined(a.as_text(), b.as_text()));
  if (sequence(a) && a.kind() == b.kind()) {
    Meter::elements(a.items().size() + b.items().size());
    List items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(VK::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
  }
  if (a.is(VK::text) || sequence(a))
    throw Fault("TypeError", cat("can only concatenate ", a.type_name(), " (not \"", b.type_name(),
                                 "\") to ", a.type_name()));
  return arithmetic("+", a, b);
}

Value Interpreter::binary(const std::string& op, const Value& a, const Value& b) {
  if (op == "~") return Value::text(joined(to_text(a), to_text(b)));
  need(a), need(b);
  if (op == "+") return add(a, b);
  bool repeats =
      op == "*" && (a.is(VK::text) || sequence(a)) && (b.is(VK::integer) || b.is(VK::boolean));
  if (op == "*" && !repeats && (b.is(VK::text) || sequence(b)) && a.is(VK::integer))
    return binary(op, b, a);
  if (!repeats) return arithmetic(op, a, b);
  int64_t times = std::max<int64_t>(0, b.as_integer());
  if (a.is(VK::text)) {
    Text text;
    for (int64_t i = 0; i < times && !a.as_text().bytes.empty(); ++i) text.append(a.as_text());
    return Value::text(std::move(text));
  }
  List items;
  for (int64_t i = 0; i < times && !a.items().empty(); ++i) {
    Meter::elements(a.items().size());
    items.insert(items.end(), a.items().begin(), a.items().end());
  }
  return a.is(VK::list) ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value Interpreter::arithmetic(const std::string& op, const Value& a, const Value& b) {
  if (!a.number() || !b.number())
    throw Fault("TypeError", cat("unsupported operand type(s) for ", op, ": '", a.type_name(),
                                 "' and '", b.type_name(), "'"));
  double x = a.as_real(), y = b.as_real();
  if ((op == "/" || op == "//" || op == "%") && y == 0)
    throw Fault("ZeroDivisionError",
                op == "/" ? "division by zero" : "integer division or modulo by zero");
  if (op == "/") return Value::real(x / y);
  if (!a.is(VK::real) && !b.is(VK::real)) {
    int64_t i = a.as_integer(), j = b.as_integer(), out = 0;
    bool over = false;
    if (op == "+") over = __builtin_add_overflow(i, j, &out);
    if (op == "-") over = __builtin_sub_overflow(i, j, &out);
    if (op == "*") over = __builtin_mul_overflow(i, j, &out);
    if (op == "//" || op == "%") {
      over = i == INT64_MIN && j == -1;
      if (!over) {
        int64_t quotient = i / j - (i % j != 0 && (i < 0) != (j < 0) ? 1 : 0);
        out = op == "//" ? quotient : i - quotient * j;
      }
    }
    if (op == "**") {
      if (j < 0) return Value::real(std::pow(x, y));
      double size = std::pow(std::fabs(x), y);
      over = size >= 9.2e18;
      out = 1;
      for (int64_t n = 0;
           !over && n < (i == 0 || i == 1 || i == -1 ? std::min<int64_t>(j, 2 + j % 2) : j); ++n)
        out *= i;
    }
    if (over) throw Fault("OverflowError", "a whole number beyond 64 bits");
    return Value::integer(out);
  }
  if (op == "+") return Value::real(x + y);
  if (op == "-") return Value::real(x - y);
  if (op == "*") return Value::real(x * y);
  if (op == "//") return Value::real(std::floor(x / y));
  if (op == "%") return Value::real(x - std::floor(x / y) * y);
  return Value::real(std::pow(x, y));
}

}  // namespace mtrain::chat
