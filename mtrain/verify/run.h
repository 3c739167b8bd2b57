// One layout's run of the twin, kept as what does not depend on the layout: losses and norms per
// step, and the first step's gradients as whole tensors by name, put together from what each rank
// holds. Values.
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
  std::vector<uint8_t> given;  // by how many ranks each element came: one, or the layout's account
                               // of itself is wrong
};

struct LayoutFigures {
  std::vector<double> losses, norms;             // per step
  std::map<std::string, WholeTensor> gradients;  // of the first step, before clipping
  std::vector<std::string>
      drifted;                  // copies of a weight that are not the same bits after the last step
  std::vector<int64_t> memory;  // peak bytes of tensors, per rank
  std::map<std::string, CommCounters>
      sent;  // what the first rank sent in the last step along each axis
  double seconds = 0;
};

struct LayoutRunOptions {
  int64_t steps = 1;
  /// Called on every rank before each step, with its own parameters.
  std::function<void(ParamList&, int64_t step)> before_step;
  /// Asked before every step; true ends the run early.
  std::function<bool()> stop;
  /// Ranks that are processes; null: threads of this one.
  Communicator* world = nullptr;
  /// With `world`: the parameters of the whole model, by which ranks tell each other what they
  /// hold.
  const std::map<std::string, WholeTensor>* shapes = nullptr;
};

/// Trains `recipe` on its ranks. Throws what building or training throws. With `world` every rank
/// calls it and gets the figures, but for memory, of which each gets its own, and bytes and copies
/// that drifted, which are the rank's.
MT_API LayoutFigures run_layout(const Recipe& recipe, PluginHost& plugins,
                                const LayoutRunOptions& options);

}  // namespace mtrain
