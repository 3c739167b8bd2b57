#include "registers.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>

#include <cstring>

#include "raw_syscall.h"

namespace mtrain::emulation {
namespace {

// Numbers of XSAVE's state components, and their sizes.
enum Component { kSse = 1, kAvx = 2, kOpmask = 5, kZmmHigh = 6, kZmm16To31 = 7 };
constexpr uint64_t kNeeded = 1 << kSse | 1 << kAvx | 1 << kOpmask | 1 << kZmmHigh | 1 << kZmm16To31;
constexpr uint32_t kXmm = 160, kXmmBytes = 256, kYmmHighBytes = 256, kZmmHighBytes = 512,
                   kZmm16To31Bytes = 1024;
// Where the context keeps the general registers, in the encoding's order.
constexpr int kPlaces[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                             REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                             REG_R12, REG_R13, REG_R14, REG_R15};
constexpr uint32_t kSoftwareBytes =
    464;                           // the kernel's note in the legacy area: magic, size, features
constexpr uint32_t kHeader = 512;  // XSTATE_BV
constexpr uint32_t kMagic = 0x46505853;  // FP_XSTATE_MAGIC1

uint32_t component_offset(int component) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  __get_cpuid_count(0xd, static_cast<unsigned>(component), &a, &b, &c, &d);
  return b;
}

uint64_t segment_base(Segment segment) {
  uint64_t base = 0;
  if (segment == Segment::kFs) asm("mov %%fs:0, %0" : "=r"(base));  // the ABI keeps the base there
  if (segment == Segment::kGs)
    raw_syscall(SYS_arch_prctl, ARCH_GET_GS, reinterpret_cast<long>(&base));
  return base;
}

}  // namespace

XsaveLayout xsave_layout() {
  __builtin_cpu_init();
  XsaveLayout layout;
  layout.ymm_high = component_offset(kAvx);
  layout.opmask = component_offset(kOpmask);
  layout.zmm_high = component_offset(kZmmHigh);
  layout.zmm_16_31 = component_offset(kZmm16To31);
  layout.usable = __builtin_cpu_supports("avx512f") && layout.zmm_16_31 != 0;
  return layout;
}

Registers::Registers(ucontext_t* context, const XsaveLayout& layout)
    : context_(context), layout_(layout) {
  auto* area = reinterpret_cast<uint8_t*>(context->uc_mcontext.fpregs);
  if (!layout.usable || area == nullptr) return;
  uint32_t magic = 0;
  uint64_t features = 0;
  std::memcpy(&magic, area + kSoftwareBytes, sizeof(magic));
  std::memcpy(&features, area + kSoftwareBytes + 8, sizeof(features));
  if (magic == kMagic && (features & kNeeded) == kNeeded) area_ = area;
}

const uint8_t* Registers::rip() const {
  return reinterpret_cast<const uint8_t*>(context_->uc_mcontext.gregs[REG_RIP]);
}

void Registers::advance(int64_t bytes) { context_->uc_mcontext.gregs[REG_RIP] += bytes; }

uint64_t Registers::general(int number) const {
  return static_cast<uint64_t>(context_->uc_mcontext.gregs[kPlaces[number]]);
}

void Registers::set_general(int number, uint64_t value) {
  context_->uc_mcontext.gregs[kPlaces[number]] = static_cast<greg_t>(value);
}

uint64_t Registers::flags() const {
  return static_cast<uint64_t>(context_->uc_mcontext.gregs[REG_EFL]);
}

void Registers::set_flags(uint64_t value) {
  context_->uc_mcontext.gregs[REG_EFL] = static_cast<greg_t>(value);
}

uint64_t Registers::address(const Instruction& in) const {
  const Address& from = in.address;
  uint64_t sum = static_cast<uint64_t>(from.displacement);
  if (from.base == kRip)
    sum += reinterpret_cast<uint64_t>(rip()) + static_cast<uint64_t>(in.length);
  else if (from.base != kNone)
    sum += general(from.base);
  if (from.index != kNone) sum += general(from.index) << from.shift;
  if (from.narrow) sum &= 0xffffffffu;
  return sum + segment_base(from.segment);
}

bool Registers::in_use(int component) const {
  uint64_t used = 0;
  std::memcpy(&used, area_ + kHeader, sizeof(used));
  return used >> component & 1;
}

void Registers::use(int component, uint32_t offset, uint32_t bytes) {
  if (in_use(component)) return;
  std::memset(area_ + offset, 0, bytes);
  uint64_t used = 0;
  std::memcpy(&used, area_ + kHeader, sizeof(used));
  used |= uint64_t{1} << component;
  std::memcpy(area_ + kHeader, &used, sizeof(used));
}

uint64_t Registers::opmask(int number) const {
  uint64_t value = 0;
  if (in_use(kOpmask)) std::memcpy(&value, area_ + layout_.opmask + 8 * number, sizeof(value));
  return value;
}

void Registers::read_vector(int number, uint8_t* to) const {
  std::memset(to, 0, kVectorBytes);
  if (number >= 16) {
    if (in_use(kZmm16To31)) std::memcpy(to, area_ + layout_.zmm_16_31 + 64 * (number - 16), 64);
    return;
  }
  if (in_use(kSse)) std::memcpy(to, area_ + kXmm + 16 * number, 16);
  if (in_use(kAvx)) std::memcpy(to + 16, area_ + layout_.ymm_high + 16 * number, 16);
  if (in_use(kZmmHigh)) std::memcpy(to + 32, area_ + layout_.zmm_high + 32 * number, 32);
}

void Registers::write_vector(int number, const uint8_t* from) {
  if (number >= 16) {
    use(kZmm16To31, layout_.zmm_16_31, kZmm16To31Bytes);
    std::memcpy(area_ + layout_.zmm_16_31 + 64 * (number - 16), from, 64);
    return;
  }
  use(kSse, kXmm, kXmmBytes);
  use(kAvx, layout_.ymm_high, kYmmHighBytes);
  use(kZmmHigh, layout_.zmm_high, kZmmHighBytes);
  std::memcpy(area_ + kXmm + 16 * number, from, 16);
  std::memcpy(area_ + layout_.ymm_high + 16 * number, from + 16, 16);
  std::memcpy(area_ + layout_.zmm_high + 32 * number, from + 32, 32);
}

}  // namespace mtrain::emulation
