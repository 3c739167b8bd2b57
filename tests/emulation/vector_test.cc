#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "reference.h"
#include "vector_forms.h"

namespace mtrain::emulation {
namespace {

constexpr size_t kMiddle = 32 * 1024, kMemory = 2 * kMiddle;

/// Memory in the lowest 4 GiB (for 32-bit addresses), with an unmapped page after it.
class LowMemory {
 public:
  LowMemory() {
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_ = kMemory + page;
    void* at = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT,
                    -1, 0);
    REQUIRE(at != MAP_FAILED);
    start_ = static_cast<uint8_t*>(at);
    REQUIRE(mprotect(start_ + kMemory, page, PROT_NONE) == 0);
  }
  ~LowMemory() { munmap(start_, size_); }
  LowMemory(const LowMemory&) = delete;
  LowMemory& operator=(const LowMemory&) = delete;
  uint8_t* middle() const { return start_ + kMiddle; }
  uint8_t* end() const { return start_ + kMemory; }

 private:
  size_t size_ = 0;
  uint8_t* start_ = nullptr;
};

bool has_avx512() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

/// One operand of an instruction in AT&T syntax.
struct Operand {
  bool memory = false, zeroing = false, broadcast = false;
  int number = 0, bytes = 64, mask = 0;
  std::string address;
};

Operand parse_operand(const std::string& text) {
  Operand out;
  out.memory = text.find('(') != std::string::npos;
  out.address = text;
  out.broadcast = text.find("{1to") != std::string::npos;
  out.zeroing = text.find("{z}") != std::string::npos;
  if (auto at = text.find("{%k"); at != std::string::npos) out.mask = text[at + 3] - '0';
  if (!out.memory) {
    out.bytes = text[1] == 'z' ? 64 : text[1] == 'y' ? 32 : 16;
    out.number = std::stoi(text.substr(4));
  }
  return out;
}

/// "name a, b(c,d,8), e{%k1}" to its name and operands.
std::vector<std::string> split(const std::string& text) {
  size_t space = text.find(' ');
  std::vector<std::string> out{text.substr(0, space)};
  std::string one;
  int depth = 0;
  for (char c : text.substr(space + 1)) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 0) {
      out.push_back(one);
      one.clear();
    } else if (c != ' ') {
      one += c;
    }
  }
  out.push_back(one);
  return out;
}

/// Where the operand's bytes are, when the form was given `memory`.
uint8_t* resolve(const std::string& text, uint8_t* memory) {
  if (text.find("(%rip)") != std::string::npos)
    return reinterpret_cast<uint8_t*>(emulation_near_code);
  size_t open = text.find('(');
  std::string inside = text.substr(open + 1, text.find(')') - open - 1);
  size_t colon = text.find(':');
  std::string displacement =
      text.substr(colon < open ? colon + 1 : 0, open - (colon < open ? colon + 1 : 0));
  uint8_t* at = memory + (displacement.empty() ? 0 : std::stoll(displacement));
  if (inside.substr(0, 4) == "%r11") at += 128;
  size_t comma = inside.find(',');
  if (comma == std::string::npos) return at;
  std::string index = inside.substr(comma + 1, inside.find(',', comma + 1) - comma - 1);
  int64_t scale = std::stoll(inside.substr(inside.find(',', comma + 1) + 1));
  static const std::map<std::string, int64_t> kIndices{
      {"%rcx", kRcx}, {"%rdx", kRdx}, {"%r9", kR9}, {"%r14", kR14}, {"%r14d", kR14}};
  return at + kIndices.at(index) * scale;
}

/// Length of the source that VCVTNEPS2BF16 converts: twice the destination's, but 128 bits make 64.
int source_bytes(const std::string& name, const Operand& from, const Operand& to) {
  if (!from.memory) return from.bytes;
  if (from.broadcast) return 4 * std::stoi(from.address.substr(from.address.find("{1to") + 4));
  return name.back() == 'x' ? 16 : 2 * to.bytes;
}

