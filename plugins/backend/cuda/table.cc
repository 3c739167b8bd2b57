#include "table.h"

#include <type_traits>

#include "check.h"
#include "cuda_stream.h"
#include "mtrain/base/error.h"

namespace mtrain::cuda {

namespace {

// Both are held back for a joint launch (pending.h). A norm's result is available after the host
// has waited for the stream.
void adamw(CudaStream& stream, const AdamWArgs& args) {
  stream.join_lanes();
  stream.pending().add(args);
}
void squared_norm(CudaStream& stream, const SquaredNormArgs& args) {
  stream.join_lanes();
  if (stream.pending().add(args)) return;
  stream.synchronize();
  MT_CHECK(stream.pending().add(args), "no slot for a norm");
}

/// Whether a kernel is a single launch, or a function of the stream.
template <class Kernel, class Args>
constexpr bool kLaunched = std::is_invocable_v<Kernel, const Launch&, const Args&>;
template <class Kernel, class Args>
constexpr bool kOfStream = std::is_invocable_v<Kernel, CudaStream&, const Args&>;

template <class Kernel, const char* kName, class Args>
void call(Stream& stream, const Args& args) {
  if constexpr (kLaunched<Kernel, Args>) {
    cudaError_t status = Kernel{}(cuda_stream(stream).launch(), args);
    MT_CHECK(status != cudaErrorInvalidValue, "the CUDA kernel '", kName,
             "' does not take these arguments");
    check(status, kName);
  } else {
    Kernel{}(cuda_stream(stream), args);
  }
}

}  // namespace

uint32_t quant_scales_of(int architecture) {
  auto bit = [](QuantScale scale) { return 1u << static_cast<int>(scale); };
  if (architecture >= 100)
    return bit(QuantScale::tensor) | bit(QuantScale::e8m0) | bit(QuantScale::nvfp4);
  if (architecture >= 90) return bit(QuantScale::tensor) | bit(QuantScale::power_of_two);
  return architecture >= 89 ? bit(QuantScale::tensor) : 0;
}

KernelTable cuda_kernels() {
  KernelTable table;
  // `Kernel` calls the function of the entry's name that accepts its arguments.
#define MT_ENTRY(entry, Args)                                                                      \
  {                                                                                                \
    static constexpr char kName[] = #entry;                                                        \
    using Kernel = decltype([](auto&& where, const Args& args) -> decltype((entry)(where, args)) { \
      return (entry)(where, args);                                                                 \
    });                                                                                            \
    if constexpr (kLaunched<Kernel, Args> || kOfStream<Kernel, Args>)                              \
      table.entry = call<Kernel, kName, Args>;                                                     \
  }
  MT_KERNELS(MT_ENTRY)
#undef MT_ENTRY
  return table;
}

}  // namespace mtrain::cuda
