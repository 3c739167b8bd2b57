// One libFuzzer executable for each entry; MT_FUZZ_ENTRY is its function.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/entries.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  mtrain::fuzz::MT_FUZZ_ENTRY({reinterpret_cast<const char*>(data), size});
  return 0;
}
