#include <cstring>

#include "arithmetic.h"
#include "execute.h"

namespace mtrain::emulation {
namespace {

struct Vector {
  alignas(64) uint32_t lanes[kLanes] = {};
  uint8_t* bytes() { return reinterpret_cast<uint8_t*>(lanes); }
};

/// The operand in ModRM.rm. Lanes outside `wanted` are not read from memory: they may lie where
/// nothing is mapped.
Vector last_source(const Instruction& in, const Registers& registers, int lanes, uint64_t wanted) {
  Vector source;
  if (!in.memory) {
    registers.read_vector(in.rm, source.bytes());
    return source;
  }
  auto* from = reinterpret_cast<const uint8_t*>(registers.address(in));
  for (int i = 0; i < lanes; ++i)
    if (wanted >> i & 1) std::memcpy(&source.lanes[i], in.broadcast ? from : from + 4 * i, 4);
  return source;
}

/// Writes `size`-byte elements to the destination under the mask; what lies above them becomes
/// zero.
void write_masked(const Instruction& in, Registers& registers, const uint8_t* result, int size,
                  int count, uint64_t mask) {
  Vector old, out;
  registers.read_vector(in.reg, old.bytes());
  for (int i = 0; i < count; ++i) {
    if (mask >> i & 1)
      std::memcpy(out.bytes() + size * i, result + size * i, static_cast<size_t>(size));
    else if (!in.zeroing)
      std::memcpy(out.bytes() + size * i, old.bytes() + size * i, static_cast<size_t>(size));
  }
  registers.write_vector(in.reg, out.bytes());
}

}  // namespace

void execute_vector(const Instruction& in, Registers& registers) {
  constexpr uint64_t kAll = ~uint64_t{0};
  int lanes = in.vector_bytes / 4;
  uint64_t mask = in.mask == 0 ? kAll : registers.opmask(in.mask);
  // The conversion of two sources has twice as many results as lanes, and reads its memory whole.
  bool two = in.op == Op::kConvertTwo;
  Vector last = last_source(in, registers, lanes, two ? kAll : mask);
  if (in.op == Op::kDotPairs) {
    Vector first, sum;
    registers.read_vector(in.vvvv, first.bytes());
    registers.read_vector(in.reg, sum.bytes());
    dot_pairs(first.lanes, last.lanes, sum.lanes);
    write_masked(in, registers, sum.bytes(), 4, lanes, mask);
    return;
  }
  uint16_t halves[2 * kLanes] = {};
  for (int i = 0; i < lanes; ++i) halves[i] = to_bf16(last.lanes[i]);
  if (two) {
    Vector first;
    registers.read_vector(in.vvvv, first.bytes());
    for (int i = 0; i < lanes; ++i) halves[lanes + i] = to_bf16(first.lanes[i]);
  }
  write_masked(in, registers, reinterpret_cast<uint8_t*>(halves), 2, two ? 2 * lanes : lanes, mask);
}

}  // namespace mtrain::emulation
