// Statements of a chat template.
#include "interpreter.h"

#include <algorithm>

#include "mtrain/base/error.h"

namespace mtrain::chat {

using VK = Value::Kind;
using SK = Statement::Kind;

const Value* Scope::find(std::string_view name) const {
  for (const Scope* s = this; s; s = s->outer_) {
    Meter::read(s->names_.size());
    for (const auto& [key, value] : s->names_)
      if (key == name) return &value;
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  Meter::read(names_.size());
  for (auto& [key, old] : names_) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  names_.emplace_back(name, std::move(value));
}

void Interpreter::deeper() {
  if (depth_ >= budget_.depth)
    throw Fault("RecursionError", cat("nested deeper than ", budget_.depth));
  ++depth_;
}

Text Interpreter::run(const Body& body) {
  Meter meter(budget_.steps);
  Text out;
  final_ = &out;
  try {
    Scope top(&globals_);
    exec(body, top, out);
  } catch (const Fault& fault) {
    throw LocatedFault{at_, fault};
  }
  return out;
}

Text Interpreter::block(const Body& body, Scope& scope) {
  Text out;
  exec(body, scope, out);
  return out;
}

Interpreter::Flow Interpreter::exec(const Body& body, Scope& scope, Text& out) {
  for (const auto& statement : body)
    if (Flow flow = exec(statement, scope, out); flow != Flow::next) return flow;
  return Flow::next;
}

Interpreter::Flow Interpreter::exec(const Statement& s, Scope& scope, Text& out) {
  Deeper deeper(*this);
  Meter::steps(1);
  at_ = s.place;
  switch (s.kind) {
    case SK::text:
      out.append(Text(s.text));
      break;
    case SK::output:
      out.append(to_text(eval(*s.expressions[0], scope)));
      break;
    case SK::condition:
      for (size_t i = 0; i < s.bodies.size(); ++i)
        if (i >= s.expressions.size() || eval(*s.expressions[i], scope).truth())
          return exec(s.bodies[i], scope, out);
      break;
    case SK::loop:
      return loop(s, scope, out);
    case SK::set:
      bind(s.targets, eval(*s.expressions[0], scope), scope);
      break;
    case SK::set_block:
    case SK::filter_block: {
      Scope inner(&scope);
      Text text = block(s.bodies[0], inner);
      const Text* outer = std::exchange(block_text_, &text);
      Value value = s.expressions[0] ? eval(*s.expressions[0], scope) : Value::text(text);
      block_text_ = outer;
      if (s.kind == SK::set_block)
        bind(s.targets, value, scope);
      else
        out.append(to_text(value));
      break;
    }
    case SK::macro:
      scope.set(s.text, macro(s, scope));
      break;
    case SK::call_block: {
      Scope inner(&scope);
      Arguments given = arguments(s.expressions[0]->arguments, scope);
      given.named.emplace_back("caller", macro(s, inner));
      out.append(to_text(call(eval(*s.expressions[0]->parts[0], scope), given)));
      break;
    }
    case SK::generation: {
      size_t begin = out.bytes.size();
      Scope inner(&scope);
      Flow flow = exec(s.bodies[0], inner, out);
      if (&out == final_) generations_.emplace_back(begin, out.bytes.size());
      return flow;
    }
    case SK::stop:
      return Flow::stop;
    case SK::skip:
      return Flow::skip;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::loop(const Statement& s, Scope& scope, Text& out) {
  List items = iterate(eval(*s.expressions[0], scope));
  if (s.expressions[1])
    std::erase_if(items, [&](const Value& item) {
      Scope probe(&scope);
      bind(s.targets, item, probe);
      return !eval(*s.expressions[1], probe).truth();
    });
  for (size_t i = 0; i < items.size(); ++i) {
    Scope inner(&scope);
    inner.set("loop", loop_value(items, i));
    bind(s.targets, items[i], inner);
    Flow flow = exec(s.bodies[0], inner, out);
    if (flow == Flow::stop) break;
  }
  if (items.empty() && s.bodies.size() > 1) {
    Scope inner(&scope);
    return exec(s.bodies[1], inner, out);
  }
  return Flow::next;
}

Value Interpreter::loop_value(const List& items, size_t index) {
  auto count = static_cast<int64_t>(items.size()), i = static_cast<int64_t>(index);
  auto key = [](const char* name) { return Value::text(Text(name)); };
  auto neighbour = [&](int64_t at, const char* name) {
    return at >= 0 && at < count ? items[static_cast<size_t>(at)]
                                 : Value::missing(cat("there is no ", name, " item"));
  };
  return Value::map({{key("index"), Value::integer(i + 1)},
                     {key("index0"), Value::integer(i)},
                     {key("revindex"), Value::integer(count - i)},
                     {key("revindex0"), Value::integer(count - i - 1)},
                     {key("first"), Value::boolean(i == 0)},
                     {key("last"), Value::boolean(i + 1 == count)},
                     {key("length"), Value::integer(count)},
                     {key("previtem"), neighbour(i - 1, "previous")},
                     {key("nextitem"), neighbour(i + 1, "next")},
                     {key("cycle"), Value::callable("method", [index](Arguments& given) {
                        if (given.positional.empty())
                          throw Fault("TypeError", "no items for cycling given");
                        return given.positional[index % given.positional.size()];
                      })}});
}

void Interpreter::bind(const std::vector<std::string>& targets, const Value& value, Scope& scope) {
  if (targets.size() > 1) {
    List parts = iterate(value);
    if (parts.size() != targets.size())
      throw Fault("ValueError", cat(parts.size() < targets.size() ? "not enough" : "too many",
                                    " values to unpack (expected ", targets.size(), ")"));
    for (size_t i = 0; i < targets.size(); ++i) bind({targets[i]}, parts[i], scope);
    return;
  }
  const std::string& target = targets[0];
  size_t dot = target.find('.');
  if (dot == std::string::npos) return scope.set(target, value);
  const Value* space = scope.find(target.substr(0, dot));
  if (!space || !space->is(VK::space))
    throw Fault("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
  if (value.is(VK::space)) throw Fault("TypeError", "a namespace cannot be put into another value");
  space->as_map().set(Value::text(Text(target.substr(dot + 1))), value);
}

Value Interpreter::macro(const Statement& s, Scope& scope) {
  return Value::callable("Macro", [this, &s, &scope](Arguments& given) {
    Deeper deeper(*this);
    Place from = at_;
    Scope inner(&scope);
    const std::string shown = s.text.empty() ? "caller" : s.text;
    if (given.positional.size() > s.parameters.size())
      throw Fault("TypeError", cat("macro '", shown, "' takes not more than ", s.parameters.size(),
                                   " argument(s)"));
    for (size_t i = 0; i < s.parameters.size(); ++i) {
      const auto& [name, otherwise] = s.parameters[i];
      const Value* value = given.get(i, name);
      inner.set(name, value       ? *value
                      : otherwise ? eval(*otherwise, inner)
                                  : Value::missing(cat("parameter '", name, "' was not provided")));
    }
    for (const auto& [name, value] : given.named) {
      bool known =
          name == "caller" || std::any_of(s.parameters.begin(), s.parameters.end(),
                                          [&n = name](const auto& p) { return p.first == n; });
      if (!known)
        throw Fault("TypeError", cat("macro '", shown, "' takes no keyword argument '", name, "'"));
      if (name == "caller") inner.set(name, value);
    }
    Value text = Value::text(block(s.bodies[0], inner));
    at_ = from;
    return text;
  });
}

}  // namespace mtrain::chat
