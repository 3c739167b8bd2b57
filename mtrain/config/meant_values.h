// meant_help() suggests valid values for an invalid text. Stateless functions; safe from any
// thread.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

/// "write 1000 (a ',' does not group digits)": at most two values that the text may stand for and
/// that `fits` accepts. Considers a comment or a comma after the value, characters that look like
/// those of YAML, grouped digits, a decimal comma, a percentage, capital letters, and the names of
/// choices in PyTorch and other trainers. Empty when nothing fits.
std::string meant_help(std::string_view text, const std::function<bool(const std::string&)>& fits);

/// Help for a word that is no choice of the setting at `path`, but that other settings express;
/// empty: none.
std::string help_of_combination(std::string_view path, std::string_view word);

/// A choice or a component under the name that another program uses.
struct ForeignChoice {
  std::string_view name;  // lower case, only letters and digits: torch.bfloat16 is torchbfloat16
  std::string_view ours;
  std::string_view whose;  // the program; empty for a boolean switch
};

/// The table of foreign choices. The table of foreign setting names is in
/// mtrain/recipe/foreign_names.h.
MT_API std::span<const ForeignChoice> foreign_choices();

}  // namespace mtrain
