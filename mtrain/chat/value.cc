#include "mtrain/chat/value.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"

namespace mtrain::chat {

using VK = Value::Kind;

Fault::Fault(std::string type_, std::string message_)
    : type(std::move(type_)), message(std::move(message_)), whole(type + ": " + message) {}
Fault::~Fault() = default;

namespace {

thread_local Meter* counting = nullptr;  // the meter of the rendering on this thread
constexpr int64_t kUnits = 64;           // units per step

/// The position of `part`, by Knuth, Morris and Pratt: linear time for all texts.
size_t find_long(const std::string& text, const std::string& part, size_t from) {
  std::vector<uint32_t> border(
      part.size() + 1,
      0);  // of the first i bytes: the length of the longest prefix that is also a suffix
  for (size_t i = 1, k = 0; i < part.size(); ++i) {
    while (k > 0 && part[i] != part[k]) k = border[k];
    if (part[i] == part[k]) ++k;
    border[i + 1] = static_cast<uint32_t>(k);
  }
  for (size_t i = from, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != part[k]) k = border[k];
    if (text[i] == part[k]) ++k;
    if (k == part.size()) return i + 1 - k;
  }
  return std::string::npos;
}

}  // namespace

Meter::Meter(int64_t steps) : limit_(steps), left_(steps * kUnits) {
  MT_CHECK(!counting, "two renderings on one thread");
  counting = this;
}

Meter::~Meter() { counting = nullptr; }

void Meter::steps(int64_t count) {
  if (counting) charge(static_cast<size_t>(std::min(count, counting->limit_ + 1)) * kUnits);
}

void Meter::charge(size_t units) {
  if (!counting) return;
  if (units > static_cast<size_t>(counting->left_))
    throw Fault("BudgetError", cat("took more than ", counting->limit_, " steps"));
  counting->left_ -= static_cast<int64_t>(units);
}

size_t find_in(const std::string& text, const std::string& part, size_t from) {
  constexpr size_t kShort = 32;  // the library's search may compare all of `part` at every position
  if (part.size() > text.size()) return std::string::npos;
  Meter::read(part.size() > kShort ? 4 * part.size() : part.size());
  size_t at = part.size() > kShort ? find_long(text, part, from) : text.find(part, from);
  Meter::read(std::min(at, text.size()) - std::min(from, text.size()));
  return at;
}

Text::Text(std::string_view text, Origin origin) {
  Meter::made(text.size());
  bytes = text;
  origins.assign(text.size(), origin);
}

Text::Text(const Text& other) { *this = other; }

Text& Text::operator=(const Text& other) {
  Meter::made(other.bytes.size());
  bytes = other.bytes;
  origins = other.origins;
  safe = other.safe;
  return *this;
}

Text Text::sub(size_t begin, size_t count) const {
  Text out;
  begin = std::min(begin, bytes.size());
  count = std::min(count, bytes.size() - begin);
  Meter::made(count);
  out.bytes = bytes.substr(begin, count);
  auto from = origins.begin() + static_cast<std::ptrdiff_t>(begin);
  out.origins.assign(from, from + static_cast<std::ptrdiff_t>(count));
  out.safe = safe;
  return out;
}

void Text::append(const Text& other) {
  Meter::made(other.bytes.size());
  bytes += other.bytes;
  origins.insert(origins.end(), other.origins.begin(), other.origins.end());
}

namespace {

Text escaped(const Text& text) {
  Text out;
  for (size_t i = 0; i < text.bytes.size(); ++i) {
    std::string_view with;
    switch (text.bytes[i]) {
      case '&':
        with = "&amp;";
        break;
      case '<':
        with = "&lt;";
        break;
      case '>':
        with = "&gt;";
        break;
      case '"':
        with = "&#34;";
        break;
      case '\'':
        with = "&#39;";
        break;
      default:
        with = std::string_view(text.bytes).substr(i, 1);
    }
    out.append(Text(with, text.origins[i]));
  }
  return out;
}

}  // namespace