/// The destination as the manual defines it.
void expect(const VectorForm& form, const Machine& in, uint8_t* memory, Machine& out) {
  std::vector<std::string> parts = split(form.text);
  Operand last = parse_operand(parts[1]);
  Operand to = parse_operand(parts.back());
  bool dot = parts[0] == "vdpbf16ps";
  bool two = parts[0] == "vcvtne2ps2bf16";
  int lanes = (dot || two ? to.bytes : source_bytes(parts[0], last, to)) / 4;
  uint32_t source[16] = {};
  if (!last.memory) std::memcpy(source, in.zmm[last.number], 64);
  uint64_t mask = to.mask == 0 ? ~uint64_t{0} : in.opmask[to.mask];
  if (last.memory)
    for (int i = 0; i < lanes; ++i)
      if (two || (mask >> i & 1))
        std::memcpy(&source[i], resolve(last.address, memory) + (last.broadcast ? 0 : 4 * i), 4);
  const uint32_t* first = dot || two ? in.zmm[parse_operand(parts[2]).number] : nullptr;
  const uint32_t* old = in.zmm[to.number];
  uint32_t result[16] = {};
  if (dot) {
    for (int i = 0; i < lanes; ++i)
      result[i] = mask >> i & 1 ? reference::dot_pair(old[i], first[i], source[i])
                  : to.zeroing  ? 0
                                : old[i];
  } else {
    uint16_t halves[32] = {};
    for (int i = 0; i < (two ? 2 * lanes : lanes); ++i) {
      uint16_t before = static_cast<uint16_t>(old[i / 2] >> (16 * (i % 2)));
      uint32_t x = i < lanes ? source[i] : first[i - lanes];
      halves[i] = mask >> i & 1 ? reference::to_bf16(x) : to.zeroing ? 0 : before;
    }
    std::memcpy(result, halves, sizeof(result));
  }
  std::memcpy(out.zmm[to.number], result, sizeof(result));
}

void fill(Machine& machine, reference::Bits& bits) {
  for (auto& one : machine.zmm)
    for (uint32_t& lane : one) lane = bits.word();
  for (uint64_t& mask : machine.opmask) mask = bits.any();
}

void fill(uint8_t* memory, size_t bytes, reference::Bits& bits) {
  for (size_t i = 0; i + 4 <= bytes; i += 4) {
    uint32_t word = bits.word();
    std::memcpy(memory + i, &word, 4);
  }
}

/// Registers that no form writes.
void check_general(const Machine& out, uint8_t* memory) {
  auto at = reinterpret_cast<uint64_t>(memory);
  for (int r : {0, 3, 5, 12, 13, 15}) CHECK(out.general[r] == at);
  CHECK(out.general[8] == at + (uint64_t{1} << 32));
  CHECK(static_cast<int64_t>(out.general[1]) == kRcx);
  CHECK(static_cast<int64_t>(out.general[2]) == kRdx);
  CHECK(static_cast<int64_t>(out.general[9]) == kR9);
  CHECK(out.general[11] == at + 128);
  CHECK(static_cast<int64_t>(out.general[14]) == kR14);
  constexpr uint64_t kCarry = 1, kZero = 64;  // after cmp $1, %ecx; stc
  CHECK((out.flags & (kCarry | kZero)) == kCarry);
}

/// Runs one form; the number of registers that differ from what is expected.
int differences(const VectorForm& form, const Machine& in, uint8_t* memory) {
  Machine want = in;
  expect(form, in, memory, want);
  auto got = std::make_unique<Machine>();
  form.run(&in, got.get(), memory);
  int count = 0;
  for (int r = 0; r < 32; ++r)
    for (int i = 0; i < 16; ++i)
      if (got->zmm[r][i] != want.zmm[r][i]) {
        ++count;
        MESSAGE(form.text, ": zmm", r, "[", i, "] is ", got->zmm[r][i], ", expected ",
                want.zmm[r][i]);
        break;
      }
  for (int k = 0; k < 8; ++k) count += got->opmask[k] != want.opmask[k];
  check_general(*got, memory);
  return count;
}

TEST_CASE(
    "every form of the vector instructions computes what the manual says, and leaves all else as "
    "it was") {
  if (!has_avx512()) {
    MESSAGE("not run: this CPU has no AVX-512");
    return;
  }
  LowMemory low;
  reference::Bits bits(1);
  auto in = std::make_unique<Machine>();
  int forms = 0;
  for (const VectorForm* form = __start_mt_forms; form != __stop_mt_forms; ++form, ++forms) {
    INFO(form->text);
    for (int round = 0; round < 60; ++round) {
      fill(*in, bits);
      if (round % 20 == 0) fill(low.middle() - kMiddle, kMemory, bits);
      fill(reinterpret_cast<uint8_t*>(emulation_near_code), sizeof(emulation_near_code), bits);
      REQUIRE(differences(*form, *in, low.middle()) == 0);
    }
  }
  CHECK(forms == 27 * 6 + 12 * 3);
}

