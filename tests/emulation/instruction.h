// The instructions that the emulator knows, decoded. Thread-safe: pure functions.
#pragma once
#include <cstdint>

namespace mtrain::emulation {

enum class Op {
  kDotPairs,        // VDPBF16PS
  kConvert,         // VCVTNEPS2BF16
  kConvertTwo,      // VCVTNE2PS2BF16
  kLoadConfig,      // LDTILECFG
  kStoreConfig,     // STTILECFG
  kRelease,         // TILERELEASE
  kZero,            // TILEZERO
  kLoadTile,        // TILELOADD, TILELOADDT1
  kStoreTile,       // TILESTORED
  kTileDotPairs,    // TDPBF16PS
  kTileDotBytesUU,  // TDPBUUD: both operands without a sign
  kTileDotBytesUS,  // TDPBUSD: src1 without a sign, src2 with one
  kTileDotBytesSU,  // TDPBSUD
  kTileDotBytesSS,  // TDPBSSD
  // What every CPU has, and kernels have between the above. Run by the emulator after one of those,
  // where a signal costs more.
  kMoveVector,     // VMOVDQU, VMOVUPS and their like, to a register, without a mask
  kBroadcastWord,  // VPBROADCASTD, VBROADCASTSS, without a mask
  kAdd,            // of 64-bit registers, or a register and a constant
  kSubtract,
  kCompare,
  kJump,  // on a condition
};
constexpr bool is_tile_op(Op op) { return op >= Op::kLoadConfig && op <= Op::kTileDotBytesSS; }
constexpr bool is_neighbour(Op op) { return op >= Op::kMoveVector; }

constexpr int kOps = 14;  // without neighbours
/// In the order of Op.
constexpr const char* kOpNames[kOps] = {
    "VDPBF16PS",   "VCVTNEPS2BF16", "VCVTNE2PS2BF16", "LDTILECFG",  "STTILECFG",
    "TILERELEASE", "TILEZERO",      "TILELOADD",      "TILESTORED", "TDPBF16PS",
    "TDPBUUD",     "TDPBUSD",       "TDPBSUD",        "TDPBSSD"};

constexpr int kNone = -1;  // no such register
constexpr int kRip = 16;   // as a base: the address of the next instruction

enum class Segment { kFlat, kFs, kGs };

/// base + (index << shift) + displacement; numbers of general registers as in the encoding (0: RAX,
/// 1: RCX, ...).
struct Address {
  int base = kNone, index = kNone, shift = 0;
  int64_t displacement = 0;
  Segment segment = Segment::kFlat;
  bool narrow = false;  // computed in 32 bits (prefix 67)
};

struct Instruction {
  Op op;
  int length = 0;         // bytes
  int reg = 0, vvvv = 0;  // registers of ModRM.reg and (E)VEX.vvvv
  int rm = 0;             // register of ModRM.rm, where `memory` is false
  int vector_bytes = 0;   // 16, 32 or 64
  int mask = 0;           // opmask register; 0: none
  bool zeroing = false, broadcast = false, memory = false;
  Address address;
  // Of neighbours: the constant or the jump's distance, which counts from the next instruction;
  // `memory` is false.
  bool constant = false;
  int64_t immediate = 0;
  int condition = 0;  // as encoded
};

enum class Decoded {
  kYes,
  kUnknown,  // none of ours
  kInvalid,  // one of ours in a form that the CPU refuses (#UD)
};

/// Reads no byte that the CPU would not read, too. `reason` is set for kInvalid.
Decoded decode(const uint8_t* code, Instruction& out, const char*& reason);

}  // namespace mtrain::emulation
