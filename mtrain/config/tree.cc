#include "mtrain/config/tree.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr size_t kIndexedMerge = 16;  // from this many keys on, merging looks keys up in a table

[[noreturn]] void wrong_kind(const Node& node, std::string_view wanted) {
  std::string place = node.loc() ? node.loc().text() + ": " : "";
  throw Error(ErrorClass::config, cat(place, "wanted ", wanted, ", got ", describe(node.kind()),
                                      " (", brief(node), ")"));
}

std::optional<size_t> list_index(std::string_view part, size_t size) {
  size_t index = 0;
  auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (error != std::errc{} || end != part.data() + part.size() || index >= size)
    return std::nullopt;
  return index;
}

template <class N>
N* child(N& node, std::string_view part) {
  if (node.is_map()) return node.get(part);
  if (!node.is_list()) return nullptr;
  auto index = list_index(part, node.size());
  return index ? &node.items()[*index] : nullptr;
}

template <class N>
N* walk(N& root, std::string_view path) {
  if (path.empty()) return &root;
  auto parts = parse_path(path);
  if (!parts) return nullptr;
  N* at = &root;
  for (const auto& part : *parts) {
    at = child(*at, part);
    if (!at) return nullptr;
  }
  return at;
}

}  // namespace

Node::Node() = default;
Node::~Node() = default;
Node::Node(const Node&) = default;
Node::Node(Node&&) noexcept = default;
Node& Node::operator=(const Node&) = default;
Node& Node::operator=(Node&&) noexcept = default;

size_t Node::size() const { return is_map() ? entries_.size() : items_.size(); }

Node Node::boolean(bool value) { return plain(value ? "true" : "false"); }
Node Node::integer(int64_t value) { return plain(std::to_string(value)); }
Node Node::number(double value) { return plain(shortest(value)); }

Node Node::string(std::string value) {
  Node out;
  out.kind_ = NodeKind::string;
  out.text_ = std::move(value);
  out.quoted_ = resolve_scalar(out.text_) != NodeKind::string;
  return out;
}

Node Node::quoted_string(std::string value) {
  Node out = string(std::move(value));
  out.quoted_ = true;
  return out;
}

Node Node::plain(std::string text) {
  Node out;
  out.kind_ = resolve_scalar(text);
  out.text_ = std::move(text);
  return out;
}

Node Node::verbatim(std::string text) {
  Node out = string(std::move(text));
  out.verbatim_ = true;
  return out;
}

Node Node::list() {
  Node out;
  out.kind_ = NodeKind::list;
  return out;
}

Node Node::map() {
  Node out;
  out.kind_ = NodeKind::map;
  return out;
}

bool Node::as_bool() const {
  if (!is(NodeKind::boolean)) wrong_kind(*this, "true or false");
  return text_[0] == 't' || text_[0] == 'T';
}

int64_t Node::as_int() const {
  auto value = is(NodeKind::integer) ? parse_integer(text_) : std::nullopt;
  if (!value) wrong_kind(*this, "a 64-bit integer");
  return *value;
}

double Node::as_double() const {
  bool numeric = is(NodeKind::integer) || is(NodeKind::number);
  auto value = numeric ? parse_number(text_) : std::nullopt;
  if (!value) wrong_kind(*this, "a 64-bit number");
  return *value;
}

const std::string& Node::as_string() const {
  if (!is(NodeKind::string)) wrong_kind(*this, "a string");
  return text_;
}

Node& Node::push(Node item) {
  MT_CHECK(is_list());
  return items_.emplace_back(std::move(item));
}

Node& Node::append(std::string key, Location key_where, Node value) {
  MT_CHECK(is_map());
  return entries_.emplace_back(Entry{std::move(key), std::move(key_where), std::move(value)}).value;
}

const Node* Node::get(std::string_view key) const {
  for (const auto& entry : entries_)
    if (entry.key == key) return &entry.value;
  return nullptr;
}

Node* Node::get(std::string_view key) { return const_cast<Node*>(std::as_const(*this).get(key)); }

const Node* Node::find(std::string_view path) const { return walk(*this, path); }
Node* Node::find(std::string_view path) { return walk(*this, path); }

