#include "mtrain/tensor/profile.h"

#include "mtrain/base/error.h"
#include "mtrain/tensor/work.h"

namespace mtrain {
namespace {

/// A kernel that records its call in its stream's profile. One instance per entry of the table.
template <auto kEntry, const char* kName, class Args>
void recorded(Stream& stream, const Args& args) {
  Profile* profile = stream.profile();
  MT_CHECK(profile != nullptr, "a recording kernel on a stream without a profile");
  CountedWork counted = count(args);
  double start = profile->now();
  (profile->kernels().*kEntry)(stream, args);
  stream.synchronize();
  profile->add(
      {kName, std::move(counted.shape), counted.work, start, profile->now() - start, false});
}

}  // namespace

Profile::Profile(const KernelTable& kernels) : kernels_(kernels) {
#define MT_RECORD(entry, Args)                                                                    \
  do {                                                                                            \
    static constexpr char kName[] = #entry;                                                       \
    if (kernels_.entry != nullptr) recording_.entry = recorded<&KernelTable::entry, kName, Args>; \
  } while (false);
  MT_KERNELS(MT_RECORD)
#undef MT_RECORD
  recording_.quant_scales = kernels_.quant_scales;
}

}  // namespace mtrain
