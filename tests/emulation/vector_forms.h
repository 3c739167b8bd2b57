// Forms of the vector instructions: each is a function that loads every register, runs the one
// instruction and stores them.
#pragma once
#include <cstdint>

namespace mtrain::emulation {

struct Machine {
  uint32_t zmm[32][16];
  uint64_t opmask[8];
  uint64_t general[16];  // set by the form, in the encoding's order
  uint64_t flags;
};

struct VectorForm {
  void (*run)(const Machine* in, Machine* out, uint8_t* memory);
  const char* text;  // AT&T syntax
};

/// One instruction next to the emulated ones, run by the CPU and by the emulator. Only ZMM31 may
/// differ.
struct NeighbourForm {
  void (*native)(const Machine* in, Machine* out, uint8_t* memory);
  void (*emulated)(const Machine* in, Machine* out, uint8_t* memory);
  const char* text;
};

extern "C" {
extern const NeighbourForm __start_mt_neighbours[], __stop_mt_neighbours[];
extern const VectorForm __start_mt_forms[], __stop_mt_forms[];
extern uint32_t emulation_near_code[16];  // what RIP-relative forms read
}

// What the general registers hold while a form runs, besides RSP, RSI and RDI.
constexpr int64_t kRcx = 24, kRdx = -40, kR9 = 16,
                  kR14 = -8;  // indices; R11: memory + 128, R10: memory - FS's base
// R8: memory + 2^32; the rest: memory

}  // namespace mtrain::emulation
