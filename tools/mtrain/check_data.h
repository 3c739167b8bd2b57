// check --data: opens what a recipe reads besides itself. Runs plugin code; stateless.
#pragma once
#include <string>

#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

struct DataCheck {
  std::string text;  // what was found: "tokenizer: 257 ids\n…"
  int status = 0;    // of the first fault
};

/// Makes the tokenizer and the dataset, with the template of its conversations, and reads the first
/// sample of each split that a run would use. A fault goes to the recipe's report, at the setting
/// that it speaks of. REQUIRES: the recipe is sound.
DataCheck check_data(Recipe& recipe, PluginHost& plugins);

}  // namespace mtrain
