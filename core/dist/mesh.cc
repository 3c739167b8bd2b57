#include "mtrain/dist/mesh.h"

#include <algorithm>

namespace mtrain {

Mesh::Mesh(Communicator& world, MeshLayout layout) : world_(&world), layout_(std::move(layout)) {
  MT_USER_CHECK(world.size() == layout_.num_ranks(), ErrorClass::config,
                cat("the mesh ", layout_.to_text(), " is made for ", layout_.num_ranks(),
                    " ranks, but the job has ", world.size()),
                cat("start ", layout_.num_ranks(), " ranks, or choose other sizes under dist"));
  for (const AxisSpec& axis : layout_.axes()) make(axis.name, axis.name);
}

const Axis& Mesh::operator[](std::string_view axis) const {
  (void)layout_.stride(axis);  // throws where there is none
  return *axes_.find(axis)->second;
}

const Axis& Mesh::joint(const AxisNames& axes) {
  std::string name = name_of(axes);
  auto found = axes_.find(name);
  return found == axes_.end() ? make(axes, name) : *found->second;
}

Mesh Mesh::view(std::vector<AxisSpec> outermost_first) const {
  return Mesh(*world_, layout_.view(std::move(outermost_first)));
}

// A group of one needs nobody: it is no collective, and its calls cost nothing.
const Axis& Mesh::make(const AxisNames& axes, const std::string& name) {
  std::unique_ptr<Communicator> comm;
  if (layout_.size(axes) == 1) {
    comm = make_self_communicator();
  } else {
    int64_t group = layout_.group_number(axes, rank()), place = layout_.index_in_group(axes, rank());
    comm = world_->split(static_cast<int>(group), static_cast<int>(place), cat(name, " group ", group));
  }
  return *(axes_[name] = std::make_unique<Axis>(name, std::move(comm)));
}

std::string Mesh::name_of(const AxisNames& axes) const {
  (void)layout_.size(axes);  // throws for a name that is unknown or there twice
  std::vector<std::string> names;
  for (const AxisSpec& axis : layout_.axes())
    if (std::count(axes.names().begin(), axes.names().end(), axis.name) > 0) names.push_back(axis.name);
  return join(names, "-");
}

}  // namespace mtrain