const Node& Node::at(std::string_view path) const {
  if (const Node* found = find(path)) return *found;
  const std::vector<std::string> parts =
      parse_path(path).value_or(std::vector<std::string>{std::string(path)});
  const Node* deepest = this;
  std::string parent;
  for (size_t i = 0; i + 1 < parts.size() && deepest->get(parts[i]); ++i) {
    deepest = deepest->get(parts[i]);
    parent = join_path(parent, parts[i]);
  }
  std::vector<std::string> keys;
  for (const auto& entry : deepest->entries_) keys.push_back(join_path(parent, entry.key));
  auto near = nearest(path, keys, 1);
  throw Error(ErrorClass::config,
              cat("no setting ", path, where_ ? " in " + where_.source->name() : ""),
              near.empty() ? "" : "did you mean " + near[0] + "?");
}

std::string join_path(const std::vector<std::string>& parts) {
  std::string out;
  for (const auto& part : parts) out = join_path(out, part);
  return out;
}

Node& Node::set(std::string_view path, Node value) {
  auto parts = parse_path(path);
  if (!parts || parts->empty())
    throw Error(ErrorClass::config, cat("'", printable(path), "' is not the path of a setting"));
  Node* at = this;
  for (size_t i = 0; i < parts->size(); ++i) {
    const std::string& part = (*parts)[i];
    if (at->is_null() || at->is_missing()) {  // an empty section becomes a map
      Node section = map();
      section.where_ = at->where_;
      *at = std::move(section);
    }
    Node* next = child(*at, part);
    if (!next) {
      if (at->is_list()) {
        const std::string list =
            join_path({parts->begin(), parts->begin() + static_cast<std::ptrdiff_t>(i)});
        throw Error(ErrorClass::config,
                    cat("there is no item ", printable(part), ": ", printable(list), " has ",
                        counted(at->size(), "item")),
                    cat("append(…) adds an item: ", printable(list), "=append(VALUE)"));
      }
      if (!at->is_map())
        throw Error(ErrorClass::config,
                    cat("cannot set ", printable(path), ": '", printable(part),
                        "' would be inside ", describe(at->kind()), " of ", at->size(), " (",
                        brief(*at), ")", at->where_ ? " at " + at->where_.text() : ""));
      next = &at->append(part, value.where_, Node());
      next->where_ = value.where_;
    } else if (i + 1 == parts->size()) {
      value.shadow(std::move(*next));
    }
    at = next;
  }
  *at = std::move(value);
  return *at;
}

bool Node::erase(std::string_view path) {
  auto parts = parse_path(path);
  if (!parts || parts->empty()) return false;
  Node* at = this;
  for (size_t i = 0; i + 1 < parts->size() && at; ++i) at = child(*at, (*parts)[i]);
  if (!at || !child(*at, parts->back())) return false;
  if (at->is_list()) {
    auto index = static_cast<std::ptrdiff_t>(*list_index(parts->back(), at->size()));
    at->items_.erase(at->items_.begin() + index);
  } else {
    std::erase_if(at->entries_, [&](const Entry& entry) { return entry.key == parts->back(); });
  }
  return true;
}

/// Merges two lists, or replaces a map by another; false when the rule does not apply to the two
/// nodes.
bool Node::merge_by_rule(Node& over, const MergeRule& rule) {
  bool maps = is_map() && over.is_map(), lists = is_list() && over.is_list();
  if (rule.kind == MergeKind::replace && maps) {
    over.shadow(std::move(*this));
    *this = std::move(over);
    return true;
  }
  if (!lists || (rule.kind != MergeKind::append && rule.kind != MergeKind::by_key)) return false;
  shadow(*this);
  where_ = over.where_;
  const size_t before = items_.size();
  for (auto& item : over.items_) {
    const Node* name = rule.kind == MergeKind::by_key ? item.get(rule.key) : nullptr;
    Node* same = nullptr;
    for (size_t i = 0; name && i < before && !same; ++i) {
      const Node* mine = items_[i].get(rule.key);
      if (mine && mine->same_value(*name)) same = &items_[i];
    }
    if (same)
      same->merge(std::move(item));
    else
      items_.push_back(std::move(item));
  }
  return true;
}

