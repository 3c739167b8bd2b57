#include "mtrain/config/interpolate.h"

#include <algorithm>
#include <utility>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/expression_node.h"
#include "mtrain/config/interpolate_text.h"
#include "mtrain/config/resolvers.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

constexpr size_t kMaxChain = 64;          // the longest chain of settings that refer to one another
constexpr int kMaxReferenceNesting = 16;  // ${${${…}}}
constexpr size_t kMaxNodes = 100000;      // nodes copied by all references together
constexpr size_t kMaxText = 1u << 20;     // bytes made by all interpolations together

using Parts = std::vector<std::string>;

/// Where a value is used.
enum class Use : uint8_t {
  value,   // as a value or in a text: as written
  operand  // in arithmetic: as its schema reads it
};

/// Thrown through a chain of references when the fault is already reported.
struct Reported {};

size_t count_nodes(const Node& node) {
  size_t out = 1;
  for (const auto& item : node.items()) out += count_nodes(item);
  for (const auto& entry : node.entries()) out += count_nodes(entry.value);
  return out;
}

class Interpolator {
 public:
  Interpolator(Node& root, const InterpolationScope& scope, Report& report)
      : root_(root), scope_(scope), report_(report) {}

  void run() {
    Parts path;
    walk(root_, path);
  }

 private:
  /// A leaf whose value is being computed.
  struct Open {
    Parts path;
    Location where;
  };

  class Opened {
   public:
    Opened(std::vector<Open>& open, Open entry) : open_(open) { open_.push_back(std::move(entry)); }
    ~Opened() { open_.pop_back(); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;

   private:
    std::vector<Open>& open_;
  };

  /// Tracks whether a value is computed from a confidential one; the flag propagates to the value
  /// that refers to it.
  class Confidence {
   public:
    explicit Confidence(bool& flag) : flag_(flag), outer_(std::exchange(flag, false)) {}
    ~Confidence() { flag_ |= outer_; }
    Confidence(const Confidence&) = delete;
    Confidence& operator=(const Confidence&) = delete;

   private:
    bool& flag_;
    bool outer_;
  };

  void walk(Node& node, Parts& path) {
    if (node.is(NodeKind::string)) {
      try {
        leaf(node, path);
      } catch (const Reported&) {
        // The fault has its own diagnostic; the chain that led to it is marked faulty.
      }
      return;
    }
    for (size_t i = 0; i < node.items().size(); ++i) {
      path.push_back(std::to_string(i));
      walk(node.items()[i], path);
      path.pop_back();
    }
    for (auto& entry : node.entries()) {
      path.push_back(entry.key);
      walk(entry.value, path);
      path.pop_back();
    }
  }

  /// Computes one string of the tree in place.
  void leaf(Node& node, const Parts& path) {
    if (node.faulty()) throw Reported();
    if (!node.expression().empty() || !has_interpolation(node.as_text())) return;
    check_cycle(path, node);
    Opened opened(open_, {path, node.loc()});
    Confidence confidence(confidential_);
    try {
      std::string expression = node.as_text();
      Node value = evaluate(expression, 0);
      value.set_location(node.loc()).adopt_provenance(node);
      value.computed_from(expression);
      if (confidential_) value.mark_confidential();
      node = std::move(value);
    } catch (const InterpolationFault& fault) {
      node.mark_faulty();
      auto& diagnostic = report_.error("interpolation", join_path(path), node.loc(), fault.message);
      if (!fault.help.empty()) diagnostic.fix(fault.help);
      throw Reported();
    } catch (const Reported&) {
      node.mark_faulty();
      throw;
    }
  }

  void check_cycle(const Parts& path, Node& node) {
    auto again = std::find_if(open_.begin(), open_.end(),
                              [&](const Open& open) { return open.path == path; });
    if (again == open_.end() && open_.size() < kMaxChain) return;
    if (again == open_.end())
      throw InterpolationFault{cat("a chain of more than ", kMaxChain, " settings"), ""};
    report_cycle(static_cast<size_t>(again - open_.begin()), join_path(path));
    node.mark_faulty();
    throw Reported();
  }

  void report_cycle(size_t first, const std::string& back) {
    std::string chain;
    std::vector<std::string> places;
    for (size_t i = first; i < open_.size(); ++i) {
      chain += join_path(open_[i].path) + " → ";
      places.push_back(cat(join_path(open_[i].path), " at ", open_[i].where.text()));
    }
    const Open& start = open_[first];
    const Location& where = start.where ? start.where : open_.front().where;
    report_
        .error("interpolation-cycle", join_path(start.path), where,
               cat("refers to itself: ", chain, back))
        .note(join(places, ", "));
  }

