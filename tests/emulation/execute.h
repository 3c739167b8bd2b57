// Execution of one decoded instruction.
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
/// The instructions between the emulated ones (is_neighbour). A taken jump adds only its distance
/// to RIP.
void execute_neighbour(const Instruction&, Registers&);
/// All other instructions. State is per thread.
Outcome execute_tile(const Instruction&, Registers&);
/// Allows tiles from now on, in every thread: the program has requested them from the kernel.
void permit_tiles();

}  // namespace mtrain::emulation
