// A system call without libc: does not set errno, and bypasses this library's replacement of
// `syscall`.
#pragma once

namespace mtrain::emulation {

/// Returns the kernel's result: -errno on failure.
inline long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                        long f = 0) {
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long answer = 0;
  asm volatile("syscall"
               : "=a"(answer)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return answer;
}

}  // namespace mtrain::emulation
