// meant_help(): which value a text that is none was probably meant to be. Stateless.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "mtrain/base/export.h"

namespace mtrain {

/// "write 1000 (a ',' does not group digits)": the values that the text may stand for, of those
/// that `fits` accepts, at most two. Considered are a comment or a comma behind the value,
/// characters that only look like those of YAML, digits in groups, a decimal comma, a percentage,
/// capital letters, and the names of choices in PyTorch and other trainers. Empty when nothing
/// fits.
std::string meant_help(std::string_view text, const std::function<bool(const std::string&)>& fits);

/// A choice or a component by the name that another program has for it.
struct ForeignChoice {
  std::string_view name;  // lower case, letters and digits alone: torch.bfloat16 is torchbfloat16
  std::string_view ours;
  std::string_view whose;  // empty: of a switch
};

/// The table. Settings by other trainers' names have one of their own, in train/foreign_names.h.
MT_API std::span<const ForeignChoice> foreign_choices();

}  // namespace mtrain
