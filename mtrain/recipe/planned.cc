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
