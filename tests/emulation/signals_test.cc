#include <cpuid.h>
#include <doctest/doctest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "reference.h"
#include "vector_forms.h"

#define MT_TILES __attribute__((target("amx-tile,amx-bf16")))
#define MT_BF16 __attribute__((target("avx512f,avx512vl,avx512bf16")))

namespace mtrain::emulation {
namespace {

bool usable() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f");
}

/// What hardware does with a wrong use of tiles is not a message.
bool has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 24 & 1) != 0;
}

struct Ended {
  int status = 0;
  std::string errors;  // what it wrote to standard error
};

Ended in_child(const std::function<void()>& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    for (int number : {SIGILL, SIGABRT})
      sigaction(number, &plain, nullptr);  // doctest's own print a report
    body();
    _exit(0);
  }
  close(ends[1]);
  Ended ended;
  char text[512];
  for (ssize_t got = 0; (got = read(ends[0], text, sizeof(text))) > 0;)
    ended.errors.append(text, static_cast<size_t>(got));
  close(ends[0]);
  REQUIRE(waitpid(child, &ended.status, 0) == child);
  return ended;
}

bool killed_by(const Ended& ended, int number) {
  return WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == number;
}
bool says(const Ended& ended, const char* words) {
  return ended.errors.find(words) != std::string::npos;
}

/// One dot product of pairs in a register that the caller does not see.
MT_BF16 uint32_t dot(uint32_t a, uint32_t b, uint32_t sum) {
  asm("vmovd %1, %%xmm1\n vmovd %2, %%xmm2\n vmovd %0, %%xmm3\n vdpbf16ps %%xmm2, %%xmm1, %%xmm3\n "
      "vmovd %%xmm3, %0"
      : "+r"(sum)
      : "r"(a), "r"(b)
      : "xmm1", "xmm2", "xmm3");
  return sum;
}

constexpr uint32_t kOneTwo = 0x40003f80, kThreeFour = 0x40804040;  // bf16 pairs, the low one first

TEST_CASE("an instruction that no CPU has ends the program, and is named") {
  Ended ended = in_child([] { asm volatile("ud2"); });
  CHECK(killed_by(ended, SIGILL));
  CHECK(says(ended, "emulated x86: illegal instruction at 0x"));
  CHECK(says(ended, "bytes 0f 0b"));
}

TEST_CASE("forms that the manual refuses are refused") {
  if (!usable()) return;
  if (__builtin_cpu_supports("avx512bf16")) {
    MESSAGE(
        "not run: this CPU has the instructions, and decides itself (Zen 4 takes zeroing without a "
        "mask)");
    return;
  }
  Ended ended =
      in_child([] { asm volatile(".byte 0x62,0xf2,0x6e,0xc8,0x52,0xd9"); });  // {z} without a mask
  CHECK(killed_by(ended, SIGILL));
  ended = in_child(
      [] { asm volatile(".byte 0x62,0xf2,0x6e,0x58,0x52,0xd9"); });  // broadcast of a register
  CHECK(killed_by(ended, SIGILL));
  ended = in_child([] { asm volatile(".byte 0x62,0xf2,0x6e,0x68,0x52,0xd9"); });  // vector length 3
  CHECK(killed_by(ended, SIGILL));
  ended = in_child(
      [] { asm volatile(".byte 0x62,0xf2,0x6e,0x48,0x72,0xd9"); });  // a conversion with vvvv
  CHECK(killed_by(ended, SIGILL));
  ended = in_child([] { asm volatile(".byte 0x62,0xf2,0xee,0x48,0x52,0xd9"); });  // W1
  CHECK(killed_by(ended, SIGILL));
}

sigjmp_buf jump_back;
void jump(int) { siglongjmp(jump_back, 1); }
void jump_with_info(int, siginfo_t* info, void*) {
  siglongjmp(jump_back, info->si_addr != nullptr ? 2 : 3);
}

