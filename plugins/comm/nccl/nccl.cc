// The comm plugin "nccl": ranks with one GPU each.
#include <cstdlib>

#include "communicator.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct NcclConfig {
  void bind(Fields& f) { f.device_memory(); }
};

std::shared_ptr<nccl::Job> make_job(const CommContext& context) {
  MT_CHECK(context.host, "an NCCL communicator without a host communicator");
  // Use all hardware queues of the device: with the default of 8, streams that share a queue wait
  // for each other. Must be set before anything opens the device.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return std::make_shared<nccl::Job>(nccl::load_library(), nccl::make_cuda_calls(), context.host,
                                     context.timeout);
}

class NcclWorld final : public nccl::NcclCommunicator {
 public:
  NcclWorld(const NcclConfig&, CommContext& context)
      : NcclCommunicator(make_job(context), context.host) {}
  std::string describe() const override { return cat("NCCL ", nccl::load_library().version()); }
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("nccl", "ranks with one NVIDIA GPU each, on one or more nodes") {
  using namespace mtrain;
  registry.add<Communicator, NcclWorld, NcclConfig>(
      "nccl", "ranks with one NVIDIA GPU each, on one or more nodes");
}
