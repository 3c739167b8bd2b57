// Turns failures of CUDA calls into Errors. Stateless; thread-safe.
#pragma once
#include <cuda_runtime_api.h>

#include <string>

namespace mtrain::cuda {

/// Throws unless `status` is success. `what` is the call or the kernel. Out of device memory is
/// Error(config), like out of host memory. A failed device or kernel is Error(peer): the rank
/// cannot continue, but the job can be restarted.
void check(cudaError_t status, const char* what);

/// The state of a device on which `status` was seen, and the advice for the user.
struct DeviceFault {
  std::string message, remedy;
};
DeviceFault describe_fault(cudaError_t status, const char* what);

}  // namespace mtrain::cuda

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): the macro needs the text of the call.
#define MT_CUDA(call) ::mtrain::cuda::check((call), #call)
