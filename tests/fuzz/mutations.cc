// Seeds, changed at random, through every entry: bytes flipped, pieces left out, doubled, moved from one seed to another, words put
// in that mean something somewhere.
//   fuzz_mutations [ROUNDS=200 [SEED=1 [ENTRY]]]     ROUNDS for each entry; the same numbers give the same inputs
// An input that ends the program lies in fuzz-input-ENTRY in the working folder.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fuzz/entries.h"

namespace fs = std::filesystem;
using namespace mtrain::fuzz;

namespace {

constexpr size_t kLongest = 1u << 14;
constexpr std::string_view kWords[] = {
    "${", "}", "${=", "${oc.env:HOME}", "${oc.select:a,b}", "${.a}", "${file_text:/etc/passwd}", "{{", "}}", "{%", "%}", "{%- ", " -%}", "{#", "#}", "[", "]",
    "{", "(", ")", ",", ":", ": ", "- ", "\n", "\n  ", "\t", "\"", "'", "\\", "*a", "&a ", "!!str ", "<<: ", "|", ">", "---\n", "???", "null", "~", "~a",
    "++a=", "+a=", "a=", "append(", "range(", "choice(", "=", "@", "/", "4611686018427387904", "9223372036854775807", "-9223372036854775808",
    "18446744073709551616", "1e400", "-1e400", "1e-400", "nan", ".nan", ".inf", "0", "-0", "-1", "0x", "1_000", "2147483648", "\xE2\x80\xAE", "\xEF\xBB\xBF",
    "\xFF", "\xC0\x80", "\xED\xA0\x80", "\x1b[2J", "..", "../", "namespace(", ".replace('', ", " * 1000000000", "|tojson", " in ", " == ", "for i in range(",
    "macro ", "caller()", "raise_exception(", "loop.", "[::-1]", "data_offsets", "weight_map", "\"shape\":[9223372036854775807]", "defaults: ", "patch: ",
    "model.layers=", "dist.layout: ", "true", "false", "None", "_self_", "optional "};

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string make(const std::vector<std::string>& seeds) {
    std::string text = seeds[below(seeds.size())];
    for (size_t left = 1 + below(6); left > 0; --left) change(text, seeds[below(seeds.size())]);
    if (text.size() > kLongest) text.resize(kLongest);
    return text;
  }

 private:
  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void change(std::string& text, const std::string& other) {
    const size_t at = below(text.size() + 1), length = std::min(below(40), text.size() - at);
    switch (below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, text.substr(at, length)); break;
      case 3: {
        const std::string piece = text.substr(at, length);
        for (size_t times = below(60); times > 0 && text.size() < kLongest; --times) text.insert(at, piece);
        break;
      }
      case 4: {
        const size_t from = below(other.size() + 1);
        text.replace(at, length, other.substr(from, below(60)));
        break;
      }
      default: text.replace(at, below(2) * length, kWords[below(std::size(kWords))]);
    }
  }

  std::mt19937_64 random_;
};

std::vector<std::string> seeds_of(const char* name) {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(fs::path(MT_SOURCE_DIR) / "tests/fuzz/seeds" / name)) files.push_back(file.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> out;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    out.push_back(text.str());
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200, seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const std::string_view only = argc > 3 ? argv[3] : "";
  std::vector<Entry> entries(std::begin(kEntries), std::end(kEntries));
  entries.insert(entries.end(), std::begin(kWholeEntries), std::end(kWholeEntries));
  for (const Entry& entry : entries) {
    if (!only.empty() && only != entry.name) continue;
    const std::vector<std::string> seeds = seeds_of(entry.name);
    if (seeds.empty()) return std::fprintf(stderr, "%s has no seeds\n", entry.name), 1;
    const std::string kept = std::string("fuzz-input-") + entry.name;
    Mutator mutator(seed);
    for (uint64_t round = 0; round < rounds; ++round) {
      const std::string text = mutator.make(seeds);
      std::ofstream(kept, std::ios::binary) << text;
      try {
        entry.run(text);
      } catch (const std::exception& error) {
        return std::fprintf(stderr, "%s, round %lu: %s threw: %s\n", kept.c_str(), static_cast<unsigned long>(round), entry.name, error.what()), 1;
      }
    }
    fs::remove(kept);
    std::printf("%s: %lu inputs of %zu seeds\n", entry.name, static_cast<unsigned long>(rounds), seeds.size());
  }
  return 0;
}
