// What the tests of this folder share.
#pragma once
#include <cstddef>

// The stack size with which the deepest nesting must succeed; sanitizers enlarge every frame.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kSmallStack = 4 << 20;
#else
constexpr size_t kSmallStack = 256 << 10;
#endif
