#include "mtrain/config/read_items.h"

#include "mtrain/base/error.h"
#include "mtrain/config/schema.h"

namespace mtrain {

bool is_item_list(const Node& list, const std::string& path, Report& report) {
  if (list.is_null() || list.is_list()) return true;
  report.error("wrong-type", path, list.loc(), cat("expected a list of maps, found ", brief(list)));
  return false;
}

bool read_item(const Node& item, const std::string& path, Fields& fields, Report& report) {
  if (!item.is_map()) {
    report.error("wrong-type", path, item.loc(), cat("expected a map, found ", brief(item)));
    return false;
  }
  Schema schema{path, "", {}, {}};
  for (const Field& field : fields.fields()) schema.fields.push_back(field.spec);
  Report faults;
  validate(item, schema, faults, {.path = path});
  const bool valid = faults.ok();
  report.add(std::move(faults));
  if (valid) read_fields(Node(item).with_base_path(path), fields);
  return valid;
}

}  // namespace mtrain
