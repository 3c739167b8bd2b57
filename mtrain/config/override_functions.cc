#include <algorithm>
#include <cmath>

#include "mtrain/base/counted.h"
#include "mtrain/base/rng.h"
#include "mtrain/base/text.h"
#include "mtrain/config/override_value.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

using Kind = SweepValue::Kind;

/// The arguments of one call. They are taken one by one; a remaining argument is a fault.
class Arguments {
 public:
  explicit Arguments(FunctionArguments given) : given_(std::move(given)) {}

  std::vector<OverrideValue>& positional() { return given_.positional; }

  /// The value of a keyword argument.
  std::optional<OverrideValue> take(std::string_view name) {
    auto found = std::find_if(given_.named.begin(), given_.named.end(),
                              [&](const auto& entry) { return entry.first == name; });
    if (found == given_.named.end()) return std::nullopt;
    OverrideValue out = std::move(found->second);
    given_.named.erase(found);
    return out;
  }
  /// The next positional argument, or the keyword of this name.
  std::optional<OverrideValue> next(std::string_view name) {
    if (given_.positional.empty()) return take(name);
    OverrideValue out = std::move(given_.positional.front());
    given_.positional.erase(given_.positional.begin());
    return out;
  }
  /// `usage`: how the function is written.
  void finish(const char* usage) const {
    if (!given_.positional.empty()) throw FunctionFault{"too many values", cat("write ", usage)};
    if (!given_.named.empty())
      throw FunctionFault{cat("there is no ", visible(given_.named[0].first), "= here"),
                          cat("write ", usage, "; write a text with '=' in quotes")};
  }

 private:
  FunctionArguments given_;
};

[[noreturn]] void usage(const std::string& message, const char* text) {
  throw FunctionFault{message, cat("write ", text)};
}

Node plain(OverrideValue value) {
  if (auto* node = std::get_if<Node>(&value)) return std::move(*node);
  throw FunctionFault{"wanted one value, got several", ""};
}

Node required(std::optional<OverrideValue> value, const char* text) {
  if (!value) usage("a value is missing", text);
  return plain(std::move(*value));
}

bool flag(std::optional<OverrideValue> value, const char* text) {
  if (!value) return false;
  Node node = plain(std::move(*value));
  if (!node.is(NodeKind::boolean)) usage(cat("wanted true or false, got ", brief(node)), text);
  return node.as_bool();
}

std::vector<Node> all_plain(std::vector<OverrideValue>& values) {
  std::vector<Node> out;
  for (auto& value : values) out.push_back(plain(std::move(value)));
  values.clear();
  return out;
}

/// The argument of a function that accepts either one value or several.
OverrideValue one_or_several(Arguments& arguments, std::initializer_list<const char*> keywords,
                             const char* text) {
  for (const char* keyword : keywords) {
    auto named = arguments.take(keyword);
    if (!named) continue;
    if (!arguments.positional().empty())
      usage("positional and keyword values cannot be combined", text);
    return std::move(*named);
  }
  if (arguments.positional().empty()) usage("a value is missing", text);
  if (arguments.positional().size() == 1) return *arguments.next("");
  SweepValue out;
  out.simple = true;
  out.values = all_plain(arguments.positional());
  return out;
}

OverrideValue choice(Arguments arguments) {
  constexpr const char* kUsage = "choice(a, b, …)";
  auto& values = arguments.positional();
  SweepValue out;
  if (values.size() == 1)
    if (auto* inner = std::get_if<SweepValue>(&values[0])) {
      if (!inner->simple) usage("choices cannot be nested", kUsage);
      inner->simple = false;
      return std::move(*inner);
    }
  out.values = all_plain(values);
  arguments.finish(kUsage);
  if (out.values.empty()) usage("no value to choose from", kUsage);
  return out;
}