Text joined(const Text& a, const Text& b) {
  bool safe = a.safe || b.safe;
  Text out = safe && !a.safe ? escaped(a) : a;
  out.append(safe && !b.safe ? escaped(b) : b);
  out.safe = safe;
  return out;
}

Value Value::missing(std::string why) {
  Value v;
  v.kind_ = VK::missing;
  v.missing_ = std::make_shared<Missing>(Missing{std::move(why)});
  return v;
}
Value Value::boolean(bool value) {
  Value v;
  v.kind_ = VK::boolean;
  v.integer_ = value ? 1 : 0;
  return v;
}
Value Value::integer(int64_t value) {
  Value v;
  v.kind_ = VK::integer;
  v.integer_ = value;
  return v;
}
Value Value::real(double value) {
  Value v;
  v.kind_ = VK::real;
  v.real_ = value;
  return v;
}
Value Value::text(Text value) {
  Meter::steps(1);
  Value v;
  v.kind_ = VK::text;
  v.text_ = std::make_shared<const Text>(std::move(value));
  return v;
}
void Value::nest(const Value& inner) {
  if (inner.is(VK::space)) throw Fault("TypeError", "a namespace cannot be put into another value");
  if (inner.nesting_ >= kNesting)
    throw Fault("RecursionError", cat("lists and maps nested deeper than ", kNesting));
  nesting_ = std::max<uint16_t>(nesting_, static_cast<uint16_t>(inner.nesting_ + 1));
}

Value Value::list(List items) {
  Meter::elements(items.size());
  Value v;
  v.kind_ = VK::list;
  for (const auto& item : items) v.nest(item);
  v.list_ = std::make_shared<List>(std::move(items));
  return v;
}
Value Value::tuple(List items) {
  Value v = list(std::move(items));
  v.kind_ = VK::tuple;
  return v;
}
Value Value::map(std::vector<std::pair<Value, Value>> entries) {
  Value v;
  Meter::elements(entries.size());
  v.kind_ = VK::map;
  v.map_ = std::make_shared<Map>();
  for (auto& [key, item] : entries) {
    v.nest(item);
    v.map_->set(key, std::move(item));
  }
  return v;
}
Value Value::space() {
  Value v = map();
  v.kind_ = VK::space;
  return v;
}
Value Value::generator(List items) {
  Meter::elements(items.size());
  Value v;
  v.kind_ = VK::generator;
  for (const auto& item : items) v.nest(item);
  v.generator_ = std::make_shared<Generator>(Generator{std::move(items)});
  return v;
}
Value Value::callable(std::string name, std::function<Value(Arguments&)> call) {
  Value v;
  v.kind_ = VK::callable;
  v.callable_ = std::make_shared<Callable>(Callable{std::move(name), std::move(call)});
  return v;
}

bool Value::truth() const {
  switch (kind_) {
    case VK::missing:
    case VK::none:
      return false;
    case VK::boolean:
    case VK::integer:
      return integer_ != 0;
    case VK::real:
      return real_ != 0;
    case VK::text:
      return !text_->bytes.empty();
    case VK::list:
    case VK::tuple:
      return !list_->empty();
    case VK::map:
      return !map_->entries.empty();
    default:
      return true;
  }
}

const char* Value::type_name() const {
  switch (kind_) {
    case VK::missing:
      return "Undefined";
    case VK::none:
      return "NoneType";
    case VK::boolean:
      return "bool";
    case VK::integer:
      return "int";
    case VK::real:
      return "float";
    case VK::text:
      return "str";
    case VK::list:
      return "list";
    case VK::tuple:
      return "tuple";
    case VK::map:
      return "dict";
    case VK::space:
      return "Namespace";
    case VK::generator:
      return "generator";
    case VK::callable:
      return callable_->name.c_str();
  }
  return "object";
}

namespace {

/// Texts of different sizes are unequal without reading a byte.
bool same(std::string_view a, std::string_view b) {
  Meter::read(4 + (a.size() == b.size() ? a.size() : 0));
  return a == b;
}

}  // namespace

Value* Map::find(std::string_view key) {
  for (auto& [name, value] : entries)
    if (name.is(VK::text) && same(name.as_text().bytes, key)) return &value;
  return nullptr;
}

