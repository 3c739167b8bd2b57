// NotBuilt: what a recipe asks for and this build lacks. Gathers the settings and components that
// name a part in `needs`, and reports one error for each part. For container.cc. For one thread at
// a time.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// Whether this value of the setting needs a part that is not built.
MT_API bool needs_part(const FieldSpec& spec, const Node& value);

class NotBuilt {
 public:
  /// A component that a recipe names at `path`; `built` are the names to take instead.
  void component(const Schema& component, const std::string& path, const Node& name,
                 const std::vector<std::string>& built);
  /// The settings of a section that were set to something that needs a part. `values` are
  /// canonical.
  void settings(const Schema& owner, const std::string& path, const Node& values);
  void tell(Report& report) const;

 private:
  struct Wish {
    std::string setting, remedy;  // "dist.tp=8", "dist.tp=1"
    std::string path;
    Location where;
  };
  struct Part {
    std::string name;
    std::vector<Wish> wishes;
  };
  void wish(const std::string& part, Wish wish);
  std::vector<Part> parts_;  // in the order of the sections
};

}  // namespace mtrain
