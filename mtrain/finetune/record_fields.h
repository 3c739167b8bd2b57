// The fields of a record under the names of dataset.columns, and what an error says of those that
// are missing or have no place. Used by the readers of records only. Stateless functions; safe from
// any thread.
#pragma once
#include <string>

#include "mtrain/finetune/record_format.h"

namespace mtrain::finetune {

/// The field that a format calls `name`, mapped by the recipe's columns; null when it is absent or
/// null.
const Json* find_field(const Json& record, const char* name, const Columns& columns);
/// Like find_field(), but null if the columns use the field for something else: with {chosen:
/// messages}, a record has no field `messages`.
const Json* own_field(const Json& record, const char* name, const Columns& columns);
/// The name in the file of the field that a format calls `name`, for messages.
std::string name_in_file(const std::string& name, const Columns& columns);
/// Whether the columns say that there is no such field: {prompt: none}.
bool is_left_out(const std::string& name, const Columns& columns);

/// "has no field 'a'; its fields are b, c", or that the field is null.
std::string missing_field(const Json& record, const char* name, const Columns& columns);
/// The names of a record's fields, for messages.
std::string field_names(const Json& record);
/// The field that is probably the missing one: its name is similar to `name`, or usual for it, and
/// nothing else reads it; empty: there is none.
std::string likely_field(const Json& record, const std::string& name, const Columns& columns);
/// What to write for columns with these changes: dataset.columns='{prompt: question}'.
std::string columns_setting(const Columns& columns, const Columns& changes);
/// The help for a missing field: the setting that maps it to the likely one, else `otherwise`.
std::string missing_help(const Json& record, const std::string& name, const Columns& columns,
                         const std::string& otherwise);

/// Refuses a system message and tools of a record whose prompt and answer are texts: only a chat
/// template puts them into a text. Throws RecordFault.
void refuse_with_texts(const Json& record, const Columns& columns);
/// Throws RecordFault if a record with a prompt also has an input or a history, which only alpaca
/// records combine with their prompt.
void refuse_alpaca_fields(const Json& record, const Columns& columns);

}  // namespace mtrain::finetune