Value* Map::find(const Value& key) {
  for (auto& [name, value] : entries)
    if (equal(name, key)) return &value;
  return nullptr;
}

void Map::set(const Value& key, Value value) {
  if (Value* old = find(key))
    *old = std::move(value);
  else
    entries.emplace_back(key, std::move(value));
}

const Value* Arguments::get(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

namespace {

bool equal_items(const List& a, const List& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
}

bool equal_maps(Map& a, Map& b) {
  return a.entries.size() == b.entries.size() &&
         std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
           const Value* other = b.find(entry.first);
           return other && equal(entry.second, *other);
         });
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  Meter::read(4);
  if (a.number() && b.number())
    return a.is(VK::real) || b.is(VK::real) ? a.as_real() == b.as_real()
                                            : a.as_integer() == b.as_integer();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case VK::missing:
    case VK::none:
      return true;
    case VK::text:
      return same(a.as_text().bytes, b.as_text().bytes);
    case VK::list:
    case VK::tuple:
      return &a.items() == &b.items() || equal_items(a.items(), b.items());
    case VK::map:
      return &a.as_map() == &b.as_map() || equal_maps(a.as_map(), b.as_map());
    case VK::space:
      return &a.as_map() == &b.as_map();
    case VK::generator:
      return &a.as_generator() == &b.as_generator();
    default:
      return &a.as_callable() == &b.as_callable();
  }
}

bool less(const Value& a, const Value& b, const char* op) {
  Meter::read(4);
  for (const Value* v : {&a, &b})
    if (v->is(VK::missing)) throw Fault("UndefinedError", v->why());
  if (a.number() && b.number())
    return a.is(VK::real) || b.is(VK::real) ? a.as_real() < b.as_real()
                                            : a.as_integer() < b.as_integer();
  if (a.is(VK::text) && b.is(VK::text)) {
    Meter::read(std::min(a.as_text().bytes.size(), b.as_text().bytes.size()));
    return a.as_text().bytes < b.as_text().bytes;
  }
  bool sequences = a.kind() == b.kind() && (a.is(VK::list) || a.is(VK::tuple));
  if (!sequences)
    throw Fault("TypeError", cat("'", op, "' not supported between instances of '", a.type_name(),
                                 "' and '", b.type_name(), "'"));
  const List &x = a.items(), &y = b.items();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (!equal(x[i], y[i])) return less(x[i], y[i], op);
  return x.size() < y.size();
}

namespace {

using Json = nlohmann::ordered_json;

Value value_of(const Json& json, Origin origin) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case Json::value_t::number_unsigned:
      if (json.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX))
        return Value::integer(json.get<int64_t>());
      return Value::real(json.get<double>());
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return Value::text({json.get_ref<const std::string&>(), origin});
    case Json::value_t::array: {
      List items;
      for (const auto& item : json) items.push_back(value_of(item, origin));
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, item] : json.items())
        entries.emplace_back(Value::text({key, origin}), value_of(item, origin));
      return Value::map(std::move(entries));
    }
    default:
      return {};
  }
}

}  // namespace

Value with_origin(const Value& value, Origin origin) {
  switch (value.kind()) {
    case VK::text:
      return Value::text({value.as_text().bytes, origin});
    case VK::list: {
      List items;
      for (const auto& item : value.items()) items.push_back(with_origin(item, origin));
      return Value::list(std::move(items));
    }
    case VK::map: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, item] : value.as_map().entries)
        entries.emplace_back(with_origin(key, origin), with_origin(item, origin));
      return Value::map(std::move(entries));
    }
    default:
      return value;
  }
}

Value from_json(std::string_view json, Origin origin) {
  auto shallow = [](int depth, Json::parse_event_t, const Json&) {
    if (depth >= Value::kNesting)
      throw Error(ErrorClass::data, cat("JSON nested deeper than ", Value::kNesting));
    return true;
  };
  try {
    return value_of(Json::parse(json, shallow), origin);
  } catch (const Json::exception& e) {
    throw Error(ErrorClass::data, cat("not JSON: ", e.what()));
  }
}

}  // namespace mtrain::chat
