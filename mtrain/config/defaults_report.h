// Reports what each file of a composed recipe contributes: the defaults tree, how many settings
// each file decides, and which of its settings another file or the command line overrides.
// Stateless functions; safe from any thread.
#pragma once
#include <functional>
#include <string>

#include "mtrain/config/compose.h"

namespace mtrain {

/// Warns of options that the command line chooses (mixed_precision=bf16) and that have no effect:
/// the recipe sets all their settings, or their type, to something else after them.
MT_API void warn_of_idle_choices(const Composition& composition, Report& report);
/// `replaced_by`: the path whose value counts instead of the one at a path, or "" (see
/// merge_order.h). Returns {"recipe", "tree": [{"depth", "entry", "file", "package", "where",
/// "dropped"}],
///  "files": [{"file", "package", "settings", "shadowed": [{"path", "by"}], "unused"}]}
MT_API Node defaults_report(const Composition& composition,
                            const std::function<std::string(const std::string&)>& replaced_by);
MT_API std::string defaults_text(const Node& report);

}  // namespace mtrain
