// Divides work on the host among threads that live as long as the call. For work of at least
// milliseconds that happens now and then, such as making and quantizing weights; kernels have the
// backend's own threads.
#pragma once
#include <cstddef>
#include <functional>

namespace mtrain {

/// Calls f(begin, end) for contiguous parts of [0, count), each of at least `least` items, on as
/// many threads as the machine has processors. Returns when all have returned. `f` must not throw,
/// and its parts must not touch each other's data.
void parallel_ranges(size_t count, size_t least, const std::function<void(size_t, size_t)>& f);

}  // namespace mtrain