  /// The value of a text with interpolations.
  Node evaluate(std::string_view text, int depth, Use use = Use::value) {
    if (depth > kMaxReferenceNesting)
      throw InterpolationFault{cat("nested deeper than ", kMaxReferenceNesting, " levels"), ""};
    std::string out;
    for (size_t at = 0; at < text.size();) {
      size_t slashes = 0;
      while (at + slashes < text.size() && text[at + slashes] == '\\') ++slashes;
      bool opens = text.substr(at + slashes).starts_with("${");
      if (slashes > 0) {
        // Backslashes are special only right before "${".
        out.append(opens ? slashes / 2 : slashes, '\\');
        at += slashes;
        if (opens && slashes % 2 == 1) {
          out += "${";
          at += 2;
        }
        continue;
      }
      if (!opens) {
        out += text[at++];
        continue;
      }
      size_t end = closing_brace(text, at);
      if (end == std::string_view::npos)
        throw InterpolationFault{"'${' without a '}'", "write \\${ for a literal ${"};
      bool whole = at == 0 && end + 1 == text.size();
      Node value = single(text.substr(at + 2, end - at - 2), depth, whole ? use : Use::value);
      confidential_ |= any_confidential(value);
      if (whole) return value;
      out += piece(value);
      at = end + 1;
    }
    charge_text(out.size());
    return Node::string(std::move(out));
  }

  std::string piece(const Node& value) {
    if (!value.is_scalar())
      throw InterpolationFault{cat(describe(value.kind()), " cannot be used inside a text"),
                               "use it as the whole value"};
    std::string text = value.is_null() ? "null" : value.as_text();
    charge_text(text.size());
    return text;
  }

  void charge_text(size_t bytes) {
    text_bytes_ += bytes;
    if (text_bytes_ > kMaxText) throw InterpolationFault{"the interpolated text is too long", ""};
  }

  /// Evaluates the text between "${" and "}".
  Node single(std::string_view body, int depth, Use use) {
    std::string_view trimmed = trim(body);
    if (trimmed.starts_with('=')) return arithmetic(trimmed.substr(1), depth);
    size_t colon = resolver_colon(trimmed);
    if (colon != std::string_view::npos)
      return resolver(trimmed.substr(0, colon), trimmed.substr(colon + 1), depth, use);
    if (trimmed.empty()) throw InterpolationFault{"'${}' is empty", ""};
    // Keys may be computed: ${plans[${selected}]}
    std::string path(trimmed);
    if (path.find("${") != std::string::npos) path = piece(evaluate(path, depth + 1));
    auto found = reference(path);
    if (!found) throw unknown(path);
    return taken(std::move(*found), use);
  }

  InterpolationFault unknown(const std::string& path) {
    Parts parts = absolute(path);
    std::vector<std::string> names;
    const Node* at = &root_;
    for (size_t i = 0; i + 1 < parts.size() && at; ++i) at = at->get(parts[i]);
    if (at)
      for (const auto& entry : at->entries()) names.push_back(entry.key);
    auto near = parts.empty() ? std::vector<std::string>{} : nearest(parts.back(), names, 1);
    std::string help;
    if (!near.empty()) {
      parts.back() = near[0];
      help = cat("did you mean ${", join_path(parts), "}?");
    } else if (path.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") ==
               std::string::npos) {
      help = cat("write ${oc.env:", visible(path, 80), "} for an environment variable");
    }
    return {cat("there is no ", visible(path, 80)), help};
  }

  /// The parts of a reference, from the root.
  Parts absolute(std::string_view path) {
    size_t dots = 0;
    while (dots < path.size() && path[dots] == '.') ++dots;
    auto parts = parse_path(path.substr(dots));
    if (!parts || parts->empty())
      throw InterpolationFault{cat("'", visible(path, 80), "' is not a path"), ""};
    if (dots == 0) return *parts;
    Parts base = open_.back().path;
    if (dots > base.size())
      throw InterpolationFault{cat("'", visible(path, 80), "' goes above the root"), ""};
    base.resize(base.size() - dots);
    base.insert(base.end(), parts->begin(), parts->end());
    return base;
  }

  /// The value of another setting.
  struct Found {
    Node value;
    Parts path;
    Node* place = nullptr;  // where the tree has it; null for a default
  };

  /// The value of a setting for its use.
  Node taken(Found found, Use use) {
    if (use == Use::value || !scope_.operand) return std::move(found.value);
    if (found.place && found.place->faulty()) throw Reported();
    // A default is not in the tree, so the report of its faults is left to the schema.
    Report ignored;
    auto read = scope_.operand(join_path(found.path), found.value, found.place ? report_ : ignored);
    if (read) return std::move(*read);
    if (!found.place) return std::move(found.value);
    found.place->mark_faulty();
    throw Reported();
  }

