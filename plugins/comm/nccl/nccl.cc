// The comm plugin "nccl": ranks with a GPU each.
#include <cstdlib>

#include "communicator.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct NcclConfig {
  void bind(Fields& f) { f.device_memory(); }
};

std::shared_ptr<nccl::Job> make_job(const CommContext& context) {
  MT_CHECK(context.host, "an NCCL communicator without one of the host");
  // As many queues as the device has, before anything opens it: with the usual 8, streams that
  // share one wait for each other.
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

MT_PLUGIN("nccl", "ranks with an NVIDIA GPU each, of one or more nodes") {
  using namespace mtrain;
  registry.add<Communicator, NcclWorld, NcclConfig>(
      "nccl", "ranks with an NVIDIA GPU each, of one or more nodes");
}
