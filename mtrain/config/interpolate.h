// Interpolation: "${…}" inside values, by OmegaConf's rules
// (https://omegaconf.readthedocs.io/en/latest/usage.html):
//   ${a.b} ${a[0]}   another setting, from the root      ${.x} ${..x}   a sibling, one level up, …
//   ${oc.env:VAR,default}   a resolver                   \${   a literal ${
// and ${= 4 * ${.hidden_size}}, arithmetic (expression.h). A value that consists of one
// interpolation keeps the type of what it refers to; with text around it, it is a string. In an
// expression, ${a.b} has the value that the setting's schema reads; everywhere else it is as
// written. The error for a cycle shows the whole cycle. Stateless functions; safe from any thread.
#pragma once
#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

struct InterpolationScope {
  /// The default of a setting that is absent from the tree; nothing when there is no such setting.
  std::function<std::optional<Node>(const std::string& path)> fallback;
  /// The path at which the tree has the setting that a reference names, since a setting may be
  /// written under any of its names; the path itself where there is no such setting. When empty,
  /// paths are as written.
  std::function<std::string(const std::string& path)> path_of;
  /// The path of the setting that replaces the one at a path, train.epochs for train.steps, so that
  /// a reference to the latter would see a value without effect; "" where none does. When empty,
  /// no setting replaces another one.
  std::function<std::string(const std::string& path)> replaced_by;
  /// Reads the value of a setting for arithmetic, as its schema reads it (4k is 4000). Returns the
  /// value itself where there is no such setting; nothing when the value is invalid and its fault
  /// is in the report. When empty, values are as written.
  std::function<std::optional<Node>(const std::string& path, const Node& value, Report& report)>
      operand;
  /// Further resolvers by name; each receives the values of its arguments. A resolver may throw
  /// Error, whose message is shown.
  std::map<std::string, std::function<Node(const std::vector<Node>& arguments)>> resolvers;
  /// Reads a variable for ${env:…} and ${oc.env:…}; when empty, the process's environment is read.
  std::function<std::optional<std::string>(const std::string& name)> environment;
  /// The time for ${now:%Y-%m-%d}; the same for the whole run.
  std::time_t now = 0;
};

/// Replaces every interpolation of the tree by its value; each replaced node keeps its text as
/// expression(). Marks nodes whose interpolation failed as faulty, so that later checks do not
/// report them again.
MT_API void interpolate(Node& root, const InterpolationScope& scope, Report& report);

/// True when the value or one inside it is Node::confidential(): read from a variable or file whose
/// name suggests a secret, or computed from such a value.
MT_API bool any_confidential(const Node& node);
/// True when a text contains "${", escaped or not.
MT_API bool has_interpolation(std::string_view text);
/// The text that interpolate() turns into `literal`.
MT_API std::string escape_interpolation(std::string_view literal);

}  // namespace mtrain
