#include "mtrain/config/provenance.h"

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/interpolate.h"
#include "mtrain/config/interpolate_text.h"
#include "mtrain/config/json_write.h"
#include "mtrain/config/resolvers.h"

namespace mtrain {
namespace {

constexpr int kMaxInputDepth = 8;  // the longest chain of computed values

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }

/// Collects the settings that an expression names.
class Inputs {
 public:
  Inputs(const Node& root, const std::string& path) : root_(root), path_(path) {}

  void text(std::string_view text) {
    for (size_t at = 0; (at = text.find("${", at)) != std::string_view::npos;) {
      size_t end = closing_brace(text, at + 1);
      if (end == std::string_view::npos) return;
      if (at == 0 || text[at - 1] != '\\') body(text.substr(at + 2, end - at - 2));
      at = end + 1;
    }
  }
  std::vector<std::string> found;

 private:
  void body(std::string_view body) {
    text(body);
    if (body.starts_with('=')) return names(body.substr(1));
    if (body.find("${") != std::string_view::npos) return;
    size_t colon = body.find(':');
    if (colon == std::string_view::npos) return setting(body);
    if (trim(body.substr(0, colon)) != "oc.select") return;
    auto arguments = split_arguments(body.substr(colon + 1));
    if (!arguments.empty()) setting(arguments[0]);
  }

  /// The bare dotted names of arithmetic.
  void names(std::string_view text) {
    for (size_t i = 0; i < text.size();) {
      if (text[i] == '\'' || text[i] == '"') {
        size_t end = text.find(text[i], i + 1);
        i = end == std::string_view::npos ? text.size() : end + 1;
      } else if (text.substr(i).starts_with("${")) {
        size_t end = closing_brace(text, i + 1);
        i = end == std::string_view::npos ? text.size() : end + 1;
      } else if (is_name_start(text[i])) {
        size_t end = i;
        while (end < text.size() &&
               (is_name_start(text[end]) || std::isdigit(static_cast<unsigned char>(text[end])) ||
                text[end] == '.'))
          ++end;
        if (text.substr(i, end - i).find('.') != std::string_view::npos)
          setting(text.substr(i, end - i));
        i = end;
      } else {
        ++i;
      }
    }
  }

  void setting(std::string_view reference) {
    reference = trim(reference);
    size_t dots = std::min(reference.find_first_not_of('.'), reference.size());
    auto own = parse_path(path_), rest = parse_path(reference.substr(dots));
    if (!own || !rest || dots > own->size()) return;
    std::string path;
    if (dots > 0)
      for (size_t i = 0; i + dots < own->size(); ++i) path = join_path(path, (*own)[i]);
    for (const auto& part : *rest) path = join_path(path, part);
    if (root_.find(path) && std::find(found.begin(), found.end(), path) == found.end())
      found.push_back(path);
  }

  const Node& root_;
  const std::string& path_;
};

std::string place(const Location& where) { return where ? where.text() : "unknown location"; }

class Why {
 public:
  explicit Why(const ConfigContainer& config) : config_(config) {}

  void line(const std::string& path, const Node& node, size_t indent, int depth) {
    bool secret = config_.is_secret(path);
    auto shown = [&](const std::string& value) { return secret ? std::string("(secret)") : value; };
    out.append(indent, ' ');
    out += cat(path, " = ", any_confidential(node) ? "(secret)" : shown(brief(node)));
    bool computed = !node.expression().empty() && !secret;
    if (computed) out += cat("   computed ", node.expression());
    out += cat("   ", place(node.loc()), "\n");
    if (computed && depth < kMaxInputDepth)
      for (const auto& input : inputs_of(config_.root(), path, node.expression()))
        if (const Node* value = config_.root().find(input))
          line(input, *value, indent + 2, depth + 1);
    for (auto it = node.history().rbegin(); it != node.history().rend(); ++it) {
      out.append(indent + 2, ' ');
      out += cat("shadowed ", shown(it->value), "   ", place(it->where), "\n");
    }
  }
  std::string out;

