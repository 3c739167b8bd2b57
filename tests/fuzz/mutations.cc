// Changed seeds through an entry of the fuzzers: bytes flipped, pieces left out, doubled or taken
// from another seed, odd numbers and words put in.
//   fuzz_mutations ENTRY COUNT [FIRST]
// Change number n is always the same, so a broken promise is found again with COUNT 1 and FIRST n.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/log.h"
#include "roots.h"
#include "tests/fuzz/entries.h"

namespace {

namespace fs = std::filesystem;
constexpr size_t kMostBytes = 1 << 16;
volatile uint64_t g_number = 0;  // of the change under way, for the handler

/// Numbers that are a function of the change's alone.
class Draws {
 public:
  explicit Draws(uint64_t number) : state_(number) {}
  uint64_t next() {  // splitmix64
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  size_t below(size_t end) { return end == 0 ? 0 : static_cast<size_t>(next() % end); }

 private:
  uint64_t state_;
};

/// Words that mean something to one reader or another.
constexpr std::string_view kWords[] = {"${",
                                       "}",
                                       "${=",
                                       "${oc.env:HOME}",
                                       "${oc.select:a,b}",
                                       "${.a}",
                                       "${file_text:/etc/passwd}",
                                       "{{",
                                       "}}",
                                       "{%",
                                       "%}",
                                       "{%- ",
                                       " -%}",
                                       "{#",
                                       "#}",
                                       "[",
                                       "]",
                                       "{",
                                       "(",
                                       ")",
                                       ",",
                                       ":",
                                       ": ",
                                       "- ",
                                       "\n",
                                       "\n  ",
                                       "\t",
                                       "\"",
                                       "'",
                                       "\\",
                                       "*a",
                                       "&a ",
                                       "!!str ",
                                       "<<: ",
                                       "|",
                                       ">",
                                       "---\n",
                                       "???",
                                       "null",
                                       "~",
                                       "~a",
                                       "++a=",
                                       "+a=",
                                       "a=",
                                       "append(",
                                       "range(",
                                       "choice(",
                                       "=",
                                       "@",
                                       "/",
                                       "4611686018427387904",
                                       "9223372036854775807",
                                       "-9223372036854775808",
                                       "18446744073709551616",
                                       "1e400",
                                       "-1e400",
                                       "1e-400",
                                       "nan",
                                       ".nan",
                                       ".inf",
                                       "0",
                                       "-0",
                                       "-1",
                                       "0x",
                                       "1_000",
                                       "2147483648",
                                       "\xE2\x80\xAE",
                                       "\xEF\xBB\xBF",
                                       "\xFF",
                                       "\xC0\x80",
                                       "\xED\xA0\x80",
                                       "\x1b[2J",
                                       "..",
                                       "../",
                                       "namespace(",
                                       ".replace('', ",
                                       " * 1000000000",
                                       "|tojson",
                                       " in ",
                                       " == ",
                                       "for i in range(",
                                       "macro ",
                                       "caller()",
                                       "raise_exception(",
                                       "loop.",
                                       "[::-1]",
                                       "data_offsets",
                                       "weight_map",
                                       "\"shape\":[9223372036854775807]",
                                       "defaults: ",
                                       "patch: ",
                                       "model.layers=",
                                       "dist.layout: ",
                                       "true",
                                       "false",
                                       "None",
                                       "_self_",
                                       "optional "};

/// Lengths, counts and ranks that readers get wrong.
uint64_t odd_number(Draws& draws) {
  constexpr uint64_t kOdd[] = {0,
                               1,
                               2,
                               3,
                               16,
                               100,
                               127,
                               128,
                               255,
                               256,
                               65535,
                               65536,
                               65537,
                               1u << 20,
                               (1u << 20) + 1,
                               1u << 30,
                               (1u << 30) + 1,
                               0x7FFFFFFF,
                               0x80000000,
                               0xFFFFFFFF,
                               uint64_t{1} << 32,
                               uint64_t{1} << 62,
                               uint64_t{1} << 63,
                               ~uint64_t{0}};
  return kOdd[draws.below(std::size(kOdd))];
}

void change(std::string& text, Draws& draws, const std::vector<std::string>& seeds) {
  size_t at = draws.below(text.size() + 1),
         length = draws.below(std::min<size_t>(text.size() - at, 64) + 1);
  switch (draws.below(10)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << draws.below(8)));
      break;
    case 1:
      if (at < text.size()) text[at] = static_cast<char>(draws.next());
      break;
    case 2: {  // a number of 4 or 8 bytes
      uint64_t number = odd_number(draws);
      size_t size = draws.below(2) == 0 ? 4 : 8;
      if (text.size() >= size)
        std::memcpy(text.data() + draws.below(text.size() - size + 1), &number, size);
      break;
    }
    case 3:
      text.erase(at, length);
      break;
    case 4:
      text.insert(at, text.substr(at, length));
      break;
    case 5:
      for (size_t i = draws.below(16); i > 0; --i)
        text.insert(at, 1, static_cast<char>(draws.next()));
      break;
    case 6: {  // the same piece many times
      const std::string piece = text.substr(at, length);
      for (size_t i = draws.below(60); i > 0 && text.size() < kMostBytes; --i)
        text.insert(at, piece);
      break;
    }
    case 7: {  // the rest of another seed
      const std::string& other = seeds[draws.below(seeds.size())];
      text = text.substr(0, at) + other.substr(draws.below(other.size() + 1));
      break;
    }
    default:
      text.replace(at, draws.below(2) * length, kWords[draws.below(std::size(kWords))]);
  }
  if (text.size() > kMostBytes) text.resize(kMostBytes);
}

std::vector<std::string> read_seeds(const std::string& entry) {
  std::vector<fs::path> files;
  for (const auto& file :
       fs::directory_iterator(mtrain::testing::source_root() / "tests/fuzz/seeds" / entry))
    files.push_back(file.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    seeds.push_back(text.str());
  }
  return seeds;
}

extern "C" void say_which(int signal) {
  char text[64];
  int size = std::snprintf(text, sizeof text, "broken by change %llu\n",
                           static_cast<unsigned long long>(g_number));
  std::fwrite(text, 1, static_cast<size_t>(size), stderr);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

int main(int argc, char** argv) {
  const mtrain::fuzz::Entry* entry = nullptr;
  for (std::span<const mtrain::fuzz::Entry> some :
       {std::span<const mtrain::fuzz::Entry>(mtrain::fuzz::kEntries),
        {mtrain::fuzz::kWholeEntries}})
    for (const auto& one : some)
      if (argc >= 3 && std::string(one.name) == argv[1]) entry = &one;
  if (!entry) {
    std::fprintf(stderr, "usage: %s ENTRY COUNT [FIRST], with an ENTRY of tests/fuzz/seeds\n",
                 argv[0]);
    return 2;
  }
  mtrain::set_log_level(mtrain::LogLevel::off);
  const std::vector<std::string> seeds = read_seeds(entry->name);
  const uint64_t count = std::strtoull(argv[2], nullptr, 10),
                 first = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, say_which);
  for (uint64_t n = first; n < first + count; ++n) {
    g_number = n;
    Draws draws(n);
    std::string text = seeds[draws.below(seeds.size())];
    for (size_t i = 1 + draws.below(4); i > 0; --i) change(text, draws, seeds);
    try {
      entry->run(text);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "thrown: %s\n", error.what());
      std::abort();
    }
  }
  std::printf("%s: %llu changes of %zu seeds from %llu on\n", entry->name,
              static_cast<unsigned long long>(count), seeds.size(),
              static_cast<unsigned long long>(first));
  return 0;
}
