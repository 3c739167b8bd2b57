// Which part of the model each stage of the pipeline holds. Stateless.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mtrain/pipeline/stage_map.h"

namespace mtrain {

/// How blocks are to be shared out, as `dist` says it. A layout stands alone; the ends and the
/// counts exclude each other.
struct SplitRequest {
  int64_t layers = 0;
  int64_t mtp_layers =
      0;  // blocks of multi-token prediction; without a layout they go with head and loss
  int64_t first_stage_layers = 0,
          last_stage_layers = 0;  // blocks of the first and the last rank; 0: as many as any
  bool account_for_embedding = false, account_for_loss = false;  // count as a block
  std::string layout;                                            // see layout.h
};

/// One stage's part.
struct StagePart {
  std::string letters;                      // as in a layout: "Ettt", "tt", "mL"
  int64_t first_layer = 0, num_layers = 0;  // its blocks among all of the model
  int64_t num_mtp_layers = 0;
  bool embedding = false, head = false;
};

/// The parts of all stages, in order: each block of the model is in one of them. With several
/// stages per rank, a rank's blocks are shared out evenly among them. Throws Error(config) that
/// names the settings when it does not work out.
MT_API std::vector<StagePart> split_layers(const SplitRequest& request, const StageMap& map);

}  // namespace mtrain