 private:
  const ConfigContainer& config_;
};

void add_place(Node& out, const Location& where) {
  SourceKind kind = where ? where.source->kind() : SourceKind::built_in;
  const char* kinds[] = {"file", "command line", "default"};
  out.append("kind", {}, Node::string(kinds[static_cast<int>(kind)]));
  out.append("where", {}, Node::string(place(where)));
  if (kind == SourceKind::built_in) return;
  if (kind == SourceKind::command_line) {
    out.append("argument", {}, Node::string(where.source->text()));
    return;
  }
  out.append("file", {}, Node::string(where.source->name()));
  out.append("line", {}, Node::integer(where.line));
  out.append("column", {}, Node::integer(where.column));
}

Node strings(const std::vector<std::string>& items) {
  Node out = Node::list();
  for (const auto& item : items) out.push(Node::string(item));
  return out;
}

Node history_of(const ConfigContainer& config, const std::string& path, const Node& node) {
  bool secret = config.is_secret(path);
  Node out = Node::map();
  out.append("value", {}, secret || any_confidential(node) ? Node::string("(secret)") : node);
  if (secret && node.loc() && node.loc().source->kind() == SourceKind::command_line) {
    out.append("kind", {},
               Node::string("command line"));  // omit the argument, which contains the secret
    out.append("where", {}, Node::string(place(node.loc())));
  } else {
    add_place(out, node.loc());
  }
  if (!node.expression().empty() && !secret) {
    out.append("expression", {}, Node::string(node.expression()));
    out.append("inputs", {}, strings(inputs_of(config.root(), path, node.expression())));
  }
  if (!node.history().empty()) {
    Node& shadowed = out.append("shadowed", {}, Node::list());
    for (auto it = node.history().rbegin(); it != node.history().rend(); ++it)
      shadowed.push(make_map({{"value", Node::string(secret ? "(secret)" : it->value)},
                              {"where", Node::string(place(it->where))}}));
  }
  return out;
}

}  // namespace

void each_leaf(const Node& root,
               const std::function<void(const std::string&, const Node&)>& visit) {
  std::function<void(const std::string&, const Node&)> walk = [&](const std::string& path,
                                                                  const Node& node) {
    if (!node.is_map() || node.size() == 0) return visit(path, node);
    for (const auto& entry : node.entries()) walk(join_path(path, entry.key), entry.value);
  };
  for (const auto& entry : root.entries()) walk(join_path("", entry.key), entry.value);
}

std::vector<std::string> inputs_of(const Node& root, const std::string& path,
                                   const std::string& expression) {
  Inputs inputs(root, path);
  inputs.text(expression);
  return std::move(inputs.found);
}

std::string why_text(const ConfigContainer& config, std::string_view path) {
  Why why(config);
  const Node& node = config.root().at(path);
  if (node.is_map())
    each_leaf(node, [&](const std::string& rest, const Node& leaf) {
      why.line(cat(path, ".", rest), leaf, 0, 0);
    });
  else
    why.line(std::string(path), node, 0, 0);
  return std::move(why.out);
}

Node why_node(const ConfigContainer& config, std::string_view path) {
  auto one = [&](const std::string& at, const Node& leaf) {
    Node out = make_map({{"path", Node::string(at)}});
    out.merge(history_of(config, at, leaf));
    return out;
  };
  const Node& node = config.root().at(path);
  if (!node.is_map()) return one(std::string(path), node);
  Node out = Node::list();
  each_leaf(node, [&](const std::string& rest, const Node& leaf) {
    out.push(one(cat(path, ".", rest), leaf));
  });
  return out;
}

Node provenance(const ConfigContainer& config) {
  Node out = Node::map();
  each_leaf(config.root(), [&](const std::string& path, const Node& leaf) {
    out.append(path, {}, history_of(config, path, leaf));
  });
  return out;
}

}  // namespace mtrain
