// Pipelines: how blocks are shared out, and in what order they run.
#include "mtrain/recipe/rules/rules.h"

namespace mtrain {
namespace {

#define MT_UNEVEN "dist.first_stage_layers > 0 or dist.last_stage_layers > 0"

constexpr Rule kRules[] = {
    {"layers-per-stage", "dist.pp", "dist.layout == '' and not (" MT_UNEVEN ")",
     "split_layers % chunks == 0",
     "{split_layers} blocks cannot be divided evenly among pp x vp = {chunks} stages",
     "stages of equal length keep all ranks busy; for other lengths set first_stage_layers, "
     "last_stage_layers or layout",
     "dist.pp; dist.vp; model.layers"},
    {"vp-needs-pp", "dist.vp", "dist.vp > 1", "dist.pp > 1", "virtual stages need dist.pp > 1",
     "they shorten the bubble of a pipeline, but there is no pipeline", "dist.vp=1; dist.pp"},
    {"vp-needs-schedule", "dist.schedule", "dist.vp > 1 and dist.schedule_file == ''",
     "dist.schedule in ['interleaved', 'zb_v']",
     "{dist.schedule} runs one stage per rank, but dist.vp is {dist.vp}", "",
     "dist.schedule; dist.vp=1"},
    {"interleaved-needs-vp", "dist.schedule", "dist.schedule == 'interleaved'", "dist.vp > 1",
     "an interleaved pipeline needs dist.vp > 1", "it alternates between several stages of a rank",
     "dist.schedule; dist.vp"},
    {"schedule-file-needs-pp", "dist.schedule_file", "dist.schedule_file != ''", "dist.pp > 1",
     "there is no pipeline to schedule", "a file has one line for each pipeline rank",
     "dist.schedule_file=''; dist.pp"},
    {"in-order-schedule", "ddp.in_order", "ddp.in_order and dist.pp > 1",
     "dist.schedule == '1f1b' and dist.schedule_file == ''",
     "this schedule cannot keep the gradients of micro-batches separate",
     "a rank must finish the backward of one micro-batch before another one adds to the same "
     "gradients, as in 1f1b",
     "ddp.in_order=false; dist.schedule='1f1b'"},
    {"zb-v-needs-two", "dist.schedule", "dist.schedule == 'zb_v'", "dist.vp == 2",
     "zb_v needs dist.vp=2, not {dist.vp}",
     "its stages go through the ranks down and up again, in a V", "dist.vp"},
    {"group-size", "dist.microbatch_group_size", "dist.schedule == 'interleaved' and dist.pp > 1",
     "dist.pp <= group_size and group_size <= micro_batches",
     "{group_size} must be between dist.pp ({dist.pp}) and the {micro_batches} micro-batches of a "
     "step",
     "with fewer than pp micro-batches in a group, stages would wait for each other",
     "train.global_batch_size; dist.pp"},
    {"group-rest", "dist.microbatch_group_size",
     "dist.schedule == 'interleaved' and dist.pp > 1 and group_size <= micro_batches",
     "micro_batches % group_size == 0 or micro_batches % group_size >= dist.pp",
     "{micro_batches} micro-batches in groups of {group_size} leave a last group of {micro_batches "
     "% group_size}",
     "with fewer than pp micro-batches in the last group, stages would wait for each other",
     "train.global_batch_size; dist.microbatch_group_size"},
    {"pipeline-fills", "train.global_batch_size", "dist.pp > 1 and world_size % model_ranks == 0",
     "micro_batches >= dist.pp",
     "{micro_batches} micro-batches cannot fill a pipeline of {dist.pp} stages",
     "some ranks idle in every step", "train.global_batch_size", Severity::warning},
    {"end-stages-fit", "dist.first_stage_layers", MT_UNEVEN,
     "middle_layers >= 0 and middle_stages >= 0",
     "{dist.first_stage_layers} + {dist.last_stage_layers} blocks in the first and last of "
     "{dist.pp} stages are more than model.layers ({model.layers})",
     "", "dist.first_stage_layers; dist.last_stage_layers"},
    {"end-stages-rest", "dist.first_stage_layers",
     "(" MT_UNEVEN ") and middle_layers >= 0 and middle_stages >= 0",
     "(middle_layers == 0) == (middle_stages == 0) and middle_layers % max(1, middle_stages) == 0",
     "{middle_layers} blocks remain for {middle_stages} stages",
     "the remaining blocks are divided evenly among the middle stages",
     "dist.first_stage_layers; dist.last_stage_layers; dist.pp"},
    {"end-stages-virtual", "dist.vp", "dist.vp > 1 and (" MT_UNEVEN ")",
     "dist.first_stage_layers % dist.vp == 0 and dist.last_stage_layers % dist.vp == 0 and "
     "middle_layers // max(1, middle_stages) % dist.vp == 0",
     "a stage's blocks cannot be split into {dist.vp} virtual stages",
     "the first, the last and each middle stage hold the same number in each virtual stage",
     "dist.vp"},
    {"end-stages-xor-account", "dist.first_stage_layers", MT_UNEVEN,
     "not dist.account_for_embedding and not dist.account_for_loss",
     "account_for_embedding and account_for_loss determine the blocks of all stages", "",
     "dist.account_for_embedding=false; dist.account_for_loss=false"},
    {"layout-text", "dist.layout", "dist.layout != ''", "layout.fault == ''", "{layout.fault}",
     "an example of a layout: Et*3|(tt|)*29,m|L", ""},
    {"layout-stages", "dist.layout", "",
     "layout.stages == chunks or (dist.vp == 1 and layout.stages % dist.pp == 0)",
     "it has {layout.stages} stages for pp x vp = {chunks}", "stage i is on pipeline rank i % pp",
     "dist.pp; dist.vp"},
    {"layout-virtual", "dist.vp", "dist.vp == 1 and layout.stages % dist.pp == 0",
     "layout.stages == dist.pp",
     "the layout's {layout.stages} stages on {dist.pp} ranks make {layout.stages // dist.pp} "
     "virtual stages",
     "", "dist.vp=layout.stages // dist.pp"},
    {"layout-layers", "dist.layout", "", "layout.layers == model.layers",
     "it has {layout.layers} blocks (t), but model.layers is {model.layers}",
     "the layout must contain each block exactly once", "model.layers=layout.layers"},
    {"layout-mtp", "dist.layout", "", "layout.mtp_layers == (model.mtp.layers ?? 0)",
     "it has {layout.mtp_layers} blocks of multi-token prediction (m), but model.mtp.layers is "
     "{model.mtp.layers ?? 0}",
     "", "model.mtp.layers=layout.mtp_layers"},
    {"layout-mtp-stage", "dist.layout", "layout.mtp_layers > 0 and dist.pp > 1",
     "layout.mtp_stage % dist.pp > 0 and layout.mtp_stage // dist.pp == layout.stages // dist.pp - "
     "1",
     "multi-token prediction is in stage {layout.mtp_stage}",
     "it must be among the last virtual stages and not on the first rank, whose embedding it would "
     "wait for",
     ""},
    {"layout-alone", "dist.layout", "dist.layout != ''",
     "not (" MT_UNEVEN " or dist.account_for_embedding or dist.account_for_loss)",
     "first_stage_layers, last_stage_layers and account_for_… also determine the blocks of stages",
     "set either layout or these",
     "dist.first_stage_layers=0; dist.last_stage_layers=0; dist.account_for_embedding=false; "
     "dist.account_for_loss=false"},
    {"p2p-needs-vp", "comm_overlap.p2p", "comm_overlap.p2p", "dist.pp > 1 and dist.vp > 1",
     "without interleaved stages there is no computation to overlap transfers with", "",
     "comm_overlap.p2p; dist.vp"},
    {"batch-needs-waiting", "comm_overlap.batch_p2p", "comm_overlap.batch_p2p",
     "dist.pp > 1 and dist.vp > 1 and not comm_overlap.p2p",
     "transfers do not block at their position in the schedule, so they need no batching",
     "only interleaved stages without comm_overlap.p2p block; all others start every transfer "
     "asynchronously",
     "comm_overlap.batch_p2p=false"},
    {"wgrad-needs-pp", "comm_overlap.embedding_wgrad", "comm_overlap.embedding_wgrad",
     "dist.pp > 1", "the flush that would hide it needs dist.pp > 1", "",
     "comm_overlap.embedding_wgrad"},
    {"wgrad-sums", "comm_overlap.embedding_wgrad", "comm_overlap.embedding_wgrad",
     "dist.zero < 2 and not ddp.in_order",
     "the head's gradients of several micro-batches would be added in another order",
     "dist.zero >= 2 and ddp.in_order end the sum of each micro-batch with its backward",
     "comm_overlap.embedding_wgrad=false; dist.zero=1; ddp.in_order=false"},
    {"wgrad-tied", "comm_overlap.embedding_wgrad",
     "comm_overlap.embedding_wgrad and (model.tie_embeddings ?? false)",
     "dist.schedule != 'zb_v' and dist.schedule_file == ''",
     "the rank with both embedding and head would add their gradients in another order",
     "a tied table has a single gradient if both are on one rank",
     "comm_overlap.embedding_wgrad=false; dist.schedule='1f1b'"},
    {"delay-needs-pp", "comm_overlap.delay_wgrad", "comm_overlap.delay_wgrad", "dist.pp > 1",
     "no stage waits for a gradient",
     "it defers work of a stage until the gradient of its input is sent",
     "comm_overlap.delay_wgrad=false; dist.pp"},
    {"delay-once", "comm_overlap.delay_wgrad", "comm_overlap.delay_wgrad and dist.pp > 1",
     "not dist.schedule in ['zb_h1', 'zb_v'] and dist.schedule_file == ''",
     "the schedule itself decides when weight gradients are computed",
     "zb_h1 and zb_v put them into idle time", "comm_overlap.delay_wgrad=false"},
    {"variable-lengths-need-pp", "dist.variable_seq_lengths", "dist.variable_seq_lengths",
     "dist.pp > 1", "there are no other stages to send the shape to", "",
     "dist.variable_seq_lengths"},
};

#undef MT_UNEVEN

}  // namespace

std::span<const Rule> pipeline_rules() { return kRules; }

}  // namespace mtrain
