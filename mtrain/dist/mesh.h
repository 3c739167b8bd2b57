// Mesh: the axes of a MeshLayout, each with a communicator, as one rank sees them. Creating a mesh,
// a joint axis or a view is collective: every rank of the world creates the same ones in the same
// order. For the rank's own thread. The mesh owns its axes' communicators and must outlive tapes
// that were recorded with its axes; `world` must outlive the mesh.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/dist/mesh_layout.h"

namespace mtrain {

/// This rank's group along one axis, or along several axes joined into one.
class MT_API Axis {
 public:
  Axis(std::string name, std::unique_ptr<Communicator> comm)
      : name_(std::move(name)), comm_(std::move(comm)) {}
  /// "tp", or for a joint axis "dp-cp": the names in the order of the mesh.
  const std::string& name() const { return name_; }
  int size() const { return comm_->size(); }
  /// This rank's index in the group, which is also the index of its shard of split tensors.
  int index() const { return comm_->rank(); }
  Communicator& comm() const { return *comm_; }

 private:
  std::string name_;
  std::unique_ptr<Communicator> comm_;
};

class MT_API Mesh {
 public:
  /// Splits `world` once per axis of size > 1. Throws Error(config) if the layout has another
  /// number of ranks.
  Mesh(Communicator& world, MeshLayout layout);

  const MeshLayout& layout() const { return layout_; }
  /// This rank in the world.
  int64_t rank() const { return world_->rank(); }
  /// The axis of that name. Throws Error(config) that lists the names.
  const Axis& operator[](std::string_view axis) const;
  /// Several axes as one group: {"dp", "cp"}, in any order. Collective at the first call for these
  /// axes.
  const Axis& joint(const AxisNames& axes);
  /// This rank's group of another layout over the same ranks, as a separate axis. Collective.
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
      axes_;  // by name; references stay valid
};

}  // namespace mtrain