OverrideValue range(Arguments arguments) {
  constexpr const char* kUsage = "range(stop), range(start, stop) or range(start, stop, step)";
  Node start = required(arguments.next("start"), kUsage);
  auto stop = arguments.next("stop");
  auto step = arguments.next("step");
  arguments.finish(kUsage);
  SweepValue out;
  out.kind = Kind::range;
  if (stop)
    out.limits = {std::move(start), plain(std::move(*stop))};
  else
    out.limits = {Node::integer(0), std::move(start)};
  out.limits.push_back(step ? plain(std::move(*step)) : Node::integer(1));
  out.values = range_values(out.limits[0], out.limits[1], out.limits[2]);
  return out;
}

OverrideValue interval(Arguments arguments) {
  constexpr const char* kUsage = "interval(low, high) or interval(low, high, log=true)";
  SweepValue out;
  out.kind = Kind::interval;
  for (const char* name : {"start", "end"}) {
    Node end = required(arguments.next(name), kUsage);
    if (!end.is(NodeKind::integer) && !end.is(NodeKind::number))
      usage(cat("wanted a number, got ", brief(end)), kUsage);
    out.values.push_back(std::get<Node>(cast_value("float", std::move(end))));
  }
  out.log = flag(arguments.take("log"), kUsage);
  arguments.finish(kUsage);
  double low = out.values[0].as_double(), high = out.values[1].as_double();
  if (!(low < high) || !std::isfinite(low) || !std::isfinite(high))
    usage("the low end must be below the high end", kUsage);
  if (out.log && low <= 0) usage("a logarithmic scale starts above 0", kUsage);
  return out;
}

std::vector<std::string> patterns(const Node& value, const char* text) {
  std::vector<std::string> out;
  auto take = [&](const Node& item) {
    if (!item.is(NodeKind::string) || item.as_text().empty())
      usage(cat("wanted a pattern such as llama*, got ", brief(item)), text);
    out.push_back(item.as_text());
  };
  if (value.is_list())
    for (const auto& item : value.items()) take(item);
  else
    take(value);
  return out;
}

OverrideValue glob(Arguments arguments) {
  constexpr const char* kUsage = "glob(pattern) or glob([a*, b*], exclude=c*)";
  SweepValue out;
  out.kind = Kind::glob;
  out.include = patterns(required(arguments.next("include"), kUsage), kUsage);
  if (auto exclude = arguments.next("exclude"))
    out.exclude = patterns(plain(std::move(*exclude)), kUsage);
  arguments.finish(kUsage);
  return out;
}

bool is_number(const Node& node) {
  return node.is(NodeKind::integer) || node.is(NodeKind::number) || node.is(NodeKind::boolean);
}

double number_of(const Node& node) {
  if (node.is(NodeKind::boolean)) return node.as_bool() ? 1 : 0;
  return parse_number(node.as_text()).value_or(0);
}

void sort_values(std::vector<Node>& values, bool reverse) {
  bool numbers = std::all_of(values.begin(), values.end(), is_number);
  bool texts = std::all_of(values.begin(), values.end(),
                           [](const Node& n) { return n.is(NodeKind::string); });
  bool ordered = !numbers || std::none_of(values.begin(), values.end(),
                                          [](const Node& n) { return std::isnan(number_of(n)); });
  if ((!numbers && !texts) || !ordered)
    throw FunctionFault{"only numbers or only texts can be sorted",
                        "cast them first: sort(str(…)) or sort(int(…))"};
  auto less = [&](const Node& a, const Node& b) {
    if (numbers) return number_of(a) < number_of(b);
    return a.as_text() < b.as_text();
  };
  if (reverse)
    std::stable_sort(values.begin(), values.end(),
                     [&](const Node& a, const Node& b) { return less(b, a); });
  else
    std::stable_sort(values.begin(), values.end(), less);
}

/// The values of a list, choice or range that is to be reordered.
std::vector<Node>* order_of(OverrideValue& value) {
  if (auto* node = std::get_if<Node>(&value)) return node->is_list() ? &node->items() : nullptr;
  auto* sweep = std::get_if<SweepValue>(&value);
  if (sweep && (sweep->kind == Kind::choice || sweep->kind == Kind::range)) return &sweep->values;
  throw FunctionFault{"only a list, a choice or a range can be sorted or shuffled", ""};
}

