// What the tests of this folder share.
#pragma once

// How much slower a busy machine, or a build under sanitizers on one, may be: these tests look for times that
// grow out of bounds, not for speed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlow = 50;
#else
constexpr double kSlow = 5;
#endif
