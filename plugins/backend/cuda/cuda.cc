// The backend plugin "cuda": NVIDIA GPUs.
#include "cuda_backend.h"
#include "mtrain/plugin/plugin.h"

namespace mtrain {
namespace {

struct CudaConfig {
  void bind(Fields&) {}
};

class Cuda final : public cuda::CudaBackend {
 public:
  Cuda(const CudaConfig&, BackendContext& context) : CudaBackend(context) {}
};

}  // namespace
}  // namespace mtrain

MT_PLUGIN("cuda", "NVIDIA GPUs: A100, H100, H200, B200") {
  using namespace mtrain;
  registry.add<DeviceBackend, Cuda, CudaConfig>("cuda", "NVIDIA GPUs: A100, H100, H200, B200");
}
