// Interpolation: "${…}" inside values, by OmegaConf's rules
// (https://omegaconf.readthedocs.io/en/latest/usage.html):
//   ${a.b} ${a[0]}   another setting, from the root      ${.x} ${..x}   a sibling, one level up, …
//   ${oc.env:VAR,default}   a resolver                   \${   a literal ${
// and ${= 4 * ${.hidden_size}}, arithmetic (expression.h). A value that is one interpolation keeps
// the other's type; text around it makes a text. Cycles are errors that show the way round.
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
  /// The value of a setting that the tree does not say, its default; nothing when there is no such
  /// setting.
  std::function<std::optional<Node>(const std::string& path)> fallback;
  /// Further resolvers by name; each gets its arguments' values. May throw Error, whose message is
  /// shown.
  std::map<std::string, std::function<Node(const std::vector<Node>& arguments)>> resolvers;
  /// What ${env:…} and ${oc.env:…} read; nothing set: the process's environment.
  std::function<std::optional<std::string>(const std::string& name)> environment;
  /// What ${now:%Y-%m-%d} shows; one moment for the whole run.
  std::time_t now = 0;
};

/// Replaces every interpolation of the tree by its value; each replaced node keeps its text as
/// expression(). Nodes whose interpolation failed are marked faulty, so that nothing else is said
/// about them.
MT_API void interpolate(Node& root, const InterpolationScope& scope, Report& report);

/// True when the value or one inside it is Node::confidential(): read from a variable or file whose
/// name tells of a secret, or computed from such a value.
MT_API bool any_confidential(const Node& node);
/// True when a text holds "${", escaped or not.
MT_API bool has_interpolation(std::string_view text);
/// The text that interpolate() turns into `literal`.
MT_API std::string escape_interpolation(std::string_view literal);

}  // namespace mtrain
