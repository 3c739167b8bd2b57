// The core's settings of model, tokenizer and dataset. The plugins' own settings are in the same
// sections. Values.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "mtrain/config/fields.h"

namespace mtrain {

struct ModelSection {
  std::string type, init_from, init_vocab = "exact";
  std::vector<std::string> init_ignore;
  bool init_upcycle = false;
  int64_t seq_length = 1024, vocab_size = 0, vocab_multiple = 64;
  std::string recompute = "none", recompute_method = "uniform";
  int64_t recompute_layers = 1;
  std::vector<std::string> recompute_modules = {"core_attn"};
  bool recompute_distribute = false;
  bool resizes_vocabulary() const { return init_vocab == "resize"; }
  void bind(Fields& f);
};

struct TokenizerSection {
  std::string type = "byte";
  void bind(Fields& f);
};

struct DatasetSection {
  std::string type;
  void bind(Fields& f);
};

}  // namespace mtrain
