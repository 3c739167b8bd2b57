// The settings of a run: memory (offload, cuda_graph), checkpoint, logger, validation, profiling,
// rng, run. Values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/fields.h"

namespace mtrain {

struct OffloadSection {
  int64_t layers = 0;
  std::vector<std::string> modules;
  double fraction = 1;
  void bind(Fields& f);
};

struct CudaGraphSection {
  std::string type = "none";
  int64_t warmup_steps = 3;
  void bind(Fields& f);
};

struct CheckpointSection {
  int64_t interval = 0, keep = 3, retain_interval = 0, local_interval = 0, local_replicas = 1,
          local_replica_stride = 1;
  std::string resume = "auto", dir, local_dir;
  bool async = false, keep_best = false;
  std::string hf, hf_shard_size = "5GB";
  void bind(Fields& f);

 private:
  void bind_local(Fields& f);
};

struct LoggerSection {
  int64_t interval = 0, memory_interval = 0;
  bool tensorboard = true, metrics = true, params_norm = false;
  std::string console = "auto";
  void bind(Fields& f);
};

struct ValidationSection {
  int64_t interval = 0, steps = 10, micro_batch_size = 0, global_batch_size = 0, patience = 0;
  double min_improvement = 0;
  std::vector<std::string> prompts;
  int64_t generate_tokens = 64;
  double temperature = 0;
  void bind(Fields& f);
};

struct ProfilingSection {
  std::string type = "none";
  int64_t start = 10, end = 12;
  std::vector<int64_t> ranks = {0};
  double peak_tflops = 0;
  void bind(Fields& f);
};

struct RngSection {
  int64_t seed = 1234;
  void bind(Fields& f);
};

struct RunSection {
  std::string dir, name;
  int64_t threads = 0;
  bool deterministic = false;
  bool fast_attention_gradient = false;
  void bind(Fields& f);
};

}  // namespace mtrain
