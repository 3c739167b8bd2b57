// Node: a node of a recipe's tree, with everything below it. A value: a copy is deep, so a change
// of one never changes another. Every node has its location and the history of values that it
// replaced. Not synchronised: many readers or one writer.
//
// Paths are dotted, "optimizer.betas.0" or "optimizer.betas[0]"; a dot inside a key is written
// "\.".
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mtrain/config/location.h"
#include "mtrain/config/merge.h"
#include "mtrain/config/scalar.h"

namespace mtrain {

/// A value that another one has replaced.
struct Shadowed {
  Location where;
  std::string value;  // as one line of YAML, truncated when long
};

class MT_API Node {
 public:
  struct Entry;

  Node();  // null
  ~Node();
  Node(const Node&);
  Node(Node&&) noexcept;
  Node& operator=(const Node&);
  Node& operator=(Node&&) noexcept;

  static Node boolean(bool value);
  static Node integer(int64_t value);
  static Node number(double value);
  static Node string(std::string value);
  /// Like string, but never converted to another kind by a schema.
  static Node quoted_string(std::string value);
  /// An unquoted scalar; scalar.h decides its kind.
  static Node plain(std::string text);
  /// A string that is taken literally and that a schema may convert to another kind.
  static Node verbatim(std::string text);
  static Node list();
  static Node map();

  NodeKind kind() const { return kind_; }
  bool is(NodeKind kind) const { return kind_ == kind; }
  bool is_null() const { return kind_ == NodeKind::null; }
  bool is_map() const { return kind_ == NodeKind::map; }
  bool is_list() const { return kind_ == NodeKind::list; }
  bool is_scalar() const { return kind_ < NodeKind::list; }
  /// True for the scalar ???, which marks a required value.
  bool is_missing() const { return kind_ == NodeKind::string && text_ == "???"; }

  /// A scalar as it was written (without its quotes); "" for lists and maps.
  const std::string& as_text() const { return text_; }
  /// True when a string was written in quotes or as a block.
  bool quoted() const { return quoted_; }
  bool is_verbatim() const { return verbatim_; }
  /// The typed values. Throw Error(config) with the location when the node is of another kind or
  /// its value does not fit.
  bool as_bool() const;
  int64_t as_int() const;    // an integer
  double as_double() const;  // an integer or a number
  const std::string& as_string() const;

  /// Children of a list or entries of a map; 0 for scalars.
  size_t size() const;
  const std::vector<Node>& items() const { return items_; }
  std::vector<Node>& items() { return items_; }
  const std::vector<Entry>& entries() const { return entries_; }
  std::vector<Entry>& entries() { return entries_; }
  /// Appends to a list.
  Node& push(Node item);
  /// Appends to a map without a search for the key. REQUIRES: the map does not have the key.
  Node& append(std::string key, Location key_where, Node value);

  /// The value of a key of this map; null when absent or when this is not a map. The key is taken
  /// literally.
  const Node* get(std::string_view key) const;
  Node* get(std::string_view key);
  /// The node at a path; null when absent. The empty path is this node.
  const Node* find(std::string_view path) const;
  Node* find(std::string_view path);
  /// Like find, but throws Error(config) that names the path and the nearest key.
  const Node& at(std::string_view path) const;
  /// Sets the node at a path; creates maps on the way (a null becomes a map). The replaced value
  /// becomes its history. Throws Error(config) when the path leads through a scalar or beyond the
  /// end of a list.
  Node& set(std::string_view path, Node value);
  /// Removes the node at a path; false when there is none.
  bool erase(std::string_view path);
  /// Merges `over` into this node: maps merge key by key, any other value replaces the old one; ???
  /// never replaces a value. `rules` may define another merge for some settings.
  void merge(Node over, const MergeRules* rules = nullptr);

  const Location& loc() const { return where_; }
  Node& set_location(Location where) { return where_ = std::move(where), *this; }
  /// Earlier values of this node, oldest first.
  const std::vector<Shadowed>& history() const { return history_; }
  /// The expression that this value was computed from, "${…}"; empty for a literal.
  const std::string& expression() const { return expression_; }
  Node& computed_from(std::string expression) { return expression_ = std::move(expression), *this; }
  /// True for a value that must not be saved or shown, such as a token from the environment;
  /// expression() has its origin.
  bool confidential() const { return confidential_; }
  Node& mark_confidential() { return confidential_ = true, *this; }
  /// True when a fault of this node is already in the report; later checks skip it.
  bool faulty() const { return faulty_; }
  void mark_faulty() { faulty_ = true; }
  /// The path of a section that is used as a tree of its own ("model"); empty for the root and for
  /// nodes inside.
  const std::string& base_path() const { return base_path_; }
  Node& with_base_path(std::string path) { return base_path_ = std::move(path), *this; }

  /// Takes over the history of the replaced node and adds its value. `replaced` may be this node
  /// before its value changes.
  void shadow(const Node& replaced);
  void shadow(
      Node&& replaced);  // the same without a copy, so many overrides of one setting stay cheap
  /// Takes over history, expression and confidentiality from another form of this node.
  Node& adopt_provenance(const Node& same);
  /// Compares kinds, values, keys and order; ignores locations and history.
  bool same_value(const Node& other) const;

 private:
  bool merge_by_rule(Node& over, const MergeRule& rule);
  friend class YamlBuilder;
  NodeKind kind_ = NodeKind::null;
  bool quoted_ = false, faulty_ = false, verbatim_ = false, confidential_ = false;
  std::string text_;
  std::vector<Node> items_;
  std::vector<Entry> entries_;
  Location where_;
  std::vector<Shadowed> history_;
  std::string expression_, base_path_;
};

struct Node::Entry {
  std::string key;
  Location key_where;
  Node value;
};

/// Splits "a.b[0].c\.d" into {"a", "b", "0", "c.d"}. Nothing when brackets do not match or a part
/// is empty.
MT_API std::optional<std::vector<std::string>> parse_path(std::string_view path);
/// Appends a key to a path, escaping what parse_path would split.
MT_API std::string join_path(std::string_view path, std::string_view key);
/// The path of these keys.
std::string join_path(const std::vector<std::string>& parts);
/// A node as one line of YAML, truncated at `max_bytes`.
MT_API std::string brief(const Node& node, size_t max_bytes = 60);

}  // namespace mtrain
