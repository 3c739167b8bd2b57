// The interrupted thread's registers, in the frame that the kernel made for the signal.
#pragma once
#include <ucontext.h>

#include <cstdint>

#include "instruction.h"

namespace mtrain::emulation {

constexpr int kVectorBytes = 64;  // of ZMM

/// The layout of the XSAVE area (CPUID leaf 0xD; the format of signal frames is never compacted).
struct XsaveLayout {
  uint32_t ymm_high = 0, opmask = 0, zmm_high = 0, zmm_16_31 = 0;
  bool usable = false;  // the CPU and the kernel have AVX-512
};
XsaveLayout xsave_layout();

/// Not thread-safe; one per signal. Components that XSAVE left out (XSTATE_BV) read as zero, and
/// are completed when written.
class Registers {
 public:
  Registers(ucontext_t* context, const XsaveLayout& layout);
  bool valid() const { return area_ != nullptr; }  // false: the frame has no AVX-512 state

  const uint8_t* rip() const;
  void advance(int64_t bytes);
  uint64_t general(int number) const;
  void set_general(int number, uint64_t value);
  uint64_t flags() const;
  void set_flags(uint64_t value);
  uint64_t address(const Instruction&) const;
  uint64_t opmask(int number) const;
  void read_vector(int number, uint8_t* to) const;     // kVectorBytes
  void write_vector(int number, const uint8_t* from);  // kVectorBytes

 private:
  bool in_use(int component) const;
  void use(int component, uint32_t offset, uint32_t bytes);

  ucontext_t* context_;
  const XsaveLayout& layout_;
  uint8_t* area_ = nullptr;
};

}  // namespace mtrain::emulation
