// Readers of the values in a family's file: texts, flags, lists, maps. Values of another type are
// reported with their location. Refers to a report that must outlive it; for one thread.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "mtrain/base/text.h"
#include "mtrain/config/expression.h"
#include "mtrain/config/schema.h"
#include "mtrain/config/tree.h"
#include "mtrain/recipe/hf_families.h"

namespace mtrain {

class FamilyWords {
 protected:
  explicit FamilyWords(Report& report) : report_(report) {}

  void fault(const Location& where, const std::string& what, const std::string& fix = "") {
    report_.error("family", "", where, what).fix(fix);
  }

  /// Reports keys of a map that are not in `words`.
  void allow(const Node& map, const std::vector<std::string>& words) {
    for (const auto& entry : map.entries()) {
      if (std::find(words.begin(), words.end(), entry.key) != words.end()) continue;
      const auto near = nearest(entry.key, words, 1);
      fault(
          entry.key_where, cat("there is no '", printable(entry.key, 60), "' here"),
          near.empty() ? cat("allowed: ", join(words, ", ")) : cat("did you mean ", near[0], "?"));
    }
  }

  std::string text(const Node& node) {
    if (node.is_scalar() && !node.is_null() && !node.as_text().empty()) return node.as_text();
    fault(node.loc(), "wanted a text");
    return {};
  }
  /// An expression of settings that are numbers.
  std::string expression(const Node& node) {
    ExpressionScope ones;
    ones.name = [](std::string_view, size_t) { return ExpressionValue(int64_t{1}); };
    try {
      if (std::holds_alternative<int64_t>(evaluate_expression(text(node), ones))) return text(node);
      fault(node.loc(), "wanted an expression that is a whole number, hidden_size // heads");
    } catch (const ExpressionError& error) {
      fault(node.loc(), error.what());
    }
    return {};
  }
  /// A value, or =KEY.
  HfValue value_of(const Node& node) {
    if (!node.is_scalar()) return fault(node.loc(), "wanted a single value or =KEY"), HfValue{};
    const std::string& text = node.as_text();
    if (!node.is(NodeKind::string) || node.quoted() || !text.starts_with('=')) return {node, ""};
    return other_key(text.substr(1));
  }
  /// KEY, KEY/KEY, N*KEY or KEY-N.
  static HfValue other_key(std::string text) {
    HfValue out{Node(), ""};
    const auto number = [](const std::string& digits) {
      return std::strtoll(digits.c_str(), nullptr, 10);
    };
    if (const size_t at = text.find('*'); at != std::string::npos) {
      out.factor = number(text.substr(0, at));
      text.erase(0, at + 1);
    }
    if (const size_t at = text.find('-'); at != std::string::npos) {
      out.plus = -number(text.substr(at + 1));
      text.erase(at);
    }
    const size_t slash = text.find('/');
    out.key = text.substr(0, slash);
    if (slash != std::string::npos) out.over = text.substr(slash + 1);
    return out;
  }
  Node scalar(const Node& node) {
    if (!node.is_scalar()) fault(node.loc(), "wanted a single value");
    return node.is_scalar() ? node : Node();
  }
  std::vector<std::string> texts(const Node& node) {
    std::vector<std::string> out;
    if (!node.is_list()) fault(node.loc(), "wanted a list, [a, b]");
    for (const Node& item : node.items()) out.push_back(text(item));
    return out;
  }
  bool flag(const Node& node) {
    if (node.is(NodeKind::boolean)) return node.as_bool();
    fault(node.loc(), "wanted true or false");
    return false;
  }

  template <class F>
  void each(const Node& map, const char* word, F&& f) {
    const Node* node = map.get(word);
    if (!node || node->is_null()) return;
    if (!node->is_map()) return fault(node->loc(), cat(word, " is not a map"));
    for (const auto& entry : node->entries()) f(entry);
  }

  template <class List, class Value>
  static void put(List& list, const std::string& key, Value value) {
    auto there = std::find_if(list.begin(), list.end(), [&](auto& e) { return e.first == key; });
    if (there != list.end())
      there->second = std::move(value);
    else
      list.emplace_back(key, std::move(value));
  }

 private:
  Report& report_;
};

}  // namespace mtrain
