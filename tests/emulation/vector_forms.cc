// Assembly only: no function of C++, so that the options of this file reach no code that runs on
// every CPU.
#define ALL_VECTORS \
  "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31"

// Offsets are those of Machine.
#define ENTER                                                                                   \
  "endbr64\n push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"           \
  ".irp n," ALL_VECTORS                                                                         \
  "\n vmovdqu64 64*\\n(%rdi), %zmm\\n\n .endr\n"                                                \
  ".irp n,0,1,2,3,4,5,6,7\n kmovq 2048+8*\\n(%rdi), %k\\n\n .endr\n"                            \
  ".irp n,rax,rbx,rbp,r12,r13,r15\n mov %rdx, %\\n\n .endr\n"                                   \
  "lea 128(%rdx), %r11\n mov %rdx, %r10\n sub %fs:0, %r10\n mov $1, %r8d\n shl $32, %r8\n add " \
  "%rdx, %r8\n"                                                                                 \
  "mov $24, %rcx\n mov $16, %r9\n mov $-8, %r14\n mov $-40, %rdx\n cmp $1, %ecx\n stc\n"

#define LEAVE                                                                                    \
  ".irp n," ALL_VECTORS                                                                          \
  "\n vmovdqu64 %zmm\\n, 64*\\n(%rsi)\n .endr\n"                                                 \
  ".irp n,0,1,2,3,4,5,6,7\n kmovq %k\\n, 2048+8*\\n(%rsi)\n .endr\n"                             \
  "mov %rax, 2112(%rsi)\n mov %rcx, 2120(%rsi)\n mov %rdx, 2128(%rsi)\n mov %rbx, 2136(%rsi)\n " \
  "mov %rsp, 2144(%rsi)\n"                                                                       \
  "mov %rbp, 2152(%rsi)\n mov %rsi, 2160(%rsi)\n mov %rdi, 2168(%rsi)\n mov %r8, 2176(%rsi)\n "  \
  "mov %r9, 2184(%rsi)\n"                                                                        \
  "mov %r10, 2192(%rsi)\n mov %r11, 2200(%rsi)\n mov %r12, 2208(%rsi)\n mov %r13, 2216(%rsi)\n " \
  "mov %r14, 2224(%rsi)\n"                                                                       \
  "mov %r15, 2232(%rsi)\n pushfq\n pop %rax\n mov %rax, 2240(%rsi)\n vzeroupper\n"               \
  "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n ret\n"

#define FORM(text)                                       \
  asm(".pushsection .text\n771:\n" ENTER text "\n" LEAVE \
      ".popsection\n"                                    \
      ".pushsection .rodata\n772: .asciz \"" text        \
      "\"\n.popsection\n"                                \
      ".pushsection mt_forms,\"aw\",@progbits\n.balign 8\n.quad 771b, 772b\n.popsection\n");

asm(".pushsection .data\n.balign 64\n.globl emulation_near_code\n.hidden "
    "emulation_near_code\nemulation_near_code: .zero 64\n"
    ".popsection\n");

// Registers, and every kind of memory operand. `last`: bytes of the last vector that an 8-bit
// displacement reaches.
#define TWO_SOURCES(name, v, to, last)                             \
  FORM(name " %" v "1, %" v "2, %" v "3")                          \
  FORM(name " %" v "31, %" v "30, %" v "29")                       \
  FORM(name " %" v "9, %" v "22, %" v "12")                        \
  FORM(name " %" v "17, %" v "5, %" v "16")                        \
  FORM(name " %" v "4, %" v "4, %" v "4")                          \
  FORM(name " %" v "25, %" v "14, %" v "25{%k1}")                  \
  FORM(name " %" v "8, %" v "15, %" v "7{%k7}{z}")                 \
  FORM(name " (%rax), %" v "2, %" v "1")                           \
  FORM(name " (%r12), %" v "20, %" v "1{%k2}")                     \
  FORM(name " (%rbp), %" v "21, %" v "30{%k3}{z}")                 \
  FORM(name " " last "(%r13), %" v "2, %" v "10")                  \
  FORM(name " -" last "(%rbx), %" v "2, %" v "10{%k4}")            \
  FORM(name " 4(%rbx), %" v "2, %" v "10")                         \
  FORM(name " 12345(%r15,%rcx,1), %" v "2, %" v "10")              \
  FORM(name " " last "(%rax,%r9,8), %" v "2, %" v "10")            \
  FORM(name " (%rbp,%rdx,2), %" v "2, %" v "10")                   \
  FORM(name " (%r13,%r14,4), %" v "2, %" v "10{%k5}{z}")           \
  FORM(name " (%r11), %" v "2, %" v "10")                          \
  FORM(name " %fs:64(%r10), %" v "2, %" v "10")                    \
  FORM(name " 64(%r8d,%r14d,1), %" v "2, %" v "10")                \
  FORM(name " emulation_near_code(%rip), %" v "23, %" v "11")      \
  FORM(name " emulation_near_code(%rip), %" v "23, %" v "11{%k6}") \
  FORM(name " (%rax){1to" to "}, %" v "2, %" v "1")                \
  FORM(name " 508(%r13){1to" to "}, %" v "2, %" v "18{%k1}")       \
  FORM(name " -512(%r12){1to" to "}, %" v "27, %" v "6{%k2}{z}")   \
  FORM(name " 3000(%rbx,%r9,4){1to" to "}, %" v "2, %" v "19")     \
  FORM(name " emulation_near_code(%rip){1to" to "}, %" v "3, %" v "19{%k7}")

