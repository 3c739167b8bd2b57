// Assigns parts of the model to the stages of the pipeline. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mtrain/pipeline/stage_map.h"

namespace mtrain {

/// How to distribute blocks, according to `dist`. A layout cannot be combined with any other
/// setting; first/last and the account_for_* flags cannot be combined.
struct SplitRequest {
  int64_t layers = 0;
  int64_t mtp_layers = 0;  // blocks of multi-token prediction; without a layout they are in the
                           // stage of head and loss, or with `mtp_standalone` in one of their own
                           // before a stage with only head and loss
  bool mtp_standalone = false;
  int64_t first_stage_layers = 0,
          last_stage_layers =
              0;  // blocks of the first and the last rank; 0: the same as other ranks
  bool account_for_embedding = false, account_for_loss = false;  // count each as one block
  std::string layout;                                            // see layout.h
};

/// One stage's part.
struct StagePart {
  std::string letters;                      // as in a layout: "Ettt", "tt", "mL"
  int64_t first_layer = 0, num_layers = 0;  // its range of the model's blocks
  int64_t num_mtp_layers = 0;
  bool embedding = false, head = false;
};

/// The parts of all stages, in order; each block of the model is in exactly one of them. With
/// several stages per rank, a rank's blocks are distributed evenly among them. Throws Error(config)
/// that names the settings if the division is not possible.
MT_API std::vector<StagePart> split_layers(const SplitRequest& request, const StageMap& map);

}  // namespace mtrain
