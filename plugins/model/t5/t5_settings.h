// The settings of T5. A value.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>

#include "mtrain/config/fields.h"
#include "mtrain/data/dataset.h"
#include "mtrain/nn/mlp.h"

namespace mtrain::t5 {

struct T5Config {
  int64_t layers = 24, encoder_layers = 24, hidden_size = 1024, heads = 16, head_dim = 64,
          ffn_hidden_size = 4096, position_buckets = 32, max_distance = 128,
          decoder_seq_length = 114, decoder_start_token = -1;
  double norm_eps = 1e-6, init_factor = 1, dropout = 0.1;
  bool tie_embeddings = true, scale_output = true;
  std::string activation = "relu";

  void bind(Fields& f);
  Dim embed() const { return {"embed", hidden_size}; }
  Dim mlp() const { return {"mlp", ffn_hidden_size}; }
  Dim head_width() const { return {"heads", heads * head_dim}; }
  float eps() const { return static_cast<float>(norm_eps); }
  float drop() const { return static_cast<float>(dropout); }
  /// The standard deviation of a weight with this many inputs.
  float std_of(int64_t inputs) const {
    return static_cast<float>(init_factor / std::sqrt(static_cast<double>(inputs)));
  }
  MlpOptions mlp_options() const;
  /// Throws Error(config) for settings that contradict each other. `seq_length`: model.seq_length.
  void check(int64_t seq_length) const;

 private:
  void bind_sizes(Fields& f);
};

}  // namespace mtrain::t5
