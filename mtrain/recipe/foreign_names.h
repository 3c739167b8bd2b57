// Names of settings in other trainers, to suggest the equivalent setting for an unknown name.
// Constant tables; safe from any thread.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "mtrain/config/container.h"
#include "mtrain/recipe/hf_config.h"

namespace mtrain {

/// A row of the table.
struct ForeignName {
  std::string_view name;      // lower case with '_', without its section
  std::string_view trainers;  // the trainers that have it
  std::string_view setting;   // the full path of the equivalent setting; empty: none
  std::string_view
      how;  // how to convert its value, or why there is no equivalent; empty: the value is the same
};

/// The table. A name that a schema accepts by renamed_from() also has a row, for use in another
/// section.
MT_API std::span<const ForeignName> foreign_names();
/// The rows of the table for settings of fine-tuning.
std::span<const ForeignName> fine_tuning_names();

/// The row of a name, in whatever case and with '-' or '_'; null: none.
MT_API const ForeignName* find_foreign_name(std::string_view name);

/// Help for an unknown setting if a part of its path is a name in the table; otherwise empty.
std::string foreign_name_help(std::string_view path, const SchemaCatalog& catalog);

/// Help for an unknown model plugin if its name is a family of Hugging Face models; otherwise
/// empty.
std::string foreign_model_help(std::string_view name, const HfFamilies& families,
                               const PluginSchema& schema_of);

}  // namespace mtrain
