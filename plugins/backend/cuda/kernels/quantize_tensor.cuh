// The fast case of quantize(): FP8 codes with one scale for the tensor. Thread-safe for different
// streams.
#pragma once
#include "kernels.h"

namespace mtrain::cuda {

/// Whether tensor_codes() computes this call.
bool takes_tensor_codes(const QuantizeArgs&);
cudaError_t tensor_codes(const Launch&, const QuantizeArgs&);

}  // namespace mtrain::cuda