OverrideValue sort(Arguments arguments) {
  constexpr const char* kUsage = "sort(a, b, …), sort([a, b]) or sort(…, reverse=true)";
  bool reverse = flag(arguments.take("reverse"), kUsage);
  OverrideValue value = one_or_several(arguments, {"list", "sweep"}, kUsage);
  arguments.finish(kUsage);
  if (auto* values = order_of(value)) sort_values(*values, reverse);
  return value;
}

OverrideValue shuffle(Arguments arguments) {
  constexpr const char* kUsage = "shuffle(a, b, …), shuffle([a, b]) or shuffle(…, seed=1)";
  uint64_t seed = 0;
  if (auto given = arguments.take("seed")) {
    Node node = plain(std::move(*given));
    auto value = node.is(NodeKind::integer) ? parse_integer(node.as_text()) : std::nullopt;
    if (!value) usage(cat("the seed is an integer, got ", brief(node)), kUsage);
    seed = static_cast<uint64_t>(*value);
  }
  OverrideValue value = one_or_several(arguments, {"list", "sweep"}, kUsage);
  arguments.finish(kUsage);
  if (auto* one = std::get_if<Node>(&value); one && !one->is_list()) {
    Node list = Node::list();
    list.push(std::move(*one));
    value = std::move(list);
  }
  if (auto* values = order_of(value)) {
    RngStream random(seed, "shuffle");
    for (size_t i = values->size(); i > 1; --i) {
      uint64_t word = (static_cast<uint64_t>(random.words(i)[0]) << 32) | random.words(i)[1];
      std::swap((*values)[i - 1], (*values)[word % i]);
    }
  }
  return value;
}

OverrideValue tag(Arguments arguments) {
  constexpr const char* kUsage = "tag(name, …, choice(…))";
  auto named = arguments.take("sweep");
  auto& values = arguments.positional();
  if (!named && !values.empty()) {
    named = std::move(values.back());
    values.pop_back();
  }
  auto* sweep = named ? std::get_if<SweepValue>(&*named) : nullptr;
  if (!sweep) usage("the last value must be a choice, range or interval", kUsage);
  for (auto& name : all_plain(values)) {
    if (!name.is(NodeKind::string)) usage(cat("a tag is a text, got ", brief(name)), kUsage);
    auto& tags = sweep->tags;
    if (std::find(tags.begin(), tags.end(), name.as_text()) == tags.end())
      tags.push_back(name.as_text());
    if (name.as_text() == "log" && sweep->kind == Kind::interval) sweep->log = true;
  }
  if (sweep->log && sweep->values[0].as_double() <= 0)
    usage("a logarithmic scale starts above 0", kUsage);
  arguments.finish(kUsage);
  return std::move(*named);
}

OverrideValue zip(FunctionArguments arguments) {
  constexpr const char* kUsage = "name=zip(model=choice(a, b), optimizer.lr=choice(1e-3, 1e-4))";
  if (!arguments.positional.empty() || arguments.named.empty())
    usage("each member is a setting with its values", kUsage);
  SweepValue out;
  out.kind = Kind::zip;
  for (auto& [key, value] : arguments.named) {
    auto* sweep = std::get_if<SweepValue>(&value);
    if (!sweep || (sweep->kind != Kind::choice && sweep->kind != Kind::range))
      usage(cat(visible(key), " needs a choice or a range"), kUsage);
    if (std::find(out.keys.begin(), out.keys.end(), key) != out.keys.end())
      usage(cat(visible(key), " appears twice"), kUsage);
    size_t first = out.members.empty() ? sweep->values.size() : out.members[0].values.size();
    if (first != sweep->values.size())
      throw FunctionFault{
          cat(visible(out.keys[0]), " has ", counted(first, "value"), ", ", visible(key), " has ",
              sweep->values.size()),
          "the members of a zip advance together, so they need the same number of values"};
    out.keys.push_back(key);
    out.members.push_back(std::move(*sweep));
  }
  return out;
}

