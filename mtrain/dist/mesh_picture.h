// Pictures of a mesh: the position of each rank and its groups, as text and as SVG. Stateless;
// thread-safe.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "mtrain/dist/mesh_layout.h"

namespace mtrain {

struct MeshPictureOptions {
  /// Ranks per machine: one row of the picture.
  int64_t ranks_per_node = 8;
  /// Number of ranks that are drawn; the others are only counted.
  int64_t max_ranks = 64;
};

/// Views of the same ranks (the dense mesh, the experts' mesh) as two tables: the axes with their
/// groups and the number of nodes that a group spans; the ranks with their positions. Axes of size
/// 1 are only named. REQUIRES: at least one view; all views have the same number of ranks.
MT_API std::string mesh_text(std::span<const MeshLayout> views,
                             const MeshPictureOptions& options = {});

/// The same as a picture: one panel per axis, a row per node, a cell per rank in the colour of its
/// group.
MT_API std::string mesh_svg(std::span<const MeshLayout> views,
                            const MeshPictureOptions& options = {});

}  // namespace mtrain