TWO_SOURCES("vdpbf16ps", "zmm", "16", "8128")
TWO_SOURCES("vdpbf16ps", "ymm", "8", "4064")
TWO_SOURCES("vdpbf16ps", "xmm", "4", "2032")
TWO_SOURCES("vcvtne2ps2bf16", "zmm", "16", "8128")
TWO_SOURCES("vcvtne2ps2bf16", "ymm", "8", "4064")
TWO_SOURCES("vcvtne2ps2bf16", "xmm", "4", "2032")

#define ONE_SOURCE(name, from, v, to, last)               \
  FORM("vcvtneps2bf16 %" from "1, %" v "3")               \
  FORM("vcvtneps2bf16 %" from "31, %" v "29")             \
  FORM("vcvtneps2bf16 %" from "9, %" v "22{%k1}")         \
  FORM("vcvtneps2bf16 %" from "18, %" v "12{%k7}{z}")     \
  FORM("vcvtneps2bf16 %" from "6, %" v "6{%k2}")          \
  FORM(name " (%rax), %" v "1")                           \
  FORM(name " " last "(%r13), %" v "17{%k3}")             \
  FORM(name " -" last "(%rbp), %" v "2{%k4}{z}")          \
  FORM(name " -12345(%r15,%rdx,4), %" v "2")              \
  FORM(name " emulation_near_code(%rip), %" v "2")        \
  FORM("vcvtneps2bf16 4(%r12){1to" to "}, %" v "28{%k5}") \
  FORM("vcvtneps2bf16 -512(%r11){1to" to "}, %" v "8{%k6}{z}")

ONE_SOURCE("vcvtneps2bf16", "zmm", "ymm", "16", "8128")
ONE_SOURCE("vcvtneps2bf16y", "ymm", "xmm", "8", "4064")
ONE_SOURCE("vcvtneps2bf16x", "xmm", "xmm", "4", "2032")

// An instruction that the emulator runs along after one of its own, as the CPU runs it and as the
// emulator does.
#define EMULATED "vcvtneps2bf16 %zmm31, %ymm31\n"
#define NEIGHBOUR(name, before, text)                                              \
  asm(".pushsection .text\n771:\n" ENTER before text "\n" LEAVE                    \
      "774:\n" ENTER before EMULATED text "\n" LEAVE                               \
      ".popsection\n"                                                              \
      ".pushsection .rodata\n772: .asciz \"" name                                  \
      "\"\n.popsection\n"                                                          \
      ".pushsection mt_neighbours,\"aw\",@progbits\n.balign 8\n.quad 771b, 774b, " \
      "772b\n.popsection\n");

#define ALONE(text) NEIGHBOUR(text, "", text)
ALONE("vmovdqu64 (%rax), %zmm3")
ALONE("vmovdqu32 128(%r13,%rcx,2), %zmm19")
ALONE("vmovdqu16 64(%rbp), %ymm20")
ALONE("vmovdqu8 (%r12,%r14,1), %xmm18")
ALONE("vmovdqa64 -8192(%rbx), %zmm9")
ALONE("vmovups 4(%rax), %zmm8")
ALONE("vmovupd 4(%rax), %zmm8")
ALONE("vmovaps %zmm5, %zmm21")
ALONE("vmovapd %ymm25, %ymm16")
ALONE("vpbroadcastd 508(%rbx), %zmm3")
ALONE("vpbroadcastd (%r15,%r9,4), %ymm23")
ALONE("vpbroadcastd 32764(%rax), %zmm11")  // the last bytes of the page
ALONE("vpbroadcastd %xmm29, %zmm7")
ALONE("vbroadcastss -512(%r12), %zmm17")
ALONE("vmovdqu32 (%rax), %zmm3{%k1}")  // masked: left to the CPU

#define NUMBERS "mov 8(%rax), %rcx\n mov 16(%rax), %r9\n"
#define OF_NUMBERS(text) NEIGHBOUR(text, NUMBERS, text)
#define ARITHMETIC(name, opcode)                            \
  OF_NUMBERS(name " %rcx, %r9")                             \
  OF_NUMBERS(name " $5, %rcx")                              \
  OF_NUMBERS(name " $-128, %r9")                            \
  OF_NUMBERS(name " $-1000000, %r9")                        \
  OF_NUMBERS(name " $0x7fffffff, %rcx")                     \
  OF_NUMBERS(".byte 0x4c," opcode ",0xc9") /* r9 and rcx */ \
  OF_NUMBERS(name "l %ecx, %r9d")          /* 32 bits: left to the CPU */
ARITHMETIC("add", "0x03")
ARITHMETIC("sub", "0x2b")
ARITHMETIC("cmp", "0x3b")

#define JUMP(condition, opcode)                                                                  \
  NEIGHBOUR("j" condition, NUMBERS, "cmp %rcx, %r9\n j" condition " 773f\n mov $1, %r14\n 773:") \
  NEIGHBOUR("j" condition " far", NUMBERS,                                                       \
            "add %rcx, %r9\n .byte 0x0f," opcode "\n .long 773f-.-4\n mov $1, %r14\n 773:")
JUMP("o", "0x80")
JUMP("no", "0x81")
JUMP("b", "0x82")
JUMP("ae", "0x83")
JUMP("e", "0x84")
JUMP("ne", "0x85")
JUMP("be", "0x86")
JUMP("a", "0x87")
JUMP("s", "0x88")
JUMP("ns", "0x89")
JUMP("p", "0x8a")
JUMP("np", "0x8b")
JUMP("l", "0x8c")
JUMP("ge", "0x8d")
JUMP("le", "0x8e")
JUMP("g", "0x8f")