  /// Looks up another setting and computes it first if necessary; nothing when there is none.
  std::optional<Found> reference(std::string_view path) {
    Parts parts = absolute(path);
    if (scope_.path_of) parts = absolute(scope_.path_of(join_path(parts)));
    for (size_t i = 0; i < open_.size(); ++i) {
      // The setting is inside the map that it refers to.
      if (parts.size() < open_[i].path.size() &&
          std::equal(parts.begin(), parts.end(), open_[i].path.begin())) {
        report_cycle(i, join_path(parts));
        throw Reported();
      }
    }
    Node* at = &root_;
    Parts walked;
    for (const auto& part : parts) {
      if (at->is(NodeKind::string)) leaf(*at, walked);  // an interpolation may give a map
      Node* next = child(*at, part);
      if (!next) return fallback(parts);
      walked.push_back(part);
      at = next;
    }
    refuse_replaced(walked);
    complete(*at, walked);
    if (at->is_missing())
      throw InterpolationFault{cat(join_path(parts), " is ???: set it first"), ""};
    confidential_ |= any_confidential(*at);
    nodes_ += count_nodes(*at);
    if (nodes_ > kMaxNodes)
      throw InterpolationFault{"the interpolations create too many values", ""};
    return Found{*at, std::move(walked), at};
  }

  /// Refuses a reference to a value that another setting replaces: it has no effect in the run.
  void refuse_replaced(const Parts& parts) {
    const std::string path = join_path(parts);
    const std::string by = scope_.replaced_by ? scope_.replaced_by(path) : "";
    if (by.empty()) return;
    const Node* winner = root_.find(by);
    throw InterpolationFault{
        cat(visible(path, 80), " has no value in this run: ", by, " replaces it",
            winner && winner->loc() ? cat(" (", winner->loc().text(), ")") : ""),
        cat("remove ", by, ", or write a share such as 25% where the setting accepts one")};
  }

  std::optional<Found> fallback(const Parts& parts) {
    auto value = scope_.fallback ? scope_.fallback(join_path(parts)) : std::nullopt;
    if (!value) return std::nullopt;
    if (!value->is(NodeKind::string) || !has_interpolation(value->as_text()))
      return Found{std::move(*value), parts};
    // A default may itself be an expression, relative to its setting.
    if (open_.size() >= kMaxChain)
      throw InterpolationFault{cat("a chain of more than ", kMaxChain, " settings"), ""};
    for (size_t i = 0; i < open_.size(); ++i) {
      if (open_[i].path != parts) continue;
      report_cycle(i, join_path(parts));
      throw Reported();
    }
    Opened opened(open_, {parts, value->loc()});
    return Found{evaluate(value->as_text(), 0).computed_from(value->as_text()), parts};
  }

  static Node* child(Node& node, const std::string& part) {
    if (node.is_map()) return node.get(part);
    if (!node.is_list()) return nullptr;
    auto index = parse_integer(part);
    if (!index) return nullptr;
    auto size = static_cast<int64_t>(node.size());
    int64_t at = *index < 0 ? *index + size : *index;
    return at >= 0 && at < size ? &node.items()[static_cast<size_t>(at)] : nullptr;
  }

  /// Computes everything below a node that is about to be copied.
  void complete(Node& node, Parts& path) {
    if (node.is(NodeKind::string)) return leaf(node, path);
    for (size_t i = 0; i < node.items().size(); ++i) {
      path.push_back(std::to_string(i));
      complete(node.items()[i], path);
      path.pop_back();
    }
    for (auto& entry : node.entries()) {
      path.push_back(entry.key);
      complete(entry.value, path);
      path.pop_back();
    }
  }

  Node arithmetic(std::string_view text, int depth) {
    ExpressionScope scope{.nesting = &nesting_};
    scope.interpolation = [&](std::string_view whole, size_t at) {
      return expression_value(evaluate(whole, depth + 1, Use::operand), at);
    };
    scope.name = [&](std::string_view name, size_t at) {
      auto found = reference(name);
      if (!found) {
        InterpolationFault fault = unknown(std::string(name));
        throw ExpressionError(fault.message + (fault.help.empty() ? "" : "; " + fault.help), at);
      }
      return expression_value(taken(std::move(*found), Use::operand), at);
    };
    try {
      return expression_node(evaluate_expression(text, scope));
    } catch (const ExpressionError& error) {
      throw InterpolationFault{cat(error.what(), " (in '", visible(trim(text), 80), "')"), ""};
    } catch (const Error& error) {
      throw InterpolationFault{error.message(), error.hint()};
    }
  }

