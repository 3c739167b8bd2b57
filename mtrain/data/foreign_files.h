// foreign_file_*(): recognizes files that are neither text nor JSON lines: Parquet, Arrow,
// archives, arrays, spreadsheets and so on, by their first bytes or by the ending of their name, so
// that they are refused by their format's name, with the way to convert them. Stateless functions;
// safe from any thread.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "mtrain/base/file.h"

namespace mtrain {

struct ForeignFile {
  std::string format;  // "a Parquet file"
  std::string help;    // how to convert it, with the file's name in the command
};

/// The help for a file of records (dataset.path) instead of one for `mtrain data prepare`.
MT_API std::string help_for_records(const ForeignFile& file);

/// By the first bytes of a file (sixteen are enough). `name`: of the file, for the help.
MT_API std::optional<ForeignFile> foreign_file_of_start(std::string_view start,
                                                        const std::string& name);
/// By the ending of the name: ".parquet". Tables of text (.csv) are recognized by it only.
MT_API std::optional<ForeignFile> foreign_file_of_name(const fs::path& path);

}  // namespace mtrain
