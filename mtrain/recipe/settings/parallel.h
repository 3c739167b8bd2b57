// The settings of the parallel layout: dist, ddp, comm_overlap. Values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mtrain/config/fields.h"

namespace mtrain {

struct DistSection {
  int64_t nproc = 1, tp = 1, pp = 1, vp = 1, cp = 1, ep = 1, etp = 1, zero = 0;
  bool sp = false;
  std::string order = "tp-cp-ep-dp-pp";
  // pipeline
  std::string schedule = "1f1b", schedule_file, layout;
  int64_t first_stage_layers = 0, last_stage_layers = 0, microbatch_group_size = 0;
  bool account_for_embedding = false, account_for_loss = false, variable_seq_lengths = false;
  // context
  std::vector<std::string> cp_comm = {"p2p"};
  std::vector<int64_t> cp_hierarchy;
  bool dynamic_cp = false;
  int64_t max_tokens_per_cp_rank = 0;
  // data parallel
  int64_t hsdp = 1, outer_zero = 0, resident_stages = 0;
  std::string backend = "cpu";
  std::optional<std::string> comm;
  std::vector<std::string> nccl_algo;
  double timeout_minutes = 10, silence_seconds = 5;
  void bind(Fields& f);

 private:
  void bind_ranks(Fields& f);
  void bind_pipeline(Fields& f);
  void bind_context(Fields& f);
  void bind_data_parallel(Fields& f);
};

struct DdpSection {
  bool in_order = false, overlap_grad_reduce = false, overlap_param_gather = false;
  bool pad_buckets = false, registered_buffers = false;
  int64_t bucket_size = 0;
  std::string grads_dtype = "fp32", accumulate_dtype = "fp32";
  void bind(Fields& f);
};

struct CommOverlapSection {
  bool tp = false, p2p = false, batch_p2p = false;
  bool moe = false, delay_wgrad = false, dispatch_wgrad = false;
  bool embedding_wgrad = false;
  int64_t embedding_wgrad_limit = 0;
  void bind(Fields& f);
};

}  // namespace mtrain