TEST_CASE("a handler of the program gets what is not emulated, and emulation goes on") {
  if (!usable()) return;
  struct sigaction mine {
  }, before{}, after{};
  mine.sa_sigaction = jump_with_info;
  mine.sa_flags = SA_SIGINFO;
  REQUIRE(sigaction(SIGILL, &mine, &before) == 0);
  CHECK(dot(kOneTwo, kThreeFour, 0) == reference::dot_pair(0, kOneTwo, kThreeFour));
  int from = sigsetjmp(jump_back, 1);
  if (from == 0) asm volatile("ud2");
  CHECK(from == 2);
  auto replaced = signal(SIGILL, jump);
  CHECK(reinterpret_cast<void*>(replaced) == reinterpret_cast<void*>(jump_with_info));
  from = sigsetjmp(jump_back, 1);
  if (from == 0) asm volatile("ud2");
  CHECK(from == 1);
  CHECK(dot(kOneTwo, kThreeFour, 0) == reference::dot_pair(0, kOneTwo, kThreeFour));
  REQUIRE(sigaction(SIGILL, &before, &after) == 0);
  CHECK(reinterpret_cast<void*>(after.sa_handler) == reinterpret_cast<void*>(jump));
}

TEST_CASE("a thread that blocks every signal is emulated, too") {
  if (!usable()) return;
  sigset_t all, before, now;
  sigfillset(&all);
  REQUIRE(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
  uint32_t result = dot(kOneTwo, kThreeFour, 0);
  REQUIRE(sigprocmask(SIG_SETMASK, nullptr, &now) == 0);
  REQUIRE(pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
  CHECK(result == 0x41300000);  // 1*3 + 2*4
  CHECK(sigismember(&now, SIGTERM) == 1);
  CHECK(sigismember(&now, SIGILL) == 0);
}

alignas(64) const uint32_t kSixteen[16] = {
    0x3f800000, 0x40000000, 0x40400000, 0x40800000, 0x40a00000, 0x40c00000, 0x40e00000, 0x41000000,
    0x41100000, 0x41200000, 0x41300000, 0x41400000, 0x41500000, 0x41600000, 0x41700000, 0x41800000};
uint32_t written[2][16], untouched[3][16];  // after the instructions: registers that they
                                            // write, and others

/// Inside a handler XSAVE's components are in their initial state, and stay out of what XSAVE
/// writes.
MT_BF16 void in_a_handler(int) {
  asm volatile(
      "vcvtneps2bf16 %5, %%ymm20\n"
      "vcvtneps2bf16 %5, %%ymm3\n"
      "vmovdqu32 %%zmm20, %0\n vmovdqu32 %%zmm3, %1\n"
      "vmovdqu32 %%zmm21, %2\n vmovdqu32 %%zmm31, %3\n vmovdqu32 %%zmm12, %4\n"
      : "=m"(written[0]), "=m"(written[1]), "=m"(untouched[0]), "=m"(untouched[1]),
        "=m"(untouched[2])
      : "m"(kSixteen)
      : "xmm3", "xmm20");
}

TEST_CASE("in a handler that blocks every signal and has fresh registers") {
  if (!usable()) return;
  struct sigaction mine {
  }, before{};
  mine.sa_handler = in_a_handler;
  sigfillset(&mine.sa_mask);
  REQUIRE(sigaction(SIGUSR1, &mine, &before) == 0);
  std::memset(untouched, 0xee, sizeof(untouched));
  REQUIRE(raise(SIGUSR1) == 0);
  REQUIRE(sigaction(SIGUSR1, &before, nullptr) == 0);
  for (int i = 0; i < 16; ++i) {
    uint32_t pair = 0;
    if (i < 8)
      pair = reference::to_bf16(kSixteen[2 * i]) |
             static_cast<uint32_t>(reference::to_bf16(kSixteen[2 * i + 1])) << 16;
    CHECK(written[0][i] == pair);
    CHECK(written[1][i] == pair);
    for (auto& one : untouched) CHECK(one[i] == 0);
  }
}

TEST_CASE("MXCSR is neither consulted nor changed") {
  if (!usable()) return;
  unsigned before = _mm_getcsr();
  constexpr unsigned kUpwards = 0x1f80 | 0x4000;
  uint32_t one = 0x3f800000, small = 0x2f803f80;
  _mm_setcsr(kUpwards);
  uint32_t result = dot(small, small, one);
  unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK(result == reference::dot_pair(one, small, small));
  CHECK(after == kUpwards);
}

/// Fills the 128 bytes below RSP, runs an instruction that reads its operand there, and counts the
/// words that have changed.
MT_BF16 int64_t changes_in_red_zone(uint32_t* result) {
  int64_t changes = 0;
  asm volatile(
      "lea -512(%%rsp), %%rsp\n"
      "mov $-128, %%rcx\n"
      "1: mov %%rcx, (%%rsp,%%rcx)\n add $8, %%rcx\n jnz 1b\n"
      "movl $0x40804040, -64(%%rsp)\n"
      "vmovd %2, %%xmm1\n vpxor %%xmm3, %%xmm3, %%xmm3\n"
      "vdpbf16ps -64(%%rsp), %%xmm1, %%xmm3\n"
      "movq $-64, -64(%%rsp)\n"
      "mov $-128, %%rcx\n"
      "2: cmp %%rcx, (%%rsp,%%rcx)\n je 3f\n inc %0\n 3: add $8, %%rcx\n jnz 2b\n"
      "vmovd %%xmm3, %1\n"
      "lea 512(%%rsp), %%rsp\n"
      : "+r"(changes), "=&r"(*result)
      : "r"(kOneTwo)
      : "rcx", "xmm1", "xmm3", "memory", "cc");
  return changes;
}

TEST_CASE("the red zone stays as it was") {
  if (!usable()) return;
  uint32_t result = 0;
  CHECK(changes_in_red_zone(&result) == 0);
  CHECK(result == reference::dot_pair(0, kOneTwo, 0x40804040));
}

TEST_CASE("nothing after the instructions is read") {
  if (!usable()) return;
  auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* code = static_cast<uint8_t*>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(code != MAP_FAILED);
  // vdpbf16ps %xmm1, %xmm0, %xmm2; vmovaps %xmm2, %xmm0; ret
  const uint8_t body[] = {0x62, 0xf2, 0x7e, 0x08, 0x52, 0xd1, 0xc5, 0xf8, 0x28, 0xc2, 0xc3};
  uint8_t* start = code + page - sizeof(body);
  std::memcpy(start, body, sizeof(body));
  REQUIRE(mprotect(code, page, PROT_READ | PROT_EXEC) == 0);
  REQUIRE(mprotect(code + page, page, PROT_NONE) == 0);
  auto run = reinterpret_cast<float (*)(float, float)>(start);
  run(reference::as_float(kOneTwo), reference::as_float(kThreeFour));
  Ended ended = in_child([&] {
    mprotect(code, page, PROT_READ | PROT_WRITE);
    start[sizeof(body) - 2] = 0x0f;  // ud2 in the page's last two bytes
    start[sizeof(body) - 1] = 0x0b;
    mprotect(code, page, PROT_READ | PROT_EXEC);
    reinterpret_cast<void (*)()>(start + sizeof(body) - 2)();
  });
  CHECK(killed_by(ended, SIGILL));
  CHECK(says(ended, "bytes 0f 0b:"));
  munmap(code, 2 * page);
}

TEST_CASE("system calls other than the request for tiles reach the kernel") {
  CHECK(syscall(SYS_getpid) == getpid());
  errno = 0;
  CHECK(syscall(SYS_close, -1) == -1);
  CHECK(errno == EBADF);
  constexpr long kRequestPermission = 0x1023, kNoFeature = 60;
  CHECK(syscall(SYS_arch_prctl, kRequestPermission, kNoFeature) == -1);
}

using Config = uint8_t[64];
MT_TILES void load_config(const Config& config) { asm volatile("ldtilecfg %0" ::"m"(config)); }

void ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) _exit(1);
}

