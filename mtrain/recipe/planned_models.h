// The settings of planned models, for add_planned. Values.
#pragma once
#include <cstdint>
#include <string>

#include "mtrain/config/fields.h"

namespace mtrain {

struct T5Settings {
  int64_t layers = 24, encoder_layers = 24, hidden_size = 1024, heads = 16, head_dim = 64,
          ffn_hidden_size = 4096;
  int64_t position_buckets = 32, max_distance = 128, decoder_seq_length = 114;
  double norm_eps = 1e-6, init_factor = 1, dropout = 0.1;
  bool tie_embeddings = true;
  std::string activation = "relu";
  void bind(Fields& f);
};

}  // namespace mtrain
