// The cores of this machine that this process may use, and their division among ranks.
// Single-threaded.
#pragma once

namespace mtrain {

/// Number of cores on which this process may run: two hardware threads of one core count once, as
/// in mpirun.
int physical_cores();
/// Binds this process to its share of the cores: part `part` of `parts`. If there are fewer cores
/// than parts, several parts share a core.
void bind_to_share(int part, int parts);

}  // namespace mtrain
