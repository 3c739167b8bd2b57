#include "mtrain/pipeline/split.h"

#include <algorithm>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/pipeline/layout.h"

namespace mtrain {
namespace {

void wanted(bool holds, const std::string& message, const std::string& hint) {
  MT_USER_CHECK(holds, ErrorClass::config, message, hint);
}

/// The letters of stage `s` with this number of blocks, such as "Ettt".
std::string letters(const SplitRequest& r, const StageMap& map, int64_t s, int64_t blocks) {
  std::string out(static_cast<size_t>(blocks), 't');
  if (s == 0) out.insert(out.begin(), 'E');
  if (s + 1 == map.stages()) out += std::string(static_cast<size_t>(r.mtp_layers), 'm') + 'L';
  return out;
}

/// True if the last two stages are those of multi-token prediction and of head and loss alone.
bool apart(const SplitRequest& r) { return r.mtp_standalone && r.mtp_layers > 0; }

std::vector<std::string> even_before_mtp(const SplitRequest& r, const StageMap& map) {
  const int64_t stages = map.stages() - 2;
  wanted(!r.account_for_embedding && !r.account_for_loss,
         "model.mtp.standalone cannot be combined with account_for_embedding or account_for_loss",
         "set dist.layout, such as Et*3|(tt|)*29,m|L");
  wanted(stages > 0,
         cat("model.mtp.standalone leaves no stage for the blocks: of ", map.stages(),
             " stages, one has multi-token prediction and one head and loss"),
         "raise dist.pp or dist.vp");
  wanted(r.layers % stages == 0,
         cat(counted(r.layers, "block"), " cannot be divided evenly among ", stages,
             " stages, those before multi-token prediction"),
         "change model.layers, dist.pp or dist.vp, or set dist.layout");
  std::vector<std::string> out;
  for (int64_t s = 0; s < stages; ++s)
    out.push_back((s == 0 ? "E" : "") + std::string(static_cast<size_t>(r.layers / stages), 't'));
  out.emplace_back(static_cast<size_t>(r.mtp_layers), 'm');
  out.emplace_back("L");
  return out;
}

std::vector<std::string> even(const SplitRequest& r, const StageMap& map) {
  if (apart(r)) return even_before_mtp(r, map);
  int64_t all = r.layers + (r.account_for_embedding ? 1 : 0) + (r.account_for_loss ? 1 : 0);
  wanted(all % map.stages() == 0,
         cat(counted(all, "block"), all == r.layers ? "" : " (including the embedding or the loss)",
             " cannot be divided evenly among ", map.stages(), " stages"),
         "change model.layers, dist.pp or dist.vp, or set dist.first_stage_layers, "
         "dist.last_stage_layers or dist.layout");
  std::vector<std::string> out;
  for (int64_t s = 0; s < map.stages(); ++s) {
    int64_t blocks = all / map.stages();
    if (s == 0 && r.account_for_embedding) --blocks;
    if (s + 1 == map.stages() && r.account_for_loss) --blocks;
    wanted(blocks >= 0,
           cat("stage ", s, " has no room for the embedding or loss, which counts as a block"),
           "use fewer stages or more blocks");
    out.push_back(letters(r, map, s, blocks));
  }
  return out;
}

std::vector<std::string> uneven(const SplitRequest& r, const StageMap& map) {
  const char* hint = "change dist.first_stage_layers or dist.last_stage_layers";
  wanted(!r.account_for_embedding && !r.account_for_loss,
         "account_for_embedding and account_for_loss determine the number of blocks per stage, so "
         "they cannot be combined with first_stage_layers or last_stage_layers",
         "choose one of the two ways");
  wanted(r.first_stage_layers >= 0 && r.last_stage_layers >= 0,
         "a stage cannot hold fewer than 0 blocks", hint);
  wanted(!apart(r),
         "model.mtp.standalone cannot be combined with first_stage_layers or last_stage_layers",
         "set dist.layout, such as Et*3|(tt|)*29,m|L");
  int64_t given = (r.first_stage_layers > 0 ? 1 : 0) + (r.last_stage_layers > 0 ? 1 : 0);
  int64_t stages = map.ranks() - given, per_rank = map.stages() / map.ranks();
  wanted(stages >= 0 && r.first_stage_layers <= r.layers &&
             r.last_stage_layers <= r.layers - r.first_stage_layers,
         cat(r.first_stage_layers, " + ", r.last_stage_layers, " blocks in the first and last of ",
             map.ranks(), " ranks are more than the ", r.layers, " blocks of the model"),
         hint);
  int64_t rest = r.layers - r.first_stage_layers - r.last_stage_layers;
  wanted((rest == 0) == (stages == 0) && rest % std::max<int64_t>(1, stages) == 0,
         cat(rest, " blocks remain for ", stages, " ranks"), hint);
  std::vector<std::string> out;
  for (int64_t s = 0; s < map.stages(); ++s) {
    int64_t rank = map.rank(s), blocks = stages > 0 ? rest / stages : 0;
    if (rank + 1 == map.ranks() && r.last_stage_layers > 0) blocks = r.last_stage_layers;
    if (rank == 0 && r.first_stage_layers > 0) blocks = r.first_stage_layers;
    wanted(blocks % per_rank == 0,
           cat("the ", blocks, " blocks of rank ", rank, " cannot be split into ", per_rank,
               " stages"),
           "choose multiples of dist.vp");
    out.push_back(letters(r, map, s, blocks / per_rank));
  }
  return out;
}

std::vector<std::string> by_layout(const SplitRequest& r, const StageMap& map) {
  wanted(r.first_stage_layers == 0 && r.last_stage_layers == 0 && !r.account_for_embedding &&
             !r.account_for_loss,
         "dist.layout determines the content of every stage, so first_stage_layers, "
         "last_stage_layers, account_for_embedding and account_for_loss cannot be set as well",
         "choose one of the two ways");
  PipelineLayout layout = parse_pipeline_layout(r.layout);
  std::string where = cat("dist.layout '", printable(r.layout), "': ");
  wanted(layout.fault.empty(), where + layout.fault, "an example of a layout: Et*3|(tt|)*29,m|L");
  auto count = static_cast<int64_t>(layout.stages.size());
  wanted(count == map.stages(), cat(where, "it has ", count, " stages, wanted ", map.stages()),
         "the number of stages is dist.pp x dist.vp");
  wanted(layout.count('t') == r.layers,
         cat(where, "it has ", layout.count('t'), " blocks, the model ", r.layers),
         "the layout must contain each block exactly once");
  wanted(layout.count('m') == r.mtp_layers,
         cat(where, "it has ", layout.count('m'), " blocks of multi-token prediction, the model ",
             r.mtp_layers),
         "");
  wanted(!apart(r) || layout.stages.back().find('m') == std::string::npos,
         cat(where,
             "multi-token prediction (m) is in the stage of head and loss, and "
             "model.mtp.standalone is true"),
         "an example of a layout: Et*3|(tt|)*29,m|L");
  return std::move(layout.stages);
}

}  // namespace

std::vector<StagePart> split_layers(const SplitRequest& request, const StageMap& map) {
  MT_CHECK(request.layers >= 0 && request.mtp_layers >= 0, request.layers, " blocks and ",
           request.mtp_layers);
  bool ends = request.first_stage_layers != 0 || request.last_stage_layers != 0;
  std::vector<StagePart> parts;
  int64_t next = 0;
  for (const std::string& stage : !request.layout.empty() ? by_layout(request, map)
                                  : ends                  ? uneven(request, map)
                                                          : even(request, map)) {
    auto count = [&](char c) {
      return static_cast<int64_t>(std::count(stage.begin(), stage.end(), c));
    };
    parts.push_back({stage, next, count('t'), count('m'), count('E') > 0, count('L') > 0});
    next += parts.back().num_layers;
  }
  MT_CHECK_EQ(next, request.layers);
  return parts;
}

}  // namespace mtrain