OverrideValue edit(ListEdit::Kind kind, Arguments arguments) {
  using Edit = ListEdit::Kind;
  ListEdit out;
  out.kind = kind;
  const char* text = kind == Edit::append    ? "append(a, …)"
                     : kind == Edit::prepend ? "prepend(a, …)"
                     : kind == Edit::insert  ? "insert(index, a, …)"
                     : kind == Edit::remove  ? "remove(a, …)"
                                             : "replace(old, new)";
  if (kind == Edit::insert) {
    Node index = required(arguments.next("index"), text);
    auto value = index.is(NodeKind::integer) ? parse_integer(index.as_text()) : std::nullopt;
    if (!value || *value < 0) usage(cat("the index is 0 or more, got ", brief(index)), text);
    out.index = *value;
  }
  out.values = all_plain(arguments.positional());
  arguments.finish(text);
  bool count = kind == Edit::replace ? out.values.size() == 2 : !out.values.empty();
  if (!count) usage(kind == Edit::replace ? "wanted two values" : "a value is missing", text);
  return out;
}

OverrideValue cast(std::string_view function, Arguments arguments) {
  OverrideValue value = one_or_several(arguments, {"value"}, "int(x), int(a, b) or int([a, b])");
  arguments.finish("int(x), int(a, b) or int([a, b])");
  return cast_value(function, std::move(value));
}

/// The functions by name. One table serves both the calls and the list in messages.
struct Function {
  const char* name;
  OverrideValue (*call)(std::string_view name, FunctionArguments arguments);
};

template <OverrideValue (*F)(Arguments)>
OverrideValue with_arguments(std::string_view, FunctionArguments arguments) {
  return F(Arguments(std::move(arguments)));
}
OverrideValue cast_call(std::string_view name, FunctionArguments arguments) {
  return cast(name, Arguments(std::move(arguments)));
}
OverrideValue zip_call(std::string_view, FunctionArguments arguments) {
  return zip(std::move(arguments));
}
template <ListEdit::Kind K>
OverrideValue edit_call(std::string_view, FunctionArguments arguments) {
  return edit(K, Arguments(std::move(arguments)));
}

constexpr Function kFunctions[] = {
    {"int", cast_call},
    {"float", cast_call},
    {"str", cast_call},
    {"bool", cast_call},
    {"choice", with_arguments<choice>},
    {"range", with_arguments<range>},
    {"interval", with_arguments<interval>},
    {"glob", with_arguments<glob>},
    {"sort", with_arguments<sort>},
    {"shuffle", with_arguments<shuffle>},
    {"tag", with_arguments<tag>},
    {"zip", zip_call},
    {"append", edit_call<ListEdit::Kind::append>},
    {"prepend", edit_call<ListEdit::Kind::prepend>},
    {"insert", edit_call<ListEdit::Kind::insert>},
    {"remove", edit_call<ListEdit::Kind::remove>},
    {"replace", edit_call<ListEdit::Kind::replace>},
};

const Function* find(std::string_view name) {
  for (const auto& function : kFunctions)
    if (name == function.name) return &function;
  return nullptr;
}

}  // namespace

bool is_function(std::string_view name) { return find(name) != nullptr; }

std::string function_hint(std::string_view name) {
  if (name == "extend_list") return "write append(…)";
  std::vector<std::string> names;
  for (const auto& function : kFunctions) names.emplace_back(function.name);
  auto near = nearest(name, names, 1);
  std::string meant =
      near.empty() ? "there are: " + join(names, ", ") : "did you mean " + near[0] + "?";
  return meant + "; if the value is a text, quote it: key='…'";
}

OverrideValue call_function(std::string_view name, FunctionArguments arguments) {
  return find(name)->call(name, std::move(arguments));
}

}  // namespace mtrain
