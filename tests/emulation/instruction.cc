#include "instruction.h"

#include <cstring>
#include <utility>

namespace mtrain::emulation {
namespace {

constexpr int kMap0F = 1, kMap0F38 = 2;
enum Prefix { kNP = 0, k66 = 1, kF3 = 2, kF2 = 3 };  // as in the field pp

/// What stands before the opcode, bits of registers already right way round.
struct Head {
  int r = 0, x = 0, b = 0;  // 0 or 8; with EVEX, r has R' as 16
  int vvvv = 0;             // with EVEX, V' is 16
  int map = 0, pp = 0, w = 0, length = 0;
  bool broadcast = false, zeroing = false;
  int mask = 0;
};

struct Reader {
  const uint8_t* start;
  const uint8_t* at;
  uint8_t next() { return *at++; }
  int64_t displacement(int bytes) {
    if (bytes == 1) return static_cast<int8_t>(next());
    int32_t value = 0;
    std::memcpy(&value, at, 4);
    at += 4;
    return value;
  }
};

bool read_vex(Reader& in, Head& head) {
  int first = in.next();
  int second = in.next();
  head.r = first & 0x80 ? 0 : 8;
  head.x = first & 0x40 ? 0 : 8;
  head.b = first & 0x20 ? 0 : 8;
  head.map = first & 0x1f;
  head.w = second >> 7;
  head.vvvv = ~(second >> 3) & 15;
  head.length = second >> 2 & 1;
  head.pp = second & 3;
  return head.map == kMap0F38;
}

bool read_evex(Reader& in, Head& head) {
  int p0 = in.next();
  if ((p0 & 0x0f) != kMap0F38 && (p0 & 0x0f) != kMap0F) return false;
  int p1 = in.next();
  if ((p1 & 4) == 0) return false;
  int p2 = in.next();
  head.r = (p0 & 0x80 ? 0 : 8) + (p0 & 0x10 ? 0 : 16);
  head.x = p0 & 0x40 ? 0 : 8;
  head.b = p0 & 0x20 ? 0 : 8;
  head.map = p0 & 7;
  head.w = p1 >> 7;
  head.vvvv = (~(p1 >> 3) & 15) + (p2 & 8 ? 0 : 16);
  head.pp = p1 & 3;
  head.length = p2 >> 5 & 3;
  head.zeroing = p2 & 0x80;
  head.broadcast = p2 & 0x10;
  head.mask = p2 & 7;
  return true;
}

/// ModRM's memory operand. `scale8`: what one unit of an 8-bit displacement stands for.
void read_address(Reader& in, int modrm, const Head& head, int scale8, Address& out) {
  int mod = modrm >> 6;
  int rm = modrm & 7;
  int base = rm;
  if (rm == 4) {
    int sib = in.next();
    int index = (sib >> 3 & 7) + head.x;
    out.index = index == 4 ? kNone : index;
    out.shift = sib >> 6;
    base = sib & 7;
  }
  if (mod == 0 &&
      base ==
          5) {  // no base: 32-bit displacement; without SIB it is relative to the next instruction
    out.base = rm == 4 ? kNone : kRip;
    out.displacement = in.displacement(4);
    return;
  }
  out.base = base + head.b;
  if (mod == 1) out.displacement = in.displacement(1) * scale8;
  if (mod == 2) out.displacement = in.displacement(4);
}

bool avx512_op(const Head& head, int opcode, Op& op) {
  int pp = head.pp;
  bool plain = head.mask == 0 && !head.zeroing && !head.broadcast && head.vvvv == 0;
  bool move = opcode == 0x6f
                  ? pp != kNP
                  : (opcode == 0x10 || opcode == 0x28) && pp == (head.w != 0 ? k66 : kNP);
  if (head.map == kMap0F) {
    op = Op::kMoveVector;
    return plain && move;
  }
  if (head.w != 0) return false;
  if (opcode == 0x52 && pp == kF3)
    op = Op::kDotPairs;
  else if ((opcode == 0x58 || opcode == 0x18) && pp == k66 && plain)
    op = Op::kBroadcastWord;
  else if (opcode == 0x72 && pp == kF3)
    op = Op::kConvert;
  else if (opcode == 0x72 && pp == kF2)
    op = Op::kConvertTwo;
  else
    return false;
  return true;
}

Decoded decode_evex(Reader& in, Instruction& out, const char*& reason) {
  Head head;
  if (!read_evex(in, head)) return Decoded::kUnknown;
  if (!avx512_op(head, in.next(), out.op)) return Decoded::kUnknown;
  int modrm = in.next();
  out.memory = modrm >> 6 != 3;
  reason = nullptr;
  if (head.length == 3) reason = "vector length 3";
  if (head.broadcast && !out.memory) reason = "broadcast of a register";
  if (head.zeroing && head.mask == 0) reason = "zeroing without a mask";
  if (out.op == Op::kConvert && head.vvvv != 0)
    reason = "EVEX.vvvv of an instruction that has no second source";
  if (reason != nullptr) return Decoded::kInvalid;
  out.vector_bytes = 16 << head.length;
  out.reg = (modrm >> 3 & 7) + head.r;
  out.vvvv = head.vvvv;
  out.mask = head.mask;
  out.zeroing = head.zeroing;
  out.broadcast = head.broadcast;
  if (out.memory)
    read_address(in, modrm, head,
                 head.broadcast || out.op == Op::kBroadcastWord ? 4 : out.vector_bytes,
                 out.address);
  else
    out.rm = (modrm & 7) + head.b + 2 * head.x;
  return Decoded::kYes;
}

struct TileForm {
  int opcode, pp;
  bool memory;
  Op op;
};
constexpr TileForm kTileForms[] = {
    {0x49, kNP, true, Op::kLoadConfig},      {0x49, k66, true, Op::kStoreConfig},
    {0x49, kNP, false, Op::kRelease},        {0x49, kF2, false, Op::kZero},
    {0x4b, kF2, true, Op::kLoadTile},        {0x4b, k66, true, Op::kLoadTile},
    {0x4b, kF3, true, Op::kStoreTile},       {0x5c, kF3, false, Op::kTileDotPairs},
    {0x5e, kNP, false, Op::kTileDotBytesUU}, {0x5e, k66, false, Op::kTileDotBytesUS},
    {0x5e, kF3, false, Op::kTileDotBytesSU}, {0x5e, kF2, false, Op::kTileDotBytesSS},
};

bool tile_op(int opcode, int pp, bool memory, Op& op) {
  for (const TileForm& form : kTileForms)
    if (form.opcode == opcode && form.pp == pp && form.memory == memory) {
      op = form.op;
      return true;
    }
  return false;
}

/// Which fields must be zero, and which registers must be tiles.
const char* tile_refusal(const Head& head, int modrm, const Instruction& in) {
  bool product = in.op >= Op::kTileDotPairs;
  bool tile_in_reg =
      product || in.op == Op::kZero || in.op == Op::kLoadTile || in.op == Op::kStoreTile;
  bool addressed_by_sib = in.op == Op::kLoadTile || in.op == Op::kStoreTile;
  if (!product && head.vvvv != 0) return "VEX.vvvv of an instruction that has no second source";
  if (!tile_in_reg && (modrm & 0x38) != 0) return "ModRM.reg is not 0";
  if (tile_in_reg && head.r != 0) return "no such tile (VEX.R)";
  if ((in.op == Op::kZero || in.op == Op::kRelease) && (modrm & 7) != 0) return "ModRM.rm is not 0";
  if (product && (head.b != 0 || head.vvvv > 7)) return "no such tile (VEX.B or VEX.vvvv)";
  if (addressed_by_sib && (modrm & 7) != 4) return "rows of a tile need a SIB byte";
  return nullptr;
}

Decoded decode_vex(Reader& in, Instruction& out, const char*& reason) {
  Head head;
  if (!read_vex(in, head) || head.w != 0 || head.length != 0) return Decoded::kUnknown;
  int opcode = in.next();
  if (opcode != 0x49 && opcode != 0x4b && opcode != 0x5c && opcode != 0x5e)
    return Decoded::kUnknown;
  int modrm = in.next();
  out.memory = modrm >> 6 != 3;
  if (!tile_op(opcode, head.pp, out.memory, out.op)) return Decoded::kUnknown;
  reason = tile_refusal(head, modrm, out);
  if (reason != nullptr) return Decoded::kInvalid;
  out.reg = modrm >> 3 & 7;
  out.vvvv = head.vvvv;
  if (out.memory)
    read_address(in, modrm, head, 1, out.address);
  else
    out.rm = modrm & 7;
  return Decoded::kYes;
}

/// Arithmetic of 64-bit registers: REX.W, then an opcode whose bits 3-5 name the operation.
Decoded decode_general(Reader& in, int rex, Instruction& out) {
  if ((rex & 8) == 0) return Decoded::kUnknown;
  int opcode = in.next();
  out.constant = opcode == 0x81 || opcode == 0x83;
  bool from_rm = opcode == 0x03 || opcode == 0x2b || opcode == 0x3b;
  bool to_rm = opcode == 0x01 || opcode == 0x29 || opcode == 0x39;
  if (!out.constant && !from_rm && !to_rm) return Decoded::kUnknown;
  int modrm = in.next();
  if (modrm >> 6 != 3) return Decoded::kUnknown;
  int operation = out.constant ? modrm >> 3 & 7 : opcode >> 3;
  if (operation != 0 && operation != 5 && operation != 7) return Decoded::kUnknown;
  out.op = operation == 0 ? Op::kAdd : operation == 5 ? Op::kSubtract : Op::kCompare;
  out.reg = (modrm >> 3 & 7) + (rex & 4 ? 8 : 0);
  out.rm = (modrm & 7) + (rex & 1 ? 8 : 0);
  if (to_rm || out.constant) std::swap(out.reg, out.rm);
  if (out.constant) out.immediate = in.displacement(opcode == 0x83 ? 1 : 4);
  return Decoded::kYes;
}

Decoded decode_jump(Reader& in, int condition, int bytes, Instruction& out) {
  out.op = Op::kJump;
  out.condition = condition & 15;
  out.immediate = in.displacement(bytes);
  return Decoded::kYes;
}

}  // namespace

Decoded decode(const uint8_t* code, Instruction& out, const char*& reason) {
  Reader in{code, code};
  out = Instruction{};
  constexpr int kLongest = 15;
  for (int prefixes = 0; prefixes < kLongest; ++prefixes) {
    Decoded decoded = Decoded::kUnknown;
    int first = in.next();
    switch (first) {
      case 0x26:
      case 0x2e:
      case 0x36:
      case 0x3e:
        continue;  // segments without a base
      case 0x64:
        out.address.segment = Segment::kFs;
        continue;
      case 0x65:
        out.address.segment = Segment::kGs;
        continue;
      case 0x67:
        out.address.narrow = true;
        continue;
      case 0x62:
        decoded = decode_evex(in, out, reason);
        break;
      case 0xc4:
        decoded = decode_vex(in, out, reason);
        break;
      case 0x0f:
        first = in.next();
        if ((first & 0xf0) == 0x80) decoded = decode_jump(in, first, 4, out);
        break;
      default:
        if ((first & 0xf0) == 0x70) decoded = decode_jump(in, first, 1, out);
        if ((first & 0xf0) == 0x40) decoded = decode_general(in, first, out);
        break;
    }
    out.length = static_cast<int>(in.at - in.start);
    return decoded;
  }
  return Decoded::kUnknown;
}

}  // namespace mtrain::emulation
