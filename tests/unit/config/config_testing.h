// What the tests of this folder share.
#pragma once
#include <cstddef>

// A stack that what is nested deepest must do with; sanitizers make every frame larger.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kSmallStack = 4 << 20;
#else
constexpr size_t kSmallStack = 256 << 10;
#endif