TEST_CASE("configurations that hardware refuses end the program, and the rule is named") {
  if (!usable() || has_tiles()) return;
  struct Case {
    int at, value;
    const char* words;
  };
  constexpr Case kCases[] = {{0, 2, "a palette other than 0 and 1"},
                             {2, 1, "reserved bytes are not zero"},
                             {40, 1, "reserved bytes"},
                             {60, 1, "reserved bytes"},
                             {16, 65, "more than 64 bytes in a row"},
                             {17, 1, "more than 64 bytes in a row"},
                             {48, 17, "more than 16 rows"},
                             {16, 0, "rows without bytes"},
                             {53, 3, "rows without bytes"}};
  for (const Case& one : kCases) {
    Ended ended = in_child([&] {
      Config config = {1};
      config[16] = 64;
      config[48] = 16;
      config[one.at] = static_cast<uint8_t>(one.value);
      ask_for_tiles();
      load_config(config);
    });
    CAPTURE(one.at);
    CHECK(killed_by(ended, SIGABRT));
    CHECK(says(ended, one.words));
  }
}

/// A configuration of three tiles of 16 rows; `bytes`: of a row of the second.
void configure(int bytes) {
  Config config = {1};
  for (int t = 0; t < 3; ++t) {
    config[16 + 2 * t] = 64;
    config[48 + t] = 16;
  }
  config[18] = static_cast<uint8_t>(bytes);
  ask_for_tiles();
  load_config(config);
}

