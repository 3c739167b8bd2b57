#include "mtrain/dist/mesh.h"

#include <algorithm>

#include "mtrain/base/counted.h"
#include "mtrain/comm/dry_run.h"

namespace mtrain {

Mesh::Mesh(Communicator& world, MeshLayout layout) : world_(&world), layout_(std::move(layout)) {
  MT_USER_CHECK(
      world.size() == layout_.num_ranks(), ErrorClass::config,
      cat("the mesh ", layout_.to_text(), " is made for ", layout_.num_ranks(),
          " ranks, but the job has ", world.size()),
      cat("start ", counted(layout_.num_ranks(), "rank"), ", or choose other sizes under dist"));
  for (const AxisSpec& axis : layout_.axes()) make(axis.name, axis.name);
}

const Axis& Mesh::operator[](std::string_view axis) const {
  (void)layout_.stride(axis);  // throws for an unknown axis
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

// A group of one rank has no peers: creating it is not collective, and its calls cost nothing.
std::unique_ptr<Axis> Mesh::axis_of(const MeshLayout& layout, const AxisNames& axes,
                                    const std::string& name) const {
  std::unique_ptr<Communicator> comm;
  auto place = static_cast<int>(layout.index_in_group(axes, rank()));
  if (layout.size(axes) == 1) {
    comm = make_self_communicator();
  } else if (auto* planned = dynamic_cast<const DryRunCommunicator*>(world_)) {
    comm = planned->group(place, static_cast<int>(layout.size(axes)), name);
  } else {
    int64_t group = layout.group_number(axes, rank());
    comm = world_->split(static_cast<int>(group), place, cat(name, " group ", group));
  }
  return std::make_unique<Axis>(name, std::move(comm));
}

const Axis& Mesh::make(const AxisNames& axes, const std::string& name) {
  return *(axes_[name] = axis_of(layout_, axes, name));
}

std::string Mesh::name_of(const AxisNames& axes) const {
  (void)layout_.size(axes);  // throws for a name that is unknown or repeated
  std::vector<std::string> names;
  for (const AxisSpec& axis : layout_.axes())
    if (std::count(axes.names().begin(), axes.names().end(), axis.name) > 0)
      names.push_back(axis.name);
  return join(names, "-");
}

}  // namespace mtrain
