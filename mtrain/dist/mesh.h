// Mesh: the axes of a MeshLayout with a communicator each, as one rank sees them. Making a mesh, a
// joint axis or a view is collective: every rank of the world makes the same ones in the same
// order. For the rank's own thread; the communicators are the mesh's own, and the mesh outlives
// what was recorded on a tape with one of its axes.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/dist/mesh_layout.h"

namespace mtrain {

/// The group of this rank along an axis, or along several as one.
class MT_API Axis {
 public:
  Axis(std::string name, std::unique_ptr<Communicator> comm)
      : name_(std::move(name)), comm_(std::move(comm)) {}
  /// "tp", or "dp-cp" of a joint one: its names in the order of the mesh.
  const std::string& name() const { return name_; }
  int size() const { return comm_->size(); }
  /// This rank's place in the group; pieces of split tensors are counted by it.
  int index() const { return comm_->rank(); }
  Communicator& comm() const { return *comm_; }

 private:
  std::string name_;
  std::unique_ptr<Communicator> comm_;
};

class MT_API Mesh {
 public:
  /// Splits `world` once per axis that is longer than 1. Throws Error(config) when the layout is
  /// not of as many ranks.
  Mesh(Communicator& world, MeshLayout layout);

  const MeshLayout& layout() const { return layout_; }
  /// This rank in the world.
  int64_t rank() const { return world_->rank(); }
  /// Throws Error(config), listing the names.
  const Axis& operator[](std::string_view axis) const;
  /// Several axes as one group: {"dp", "cp"}, in any order. Collective the first time that these
  /// are asked for.
  const Axis& joint(const AxisNames& axes);
  /// This rank's group of a layout over the same ranks as an axis of its own. Collective.
  std::unique_ptr<Axis> axis_of(const MeshLayout& layout, const AxisNames& axes,
                                const std::string& name) const;
  /// Other axes over the same ranks (MeshLayout::view). Collective.
  Mesh view(std::vector<AxisSpec> outermost_first) const;

 private:
  const Axis& make(const AxisNames& axes, const std::string& name);
  std::string name_of(const AxisNames& axes) const;

  Communicator* world_;
  MeshLayout layout_;
  std::map<std::string, std::unique_ptr<Axis>, std::less<>>
      axes_;  // by name; references to them stay good
};

}  // namespace mtrain