MT_TILES void product_of_one() {
  asm volatile(".byte 0xc4,0xe2,0x72,0x5c,0xc1");
}  // tdpbf16ps %tmm1, %tmm1, %tmm0
MT_TILES void product() { asm volatile("tdpbf16ps %tmm2, %tmm1, %tmm0"); }
MT_TILES void zero_empty() { asm volatile("tilezero %tmm5"); }
MT_TILES void load_one() {
  uint8_t memory[1024] = {};
  asm volatile("tileloadd (%0,%1,1), %%tmm1" ::"r"(memory), "r"(int64_t{64}) : "memory");
}

TEST_CASE("tile instructions that hardware refuses are refused") {
  if (!usable() || has_tiles()) return;
  struct Case {
    int bytes;
    void (*use)();
    const char* words;
  };
  for (const Case& one : {Case{64, product_of_one, "one tile twice in a product"},
                          {32, product, "src2 has not one row for each"},
                          {64, zero_empty, "leaves empty"},
                          {30, load_one, "not a multiple of 4"}}) {
    Ended ended = in_child([&] {
      configure(one.bytes);
      one.use();
    });
    CAPTURE(one.words);
    CHECK(killed_by(ended, SIGILL));
    CHECK(says(ended, one.words));
  }
  Ended ended = in_child([] {
    configure(64);
    asm volatile(".byte 0xc4,0xe2,0x78,0x49,0xc0");  // tilerelease
    product();
  });
  CHECK(killed_by(ended, SIGILL));
  CHECK(says(ended, "a tile before LDTILECFG"));
}

// Run by the next test in a process that has not asked.
TEST_CASE("uses a tile unasked" * doctest::skip()) {
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  sigaction(SIGILL, &plain, nullptr);
  Config config = {1};
  load_config(config);
}

TEST_CASE("tiles must be asked for") {
  if (!usable() || has_tiles()) return;
  Ended ended = in_child([] {
    execl("/proc/self/exe", "test_emulation", "--no-skip", "-tc=uses a tile unasked", nullptr);
  });
  CHECK(killed_by(ended, SIGILL));
  CHECK(says(ended, "tiles without arch_prctl"));
}

}  // namespace
}  // namespace mtrain::emulation
