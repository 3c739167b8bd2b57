#include "mtrain/recipe/planned.h"

#include "mtrain/recipe/settings/distillation.h"
#include "mtrain/recipe/settings/optimization.h"

namespace mtrain {
namespace {

struct Nothing {
  void bind(Fields&) {}
};

struct DeviceCommunicator {
  void bind(Fields& f) { f.device_memory(); }
};

struct Lion {
  double beta1 = 0.9, beta2 = 0.99;
  void bind(Fields& f) {
    f("beta1", beta1, "weight of the running mean in an update")
        .min(0)
        .exclusive_max(1)
        .renamed_from({"lion_beta1"});
    f("beta2", beta2, "decay of the running mean")
        .min(0)
        .exclusive_max(1)
        .renamed_from({"lion_beta2"});
  }
};

struct Sgd {
  double momentum = 0.9;
  bool nesterov = false;
  void bind(Fields& f) {
    f("momentum", momentum, "momentum coefficient")
        .min(0)
        .exclusive_max(1)
        .renamed_from({"sgd_momentum"});
    f("nesterov", nesterov, "use Nesterov momentum");
  }
};

struct Muon {
  double momentum = 0.95, qk_clip_threshold = 0, qk_clip_alpha = 0.5;
  bool nesterov = true, split_qkv = true;
  int64_t newton_schulz_steps = 5;
  std::string scale = "spectral", other = "adamw";
  void bind(Fields& f) {
    f("momentum", momentum, "momentum coefficient")
        .min(0)
        .exclusive_max(1)
        .renamed_from({"muon_momentum"});
    f("nesterov", nesterov, "use Nesterov momentum").renamed_from({"muon_use_nesterov"});
    f("newton_schulz_steps", newton_schulz_steps,
      "number of Newton-Schulz iterations that orthogonalize the update")
        .min(1)
        .renamed_from({"muon_num_ns_steps"});
    f("scale", scale,
      "how updates are scaled; spectral: to a spectral norm, rms: to the RMS of Adam's updates")
        .one_of({"spectral", "rms"})
        .renamed_from({"muon_scale_mode"});
    f("split_qkv", split_qkv, "treat queries, keys and values as separate matrices")
        .renamed_from({"muon_split_qkv"});
    f("other", other, "optimizer of all parameters that are not matrices")
        .plugin("optimizer")
        .renamed_from({"muon_scalar_optimizer"});
    f("qk_clip_threshold", qk_clip_threshold,
      "scale queries and keys down when an attention logit exceeds this; 0: never")
        .min(0);
    f("qk_clip_alpha", qk_clip_alpha,
      "qk_clip_threshold: exponent of the scale for queries; keys take the rest")
        .exclusive_min(0)
        .exclusive_max(1);
  }
};

template <class Config>
void plan(SchemaCatalog& catalog, const std::string& kind, std::string name, std::string doc,
          std::string needs) {
  if (catalog.has(kind, name)) return;
  Schema schema = schema_of<Config>(std::move(name), std::move(doc));
  schema.needs = std::move(needs);
  schema.left_out = kind == "backend" || kind == "comm";  // all of these are implemented
  catalog.add_component(kind, std::move(schema));
}

}  // namespace

void add_planned(SchemaCatalog& catalog) {
  plan<Lion>(catalog, "optimizer", "lion",
             "updates by the sign of a running mean (Chen et al. 2023, arXiv:2302.06675)",
             "the Lion optimizer");
  plan<Muon>(catalog, "optimizer", "muon", "orthogonalized updates of matrices",
             "the Muon optimizer");
  plan<Sgd>(catalog, "optimizer", "sgd", "stochastic gradient descent with momentum",
            "the SGD optimizer");
  plan<Nothing>(catalog, "objective", "tokens",
                "the mean loss of the targets, for which model and dataset are made", "");
  plan<DistillationSettings>(catalog, "objective", ObjectiveSection::kDistillation,
                             "the distribution of a frozen teacher over each next token", "");
  plan<Nothing>(catalog, "backend", "cpu", "the processor, always there", "");
  plan<Nothing>(catalog, "backend", "cuda", "NVIDIA GPUs", "the CUDA backend");
  plan<Nothing>(catalog, "comm", "thread", "ranks as threads of one process", "");
  plan<Nothing>(catalog, "comm", "tcp",
                "ranks that connect through MASTER_ADDR, as torchrun starts them",
                "the tcp communicator");
  plan<Nothing>(catalog, "comm", "mpi", "ranks of an MPI launch", "MPI communication");
  plan<DeviceCommunicator>(catalog, "comm", "nccl", "NVIDIA GPUs of one or more nodes",
                           "NCCL communication");
}

}  // namespace mtrain
