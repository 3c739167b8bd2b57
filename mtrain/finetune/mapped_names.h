// Checks dataset.columns and dataset.roles against the records of a file: an entry that no record
// has would silently drop a field, or change the detected format. Used by sft_data.cc and
// preference.cc. Not synchronised: one thread at a time.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "mtrain/finetune/record_format.h"

namespace mtrain::finetune {

/// A field that no record is meant to have: {input: none} ignores the field.
constexpr const char* kNoField = "none";

/// Throws Error(config) for an entry of `columns` whose field none of the records has, where they
/// have the field of mtrain's own name: the entry hides it. Call it where the format is not found,
/// or is given. `file`: for messages.
void refuse_hiding_columns(std::span<const Json> records, const Columns& columns,
                           const std::string& file);

class MT_API MappedNames {
 public:
  /// `format`: the name of a RecordFormat, or "pairs" or "labels". Keeps a copy of the names.
  MappedNames(const FormatOptions& options, const std::string& format);
  /// Notes the names that a record has. Costs nothing once each entry was found.
  void note(const Json& record);
  /// Throws Error(config) for an entry of dataset.columns whose field no record has, where this
  /// drops a field or changes what is read. Returns a warning for each other entry without effect.
  /// `file`: for messages. Nothing if no record was noted.
  std::vector<std::string> finish(const std::string& file) const;

 private:
  struct Column {
    std::string ours, theirs;
    bool of_record = false, of_message = false;  // where the format reads it
    bool used = false, present = false;          // found there; found anywhere
    bool shadows = false;                        // a record has a field with our name
  };
  void note(const Json& object, bool is_message);
  void note_role(const Json& message);
  void count_pending();
  std::string warning_of(const Column& column, const std::string& file) const;

  std::string format_;
  bool noted_ = false;         // any record
  bool has_messages_ = false;  // the format has messages, or items like them
  std::vector<Column> columns_;
  std::vector<std::string> role_fields_;
  std::set<std::string> pending_roles_;
  std::set<std::string> fields_;  // of the noted records
  size_t pending_ = 0;            // columns that are not found
};

}  // namespace mtrain::finetune
