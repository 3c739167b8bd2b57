// The cores of this machine that this process may use, and their division among ranks.
// Single-threaded.
#pragma once

namespace mtrain {

/// Cores of which this process may use a thread: two threads of one core count once, as mpirun
/// counts.
int physical_cores();
/// Binds this process to its share of them: the `part`th of `parts`. Where there are fewer cores
/// than parts, one core has several.
void bind_to_share(int part, int parts);

}  // namespace mtrain
