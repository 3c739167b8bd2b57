// A mesh to look at: which rank lies where, and who shares a group with whom, as text and as SVG.
// Stateless.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "mtrain/dist/mesh_layout.h"

namespace mtrain {

struct MeshPictureOptions {
  /// Ranks that share one machine: a row of the picture.
  int64_t ranks_per_node = 8;
  /// Ranks shown one by one; the rest is only counted.
  int64_t max_ranks = 64;
};

/// Views of the same ranks (the dense mesh, the experts') in two tables: the axes with their
/// groups, and how many nodes a group reaches over; the ranks with their places. Axes of size 1
/// split nothing and are only named. REQUIRES: at least one view, of equally many ranks each.
MT_API std::string mesh_text(std::span<const MeshLayout> views,
                             const MeshPictureOptions& options = {});

/// The same as a picture: one panel per axis, a row per node, a cell per rank in the colour of its
/// group.
MT_API std::string mesh_svg(std::span<const MeshLayout> views,
                            const MeshPictureOptions& options = {});

}  // namespace mtrain