TEST_CASE("lanes that the mask leaves out are not read from memory") {
  if (!has_avx512()) return;
  LowMemory low;
  reference::Bits bits(2);
  auto in = std::make_unique<Machine>();
  int forms = 0;
  for (const VectorForm* form = __start_mt_forms; form != __stop_mt_forms; ++form) {
    std::string text = form->text;
    bool chosen = text == "vdpbf16ps (%rbp), %zmm21, %zmm30{%k3}{z}" ||
                  text == "vdpbf16ps (%r12), %ymm20, %ymm1{%k2}" ||
                  text == "vcvtneps2bf16x -2032(%rbp), %xmm2{%k4}{z}";
    if (!chosen) continue;
    ++forms;
    for (int round = 0; round < 20; ++round) {
      fill(*in, bits);
      for (uint64_t& mask : in->opmask) mask &= ~uint64_t{0xfffe};
      fill(low.end() - 64, 64, bits);
      uint8_t* memory = low.end() - 4;
      if (text.find("-2032") != std::string::npos) memory += 2032;
      REQUIRE(differences(*form, *in, memory) == 0);
    }
  }
  CHECK(forms == 3);
}

TEST_CASE("the conversion of two sources reads its memory whole") {
  if (!has_avx512()) return;
  LowMemory low;
  int forms = 0;
  for (const VectorForm* form = __start_mt_forms; form != __stop_mt_forms; ++form) {
    if (std::string(form->text) != "vcvtne2ps2bf16 (%rbp), %zmm21, %zmm30{%k3}{z}") continue;
    ++forms;
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL);  // doctest's own prints a report
      Machine in{}, out;
      in.opmask[3] = 1;
      form->run(&in, &out, low.end() - 4);
      _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGSEGV);
  }
  CHECK(forms == 1);
}

/// Numbers whose sums and differences carry, overflow and vanish.
uint64_t number(reference::Bits& bits) {
  constexpr uint64_t kEdges[] = {
      0, 1, ~uint64_t{0}, uint64_t{1} << 63, (uint64_t{1} << 63) - 1, 128, 15, 0x7fffffff, 1000000};
  uint64_t any = bits.any();
  return any % 3 == 0 ? any : kEdges[any / 3 % std::size(kEdges)];
}

TEST_CASE("instructions that run along do what the CPU does") {
  if (!has_avx512()) return;
  LowMemory low;
  reference::Bits bits(3);
  auto in = std::make_unique<Machine>(), native = std::make_unique<Machine>(),
       emulated = std::make_unique<Machine>();
  fill(low.middle() - kMiddle, kMemory, bits);
  int forms = 0;
  for (const NeighbourForm* form = __start_mt_neighbours; form != __stop_mt_neighbours;
       ++form, ++forms)
    for (int round = 0; round < 100; ++round) {
      fill(*in, bits);
      for (size_t i = 0; i < 128; i += 8) {
        uint64_t value = number(bits);
        std::memcpy(low.middle() + i, &value, 8);
      }
      form->native(in.get(), native.get(), low.middle());
      form->emulated(in.get(), emulated.get(), low.middle());
      std::memcpy(native->zmm[31], emulated->zmm[31], 64);
      native->general[6] = emulated->general[6];  // RSI is where the results are written
      CAPTURE(std::string(form->text));
      REQUIRE(std::memcmp(native.get(), emulated.get(), sizeof(Machine)) == 0);
    }
  CHECK(forms == 15 + 3 * 7 + 2 * 16);
}

TEST_CASE("several threads at once") {
  if (!has_avx512()) return;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, -1);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, &wrong] {
      reference::Bits bits(static_cast<uint32_t>(100 + t));
      Machine in, out;
      int count = 0;
      for (int round = 0; round < 10; ++round)
        for (const VectorForm* form = __start_mt_forms; form != __stop_mt_forms; ++form) {
          std::string text = form->text;
          if (text.find('(') != std::string::npos) continue;
          fill(in, bits);
          Machine want = in;
          expect(*form, in, nullptr, want);
          form->run(&in, &out, nullptr);
          count += std::memcmp(out.zmm, want.zmm, sizeof(out.zmm)) != 0;
        }
      wrong[static_cast<size_t>(t)] = count;
    });
  for (std::thread& thread : threads) thread.join();
  for (int count : wrong) CHECK(count == 0);
}

}  // namespace
}  // namespace mtrain::emulation