void Node::merge(Node over, const MergeRules* rules) {
  if (rules && merge_by_rule(over, rules->rule)) return;
  if (!is_map() || !over.is_map()) {
    if (over.is_missing() && !is_null()) return;
    over.shadow(std::move(*this));
    *this = std::move(over);
    return;
  }
  std::unordered_map<std::string_view, size_t> index;
  const size_t before =
      entries_.size();  // the keys of `over` are distinct, so only the old ones are searched
  bool indexed = before >= kIndexedMerge;
  entries_.reserve(entries_.size() + over.entries_.size());  // keeps the keys' addresses valid
  if (indexed)
    for (size_t i = 0; i < entries_.size(); ++i) index.emplace(entries_[i].key, i);
  where_ = over.where_ ? over.where_ : where_;
  for (auto& entry : over.entries_) {
    Node* mine = nullptr;
    if (indexed) {
      auto found = index.find(entry.key);
      mine = found == index.end() ? nullptr : &entries_[found->second].value;
    } else {
      for (size_t i = 0; i < before && !mine; ++i)
        if (entries_[i].key == entry.key) mine = &entries_[i].value;
    }
    if (mine)
      mine->merge(std::move(entry.value), rules ? rules->below(entry.key) : nullptr);
    else
      entries_.push_back(std::move(entry));
  }
}

void Node::shadow(const Node& replaced) {
  if (!replaced.where_) return;
  history_ = replaced.history_;
  history_.push_back({replaced.where_, brief(replaced)});
}

void Node::shadow(Node&& replaced) {
  if (!replaced.where_) return;
  history_ = std::move(replaced.history_);
  history_.push_back({replaced.where_, brief(replaced)});
}

namespace {

/// A number or a boolean is never a secret, regardless of its variable.
bool holds_text(const Node& node) {
  return node.is(NodeKind::string) ||
         std::any_of(node.items().begin(), node.items().end(), holds_text) ||
         std::any_of(node.entries().begin(), node.entries().end(),
                     [](const Node::Entry& entry) { return holds_text(entry.value); });
}

}  // namespace

Node& Node::adopt_provenance(const Node& same) {
  history_ = same.history_;
  expression_ = same.expression_;
  confidential_ = same.confidential_ && holds_text(*this);
  return *this;
}

bool Node::same_value(const Node& other) const {
  if (kind_ != other.kind_ || size() != other.size()) return false;
  switch (kind_) {
    case NodeKind::null:
      return true;
    case NodeKind::boolean:
      return as_bool() == other.as_bool();
    case NodeKind::integer:
    case NodeKind::number:
    case NodeKind::string:
      return text_ == other.text_;
    case NodeKind::list:
      for (size_t i = 0; i < items_.size(); ++i)
        if (!items_[i].same_value(other.items_[i])) return false;
      return true;
    case NodeKind::map:
      for (size_t i = 0; i < entries_.size(); ++i)
        if (entries_[i].key != other.entries_[i].key ||
            !entries_[i].value.same_value(other.entries_[i].value))
          return false;
      return true;
  }
  return false;
}

std::optional<std::vector<std::string>> parse_path(std::string_view path) {
  std::vector<std::string> parts;
  std::string part;
  bool after_bracket = false;
  for (size_t i = 0; i < path.size(); ++i) {
    char c = path[i];
    if (c == '\\' && i + 1 < path.size() &&
        std::string_view(".[]\\").find(path[i + 1]) != std::string_view::npos) {
      part += path[++i];
    } else if (c == '.' || c == '[') {
      if (part.empty() && !after_bracket && !(c == '[' && parts.empty() && i == 0))
        return std::nullopt;
      if (!part.empty()) parts.push_back(std::move(part));
      part.clear();
      after_bracket = false;
      if (c == '[') {
        size_t end = path.find(']', i);
        if (end == std::string_view::npos || end == i + 1) return std::nullopt;
        parts.emplace_back(path.substr(i + 1, end - i - 1));
        i = end;
        after_bracket = true;
      }
    } else {
      if (after_bracket || c == ']') return std::nullopt;
      part += c;
    }
  }
  if (part.empty() && !after_bracket && !path.empty()) return std::nullopt;
  if (!part.empty()) parts.push_back(std::move(part));
  return parts;
}

std::string join_path(std::string_view path, std::string_view key) {
  std::string out(path);
  if (!out.empty()) out += '.';
  for (char c : key) {
    if (c == '.' || c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string brief(const Node& node, size_t max_bytes) {
  std::string text = write_flow(node, max_bytes);
  if (text.size() <= max_bytes) return text;
  size_t cut = max_bytes;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return text.substr(0, cut) + "…";
}

}  // namespace mtrain
