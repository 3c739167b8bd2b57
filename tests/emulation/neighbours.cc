#include <cstring>

#include "execute.h"

namespace mtrain::emulation {
namespace {

enum Flag : uint64_t {
  kCarry = 1,
  kParity = 4,
  kAdjust = 16,
  kZero = 64,
  kSign = 128,
  kOverflow = 2048
};
constexpr uint64_t kArithmeticFlags = kCarry | kParity | kAdjust | kZero | kSign | kOverflow;

uint64_t flag(Flag which, bool set) { return set ? uint64_t{which} : 0; }

/// The flags after a + b = result, or a - b = result.
uint64_t flags_after(uint64_t a, uint64_t b, uint64_t result, bool subtraction) {
  uint64_t overflow = subtraction ? (a ^ b) & (a ^ result) : (a ^ result) & (b ^ result);
  return flag(kCarry, subtraction ? a < b : result < a) |
         flag(kParity, __builtin_parityll(result & 255) == 0) |
         flag(kAdjust, (a ^ b ^ result) & 16) | flag(kZero, result == 0) |
         flag(kSign, result >> 63) | flag(kOverflow, overflow >> 63);
}

/// The even one of each two conditions; the odd one is its opposite.
bool holds(int condition, uint64_t flags) {
  bool less = ((flags & kSign) != 0) != ((flags & kOverflow) != 0);
  bool is = false;
  switch (condition >> 1) {
    case 0:
      is = flags & kOverflow;
      break;
    case 1:
      is = flags & kCarry;
      break;
    case 2:
      is = flags & kZero;
      break;
    case 3:
      is = flags & (kCarry | kZero);
      break;
    case 4:
      is = flags & kSign;
      break;
    case 5:
      is = flags & kParity;
      break;
    case 6:
      is = less;
      break;
    default:
      is = less || (flags & kZero);
      break;
  }
  return is != ((condition & 1) != 0);
}

void calculate(const Instruction& in, Registers& registers) {
  uint64_t a = registers.general(in.reg);
  uint64_t b = in.constant ? static_cast<uint64_t>(in.immediate) : registers.general(in.rm);
  bool subtraction = in.op != Op::kAdd;
  uint64_t result = subtraction ? a - b : a + b;
  registers.set_flags((registers.flags() & ~kArithmeticFlags) |
                      flags_after(a, b, result, subtraction));
  if (in.op != Op::kCompare) registers.set_general(in.reg, result);
}

void move_vector(const Instruction& in, Registers& registers) {
  uint8_t all[kVectorBytes] = {};
  uint8_t kept[kVectorBytes] = {};
  bool broadcast = in.op == Op::kBroadcastWord;
  auto bytes = static_cast<size_t>(in.vector_bytes);
  if (in.memory)
    std::memcpy(all, reinterpret_cast<const uint8_t*>(registers.address(in)),
                broadcast ? 4 : bytes);
  else
    registers.read_vector(in.rm, all);
  for (size_t i = 0; i < bytes; i += 4) std::memcpy(kept + i, broadcast ? all : all + i, 4);
  registers.write_vector(in.reg, kept);
}

}  // namespace

void execute_neighbour(const Instruction& in, Registers& registers) {
  if (in.op == Op::kJump) {
    if (holds(in.condition, registers.flags())) registers.advance(in.immediate);
  } else if (in.op == Op::kMoveVector || in.op == Op::kBroadcastWord) {
    move_vector(in, registers);
  } else {
    calculate(in, registers);
  }
}

}  // namespace mtrain::emulation
