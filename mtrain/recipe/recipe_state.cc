#include "mtrain/recipe/recipe_state.h"

#include <algorithm>

#include "mtrain/base/counted.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

/// "needs X, which mtrain does not implement yet" -> "X".
std::string part_of(const std::string& message) {
  constexpr std::string_view kBefore = "needs ", kAfter = ", which";
  size_t begin = message.find(kBefore), end = message.rfind(kAfter);
  if (begin == std::string::npos || end == std::string::npos || end < begin) return message;
  return message.substr(begin + kBefore.size(), end - begin - kBefore.size());
}

void add_once(std::vector<std::string>& list, std::string item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(std::move(item));
}

}  // namespace

RecipeState judge_recipe(const Report& report, const std::vector<InputPath>& inputs) {
  RecipeState state;
  std::vector<std::string> missing, parts;
  for (const auto& d : report.diagnostics()) {
    if (d.severity != Severity::error) continue;
    // The user chooses the training data. There are several settings for it, so a rule requires one
    // of them.
    if (d.code == "missing" || d.code == "rule data-source" || d.code == "rule records-source" ||
        d.code == "rule distillation-teacher")
      add_once(missing, d.path);
    else if (d.code == "rule peft-base")  // so is the folder of weights
      add_once(missing, "model.init_from");
    else if (d.code == "not-built")
      add_once(parts, part_of(d.message));
    else
      ++state.errors;
  }
  for (const InputPath& input : inputs)
    if (!input.is_there())
      add_once(missing, cat("the file ", printable(input.given), " (", input.setting, ")"));
  using enum RecipeState::Kind;
  state.kind = state.errors > 0   ? faulty
               : !parts.empty()   ? not_built
               : !missing.empty() ? incomplete
                                  : ready;
  state.needs = state.kind == not_built ? std::move(parts) : std::move(missing);
  return state;
}

std::string describe(const RecipeState& state) {
  switch (state.kind) {
    case RecipeState::Kind::ready:
      return "ready";
    case RecipeState::Kind::incomplete:
      return cat("needs ", join(state.needs, ", "));
    case RecipeState::Kind::not_built:
      return cat("not supported: ", join(state.needs, ", "));
    case RecipeState::Kind::faulty:
      return counted(state.errors, "error");
  }
  return "?";
}

const char* name(RecipeState::Kind kind) {
  switch (kind) {
    case RecipeState::Kind::ready:
      return "ready";
    case RecipeState::Kind::incomplete:
      return "incomplete";
    case RecipeState::Kind::not_built:
      return "not_built";
    case RecipeState::Kind::faulty:
      return "faulty";
  }
  return "?";
}

}  // namespace mtrain
