// check --data: opens the files that a recipe names. Runs plugin code; stateless.
#pragma once
#include <string>

#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

struct DataCheck {
  std::string text;  // what was found: "tokenizer: 257 ids\n…"
  int status = 0;    // of the first error
};

/// Creates the tokenizer and the dataset, with its chat template, and reads the first sample of
/// each split that a run would use. An error is added to the recipe's report, at the setting that
/// it concerns. REQUIRES: the recipe is valid.
DataCheck check_data(Recipe& recipe, PluginHost& plugins);

}  // namespace mtrain
