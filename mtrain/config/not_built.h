// NotBuilt: the parts that a recipe requests and that are not implemented, or were left out of this
// build. Collects the settings and components that name such a part in `needs`, and reports one
// error for each part.
// Used by container.cc only. Not synchronised: one thread at a time.
#pragma once
#include <string>
#include <vector>

#include "mtrain/config/fields.h"
#include "mtrain/config/report.h"
#include "mtrain/config/tree.h"

namespace mtrain {

/// True when this value of the setting needs a part that is not implemented.
MT_API bool needs_part(const FieldSpec& spec, const Node& value);

class NotBuilt {
 public:
  /// Adds a component that a recipe names at `path`. `built`: the names that can be used instead.
  void component(const Schema& component, const std::string& path, const Node& name,
                 const std::vector<std::string>& built);
  /// Adds the settings of a section whose values need a part that is not implemented. `values`: in
  /// canonical form.
  void settings(const Schema& owner, const std::string& path, const Node& values);
  void report_to(Report& report) const;

 private:
  struct Wish {
    std::string setting, remedy;  // "dist.tp=8", "dist.tp=1"
    std::string path;
    Location where;
    bool left_out = false;  // the part is implemented, but not in this build
  };
  struct Part {
    std::string name;
    std::vector<Wish> wishes;
  };
  void wish(const std::string& part, Wish wish);
  std::vector<Part> parts_;  // in the order of the sections
};

}  // namespace mtrain
