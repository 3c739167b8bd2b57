// What one decoded instruction does.
#pragma once
#include "instruction.h"
#include "registers.h"

namespace mtrain::emulation {

/// Why the CPU would fault, or nothing.
struct Outcome {
  const char* invalid_opcode = nullptr;      // #UD: SIGILL on hardware, too
  const char* general_protection = nullptr;  // #GP
};

/// VDPBF16PS, VCVTNEPS2BF16, VCVTNE2PS2BF16.
void execute_vector(const Instruction&, Registers&);
/// What stands between the emulated instructions (is_neighbour). A jump that is taken moves RIP by
/// its distance alone.
void execute_neighbour(const Instruction&, Registers&);
/// The rest. State is per thread.
Outcome execute_tile(const Instruction&, Registers&);
/// Tiles may be used from now on, in every thread: the program has asked the kernel for them.
void permit_tiles();

}  // namespace mtrain::emulation
