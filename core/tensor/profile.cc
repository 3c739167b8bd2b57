#include "mtrain/tensor/profile.h"

#include "mtrain/base/error.h"
#include "mtrain/tensor/work.h"

namespace mtrain {
namespace {

template <class Args>
using Kernel = void (*)(Stream&, const Args&);

/// A kernel that notes its call in its stream's profile. One function for each entry of the table.
template <auto kEntry, const char* kName, class Args>
void recorded(Stream& stream, const Args& args) {
  Profile* profile = stream.profile();
  MT_CHECK(profile != nullptr, "a recording kernel on a stream without a profile");
  CountedWork counted = count(args);
  double start = profile->now();
  (profile->kernels().*kEntry)(stream, args);
  stream.synchronize();
  profile->add({kName, std::move(counted.shape), counted.work, start, profile->now() - start, false});
}

template <auto kEntry, const char* kName, class Args>
void record(const KernelTable& from, KernelTable& to, Kernel<Args> KernelTable::*) {
  if (from.*kEntry) to.*kEntry = recorded<kEntry, kName, Args>;
}

}  // namespace

Profile::Profile(const KernelTable& kernels) : kernels_(kernels) {
#define MT_RECORD(entry)                                                                   \
  do {                                                                                     \
    static constexpr char kName[] = #entry;                                                \
    record<&KernelTable::entry, kName>(kernels_, recording_, &KernelTable::entry);         \
  } while (false)
  MT_RECORD(gemm);
  MT_RECORD(rms_norm);
  MT_RECORD(rms_norm_backward);
  MT_RECORD(layer_norm);
  MT_RECORD(layer_norm_backward);
  MT_RECORD(rope);
  MT_RECORD(attention);
  MT_RECORD(attention_backward);
  MT_RECORD(silu_mul);
  MT_RECORD(silu_mul_backward);
  MT_RECORD(gelu);
  MT_RECORD(gelu_backward);
  MT_RECORD(embedding);
  MT_RECORD(embedding_backward);
  MT_RECORD(cross_entropy);
  MT_RECORD(cross_entropy_backward);
  MT_RECORD(add);
  MT_RECORD(cast);
  MT_RECORD(column_sum);
  MT_RECORD(dropout);
  MT_RECORD(squared_norm);
  MT_RECORD(adamw);
#undef MT_RECORD
  static_assert(sizeof(KernelTable) == 22 * sizeof(void*), "a new kernel wants a line above");
}

}  // namespace mtrain
