// Names of settings in other trainers, to suggest the equivalent setting for an unknown name.
// Constant tables; safe from any thread.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "mtrain/config/container.h"

namespace mtrain {

/// A row of the table.
struct ForeignName {
  std::string_view name;      // lower case with '_', without its section
  std::string_view trainers;  // the trainers that have it
  std::string_view setting;   // the full path of the equivalent setting; empty: none
  std::string_view
      how;  // how to convert its value, or why there is no equivalent; empty: the value is the same
};

/// The table. A name that a schema admits by renamed_from() has a row for where it is written in
/// another section.
MT_API std::span<const ForeignName> foreign_names();

/// The row of a name, in whatever case and with '-' or '_'; null: none.
MT_API const ForeignName* find_foreign_name(std::string_view name);

/// What to do about a setting that does not exist, where a part of its path is such a name; empty
/// otherwise.
std::string foreign_name_help(std::string_view path, const SchemaCatalog& catalog);

/// What to do about a component that does not exist, where it is a family of Hugging Face models;
/// empty otherwise.
std::string foreign_component_help(std::string_view kind, std::string_view name);

}  // namespace mtrain
