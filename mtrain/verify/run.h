// Runs the twin in one layout and returns figures that do not depend on the layout: losses and
// norms per step, and the first step's gradients as whole tensors by name, assembled from the
// shards of all ranks. Values.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mtrain/comm/call.h"
#include "mtrain/plugin/plugin_host.h"
#include "mtrain/recipe/recipe.h"

namespace mtrain {

class Communicator;
class ParamList;

/// A tensor of the whole model in host memory, row-major.
struct WholeTensor {
  std::vector<int64_t> sizes;
  std::vector<float> values;
  std::vector<uint8_t> given;  // the number of ranks that contributed each element; must be one
};

struct LayoutFigures {
  std::vector<double> losses, norms;             // per step
  std::map<std::string, WholeTensor> gradients;  // of the first step, before clipping
  std::vector<std::string> drifted;  // weights whose copies have different bits after the last step
  std::vector<int64_t> memory;       // peak bytes of tensors, per rank
  std::map<std::string, CommCounters>
      sent;  // traffic that rank 0 sent in the last step along each axis
  double seconds = 0;
};

struct LayoutRunOptions {
  int64_t steps = 1;
  /// Called on every rank before each step, with its own parameters.
  std::function<void(ParamList&, int64_t step)> before_step;
  /// Called before every step; true ends the run early.
  std::function<bool()> stop;
  /// Ranks as processes; null: threads of this process.
  Communicator* world = nullptr;
  /// With `world`: the shapes of all parameters of the model, which ranks need to exchange their
  /// shards.
  const std::map<std::string, WholeTensor>* shapes = nullptr;
};

/// Trains `recipe` on its ranks. Rethrows errors of building or training. With `world` it is
/// collective: every rank gets all figures, except that `memory`, `sent` and `drifted` are those of
/// the rank itself.
MT_API LayoutFigures run_layout(const Recipe& recipe, PluginHost& plugins,
                                const LayoutRunOptions& options);

}  // namespace mtrain
