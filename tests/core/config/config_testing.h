// What the tests of this folder share.
#pragma once

// How much slower a build under sanitizers may be.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlow = 10;
#else
constexpr double kSlow = 1;
#endif
