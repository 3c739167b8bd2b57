// Data, checkpoints, fine-tuning, logs.
#include "mtrain/train/rules/rules.h"

namespace mtrain {
namespace {

constexpr Rule kRules[] = {
    {"same-objective", "dataset.type", "", "objective.dataset == objective.model",
     "{dataset.type} has samples for the {objective.dataset}, and {model.type} learns the {objective.model}",
     "a model that sees both sides of a place must have it hidden, and one that sees what came before must not; mock suits any model",
     ""},
    {"one-data-source", "dataset.path", "dataset.path != ''", "len(dataset.paths ?? []) == 0",
     "dataset.paths is given too", "path is one file, paths a blend", "dataset.path=''; dataset.paths=[]"},
    {"data-source", "dataset.path", "dataset.path == ''", "len(dataset.paths) > 0", "no data is named",
     "e.g. dataset.path=data/corpus, made by `mtrain data prepare`; a blend goes into dataset.paths", ""},
    {"weights-match", "dataset.weights", "len(dataset.weights) > 0",
     "len(dataset.weights) == len(dataset.paths)",
     "{len(dataset.weights)} weights for {len(dataset.paths)} paths", "each path has its share",
     "dataset.weights=[]"},
    {"keep-two", "checkpoint.keep", "", "checkpoint.keep != 1",
     "1 would leave nothing to fall back to if that one is damaged", "", "checkpoint.keep=2"},
    {"retain-interval", "checkpoint.retain_interval", "checkpoint.retain_interval > 0",
     "checkpoint.interval > 0 and checkpoint.retain_interval % max(1, checkpoint.interval) == 0",
     "{checkpoint.retain_interval} is not a multiple of checkpoint.interval ({checkpoint.interval})",
     "only a checkpoint that is written can be kept", "checkpoint.retain_interval"},
    {"local-dir", "checkpoint.local_dir", "checkpoint.local_interval > 0", "checkpoint.local_dir != ''",
     "copies on the node's own disk need a folder", "", ""},
    {"local-replicas", "checkpoint.local_replicas",
     "checkpoint.local_replicas > 1 or checkpoint.local_replica_stride > 1", "checkpoint.local_interval > 0",
     "no local copies are made", "", "checkpoint.local_replicas=1"},
    {"hf-source", "checkpoint.hf", "checkpoint.hf", "model.init_from != ''",
     "the Hugging Face layout is written after the folder of model.init_from", "", "checkpoint.hf"},
    {"profile-range", "profiling.end", "profiling.type != 'none'", "profiling.start < profiling.end",
     "profiling ends at step {profiling.end} and starts at {profiling.start}", "",
     "profiling.end=profiling.start + 2"},
    {"profile-ranks", "profiling.ranks", "profiling.type != 'none' and len(profiling.ranks) > 0",
     "max(profiling.ranks) < world_size", "there is no rank {max(profiling.ranks)} of {world_size} ranks", "ranks count from 0",
     "profiling.ranks=[0]"},
    {"profile-reached", "profiling.start", "profiling.type != 'none'", "profiling.start < train.steps",
     "profiling starts after step {profiling.start} of {train.steps}", "nothing would be profiled",
     "profiling.start=0"},
    {"peft-base", "peft.type", "peft.type != 'none'", "model.init_from != ''",
     "{peft.type} without model.init_from",
     "adapters are added to trained weights, e.g. model.init_from=/models/Llama-3.2-1B", "peft.type='none'"},
    {"peft-targets", "peft.targets", "peft.type != 'none'", "len(peft.targets) > 0", "no weight would learn",
     "", "peft.targets=['attn.*', 'mlp.*']"},
    {"deterministic-nccl", "dist.nccl_algo", "run.deterministic and len(dist.nccl_algo) > 0",
     "not 'Tree' in dist.nccl_algo and not 'NVLS' in dist.nccl_algo and not 'NVLSTree' in dist.nccl_algo",
     "Tree, NVLS and NVLSTree do not add in a fixed order", "", "dist.nccl_algo=['Ring']"},
    {"pp-needs-comm-order", "dist.order", "dist.order == 'tp-cp-ep-pp-dp'", "dist.zero < 3 or dist.pp == 1",
     "parameters of one stage would be gathered across nodes", "", "dist.order", Severity::warning},
    {"split-shares", "dataset.split", "", "split.fault == ''", "{split.fault}",
     "write the shares of train, valid and test, separated by commas, as in 969,30,1", ""},
    {"in-batch-packing", "train.micro_batch_size", "dataset.packing == 'in_batch'",
     "train.micro_batch_size > 1", "packing within a micro-batch of one sample packs nothing", "",
     "train.micro_batch_size; dataset.packing"},
    {"packed-length", "dataset.packed_length", "dataset.packed_length > 0",
     "dataset.packed_length <= model.seq_length",
     "{dataset.packed_length} tokens do not fit a sample of {model.seq_length}", "",
     "dataset.packed_length=model.seq_length; model.seq_length=dataset.packed_length"},
    {"chat-template", "dataset.chat_template", "dataset.format in ['openai', 'sharegpt'] and tokenizer.type in ['byte', 'null']",
     "dataset.chat_template != '' or dataset.template_path != ''",
     "{dataset.format} records are conversations, and the tokenizer {tokenizer.type} brings no chat template",
     "one that comes with mtrain by name, or a file: dataset.template_path", "dataset.chat_template='vicuna'"},
};

}  // namespace

std::span<const Rule> running_rules() {
  return kRules;
}

}  // namespace mtrain