  Node resolver(std::string_view name, std::string_view text, int depth, Use use) {
    Parts raw = split_arguments(text);
    if (name == "oc.select") return select(raw, depth, use);
    if (name == "oc.deprecated") return deprecated(raw, depth, use);
    std::vector<Node> arguments;
    for (const auto& argument : raw) arguments.push_back(this->argument(argument, depth));
    if (name == "oc.dict.keys" || name == "oc.dict.values")
      return dictionary(name == "oc.dict.keys", arguments);
    if (auto value = call_resolver(name, arguments, scope_)) return std::move(*value);
    std::vector<std::string> names = {"oc.env",        "env",          "now",
                                      "oc.decode",     "oc.create",    "oc.select",
                                      "oc.deprecated", "oc.dict.keys", "oc.dict.values"};
    for (const auto& [custom, function] : scope_.resolvers) names.push_back(custom);
    auto near = nearest(name, names, 1);
    throw InterpolationFault{
        cat("there is no resolver ", visible(name, 60)),
        near.empty() ? "there are: " + join(names, ", ") : "did you mean " + near[0] + "?"};
  }

  /// Computes the interpolations of an argument, then types it like an override value.
  Node argument(const std::string& text, int depth) {
    Node value = decode_value(text);
    compute_inside(value, depth);
    return value;
  }

  void compute_inside(Node& node, int depth) {
    if (node.is(NodeKind::string) && has_interpolation(node.as_text()))
      node = evaluate(node.as_text(), depth + 1);
    for (auto& item : node.items()) compute_inside(item, depth);
    for (auto& entry : node.entries()) compute_inside(entry.value, depth);
  }

  Node select(const Parts& raw, int depth, Use use) {
    if (raw.empty() || raw.size() > 2)
      throw InterpolationFault{"oc.select takes 1 to 2 arguments", ""};
    Node key = argument(raw[0], depth);
    std::optional<Found> found;
    try {
      found = reference(key.as_text());
    } catch (const InterpolationFault&) {
      // The default applies to a missing value.
    }
    if (found && !found->value.is_missing()) return taken(std::move(*found), use);
    return raw.size() == 2 ? argument(raw[1], depth) : Node::plain("null");
  }

  Node deprecated(const Parts& raw, int depth, Use use) {
    if (raw.empty() || raw.size() > 2)
      throw InterpolationFault{"oc.deprecated takes 1 to 2 arguments", ""};
    Node key = argument(raw[0], depth);
    std::string old = join_path(open_.back().path);
    std::string message =
        raw.size() == 2 ? argument(raw[1], depth).as_text()
                        : "'$OLD_KEY' is deprecated. Change your code and config to use '$NEW_KEY'";
    for (auto [mark, text] :
         {std::pair<std::string, std::string>{"$OLD_KEY", old}, {"$NEW_KEY", key.as_text()}})
      for (size_t at;
           (at = message.find(mark)) != std::string::npos && text.find(mark) == std::string::npos;)
        message.replace(at, mark.size(), text);
    auto found = reference(key.as_text());
    if (!found) throw unknown(key.as_text());
    report_.warning("renamed", old, open_.back().where, message);
    return taken(std::move(*found), use);
  }

  Node dictionary(bool keys, const std::vector<Node>& arguments) {
    if (arguments.size() != 1) throw InterpolationFault{"wanted the path of a map", ""};
    Node map = arguments[0];
    if (map.is(NodeKind::string)) {
      auto found = reference(map.as_text());
      if (!found) throw unknown(map.as_text());
      map = std::move(found->value);
    }
    if (!map.is_map())
      throw InterpolationFault{cat("wanted a map, got ", describe(map.kind())), ""};
    Node out = Node::list();
    for (const auto& entry : map.entries()) out.push(keys ? Node::string(entry.key) : entry.value);
    return out;
  }

  Node& root_;
  const InterpolationScope& scope_;
  Report& report_;
  std::vector<Open> open_;
  int nesting_ = 0;  // of all expressions under evaluation
  size_t nodes_ = 0, text_bytes_ = 0;
  bool confidential_ = false;  // whether the value that is being computed is confidential
};

}  // namespace

bool any_confidential(const Node& node) {
  auto inside = [](const auto& items, const auto& value_of) {
    return std::any_of(items.begin(), items.end(),
                       [&](const auto& item) { return any_confidential(value_of(item)); });
  };
  return node.confidential() ||
         inside(node.items(), [](const Node& item) -> const Node& { return item; }) ||
         inside(node.entries(),
                [](const Node::Entry& entry) -> const Node& { return entry.value; });
}

void interpolate(Node& root, const InterpolationScope& scope, Report& report) {
  Interpolator(root, scope, report).run();
}

}  // namespace mtrain
