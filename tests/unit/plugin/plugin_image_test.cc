#include "mtrain/plugin/plugin_image.h"

#include <doctest/doctest.h>
#include <elf.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "mtrain/base/error.h"
#include "mtrain/base/rng.h"
#include "mtrain/base/text.h"

using namespace mtrain;

namespace {

/// The smallest file that passes: one segment, and the sections null, stamp, build id, names.
struct ElfSample {
  Elf64_Ehdr header{};
  Elf64_Phdr segment{};
  Elf64_Shdr sections[4]{};
  PluginStamp stamp = make_stamp("wheel", "rolls");
  struct {
    Elf64_Nhdr head{4, 20, NT_GNU_BUILD_ID};
    char name[4] = {'G', 'N', 'U', 0};
    unsigned char id[20] = {0xAB, 0xCD, 0xEF};
  } note;
  char names[40] = "\0.mtrain.plugin\0.note.gnu.build-id\0";
  char tail = 0;
};

uint64_t place(const ElfSample& sample, const void* part) {
  return static_cast<uint64_t>(static_cast<const char*>(part) -
                               reinterpret_cast<const char*>(&sample));
}

ElfSample good_sample() {
  ElfSample s;
  std::memcpy(s.header.e_ident, ELFMAG, SELFMAG);
  s.header.e_ident[EI_CLASS] = ELFCLASS64;
  s.header.e_ident[EI_DATA] = ELFDATA2LSB;
  s.header.e_type = ET_DYN;
#if defined(__aarch64__)
  s.header.e_machine = EM_AARCH64;
#else
  s.header.e_machine = EM_X86_64;
#endif
  s.header.e_phoff = place(s, &s.segment);
  s.header.e_phentsize = sizeof s.segment;
  s.header.e_phnum = 1;
  s.header.e_shoff = place(s, &s.sections);
  s.header.e_shentsize = sizeof s.sections[0];
  s.header.e_shnum = 4;
  s.header.e_shstrndx = 3;
  s.segment.p_type = PT_LOAD;
  s.segment.p_filesz = sizeof s;
  auto section = [&](int i, uint32_t name, uint32_t type, const void* at, uint64_t bytes) {
    s.sections[i].sh_name = name;
    s.sections[i].sh_type = type;
    s.sections[i].sh_offset = place(s, at);
    s.sections[i].sh_size = bytes;
  };
  section(1, 1, SHT_PROGBITS, &s.stamp, sizeof s.stamp);
  section(2, 16, SHT_NOTE, &s.note, sizeof s.note);
  section(3, 0, SHT_STRTAB, &s.names, sizeof s.names);
  return s;
}

std::string bytes_of(const ElfSample& sample) {
  std::string out(sizeof sample, '\0');
  std::memcpy(out.data(), &sample, sizeof sample);
  return out;
}

class Scratch {
 public:
  Scratch() : path_(fs::temp_directory_path() / cat("mtrain_image_", ::getpid(), ".so")) {}
  ~Scratch() { fs::remove(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& holding(const std::string& content) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
    return path_;
  }

 private:
  fs::path path_;
};

/// The message of the refusal; "" when the file was accepted. Anything else than Error(plugin)
/// fails the test.
std::string refusal(const fs::path& path) {
  try {
    read_plugin_image(path);
    return {};
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::plugin);
    CHECK(error.message().find('\n') == std::string::npos);
    CHECK(error.message().starts_with(path.string()));
    return error.message();
  }
}

}  // namespace

TEST_CASE("a sound file gives its stamp and identity") {
  Scratch scratch;
  PluginImage image = read_plugin_image(scratch.holding(bytes_of(good_sample())));
  CHECK(image.name == "wheel");
  CHECK(image.doc == "rolls");
  CHECK(image.version == MT_VERSION);
  CHECK(image.identity == "build-id:abcdef" + std::string(34, '0'));
  CHECK(stamp_mismatch(image.stamp).empty());
}

TEST_CASE("without a build id the content is the identity") {
  Scratch scratch;
  ElfSample sample = good_sample();
  sample.sections[2].sh_name = 0;
  PluginImage one = read_plugin_image(scratch.holding(bytes_of(sample)));
  CHECK(one.identity.starts_with("sha256:"));
  CHECK(one.identity.size() == 7 + 64);
  sample.tail = 1;
  CHECK(read_plugin_image(scratch.holding(bytes_of(sample))).identity != one.identity);
}

TEST_CASE("damaged files are refused with their reason") {
  struct Case {
    const char* expected;
    std::function<void(ElfSample&)> damage;
  };
  constexpr uint64_t kHuge = ~uint64_t{0};
  const Case cases[] = {
      {"not an ELF file", [](ElfSample& s) { s.header.e_ident[0] = 'M'; }},
      {"not a 64-bit library", [](ElfSample& s) { s.header.e_ident[EI_CLASS] = ELFCLASS32; }},
      {"other byte order", [](ElfSample& s) { s.header.e_ident[EI_DATA] = ELFDATA2MSB; }},
      {"another processor", [](ElfSample& s) { s.header.e_machine = EM_S390; }},
      {"no shared library", [](ElfSample& s) { s.header.e_type = ET_REL; }},
      {"section table", [](ElfSample& s) { s.header.e_shnum = 0; }},
      {"section table", [](ElfSample& s) { s.header.e_shnum = 5000; }},
      {"section table", [](ElfSample& s) { s.header.e_shentsize = 32; }},
      {"section table would lie", [](ElfSample& s) { s.header.e_shoff = sizeof(ElfSample) - 10; }},
      {"section table would lie", [](ElfSample& s) { s.header.e_shoff = kHuge - 8; }},
      {"segment table would lie", [](ElfSample& s) { s.header.e_phoff = kHuge - 8; }},
      {"segments", [](ElfSample& s) { s.header.e_phnum = 0; }},
      {"segments", [](ElfSample& s) { s.header.e_phnum = 65535; }},
      {"segment would lie", [](ElfSample& s) { s.segment.p_filesz = sizeof(ElfSample) + 1; }},
      {"segment would lie", [](ElfSample& s) { s.segment.p_offset = kHuge; }},
      {"section names", [](ElfSample& s) { s.header.e_shstrndx = 4; }},
      {"section names claims", [](ElfSample& s) { s.sections[3].sh_size = kHuge; }},
      {"section names would lie", [](ElfSample& s) { s.sections[3].sh_offset = kHuge - 4; }},
      {"carries no stamp", [](ElfSample& s) { s.sections[1].sh_name = kHuge & 0xFFFFFFFF; }},
      {"carries no stamp", [](ElfSample& s) { s.names[2] = 'M'; }},
      {"plugin stamp has 8 bytes", [](ElfSample& s) { s.sections[1].sh_size = 8; }},
      {"plugin stamp has 100 bytes", [](ElfSample& s) { s.sections[1].sh_size = 100; }},
      {"plugin stamp has", [](ElfSample& s) { s.sections[1].sh_type = SHT_NOBITS; }},
      {"plugin stamp would lie", [](ElfSample& s) { s.sections[1].sh_offset = kHuge - 100; }},
      {"right mark", [](ElfSample& s) { s.stamp.magic[7] = 'X'; }},
  };
  Scratch scratch;
  for (const auto& test : cases) {
    ElfSample sample = good_sample();
    test.damage(sample);
    std::string message = refusal(scratch.holding(bytes_of(sample)));
    INFO(test.expected << " | " << message);
    CHECK(message.find(test.expected) != std::string::npos);
  }
}

TEST_CASE("a plugin for another processor is refused by both names") {
  const std::pair<int, std::string> kinds[] = {
      {EM_X86_64, "x86-64"}, {EM_AARCH64, "arm64"}, {EM_RISCV, "riscv64"}};
  std::string own;
  for (const auto& [machine, name] : kinds)
    if (good_sample().header.e_machine == machine) own = name;
  REQUIRE(!own.empty());
  Scratch scratch;
  for (const auto& [machine, name] : kinds) {
    ElfSample sample = good_sample();
    sample.header.e_machine = static_cast<Elf64_Half>(machine);
    std::string message = refusal(scratch.holding(bytes_of(sample)));
    INFO(message);
    if (name == own) {
      CHECK(message.empty());
    } else {
      CHECK(message.find("plugin for " + name + ", and this mtrain is for " + own) !=
            std::string::npos);
    }
  }
}

TEST_CASE("files that are none") {
  Scratch scratch;
  CHECK(refusal(scratch.holding("")).find("empty file") != std::string::npos);
  CHECK(refusal(scratch.holding("#!/bin/sh\necho hello\n")).find("not an ELF file") !=
        std::string::npos);
  CHECK(refusal(scratch.holding("\x7f"
                                "ELF"))
            .find("64-bit") != std::string::npos);
  CHECK(refusal("/nowhere/widget_a.so").find("No such file") != std::string::npos);
  CHECK(refusal("/tmp").find("not a regular file") != std::string::npos);
  CHECK(refusal("/dev/zero").find("not a regular file") != std::string::npos);
}

TEST_CASE("every truncation is refused") {
  Scratch scratch;
  std::string whole = bytes_of(good_sample());
  for (size_t size = 0; size < whole.size(); ++size)
    CHECK(!refusal(scratch.holding(whole.substr(0, size))).empty());
}

TEST_CASE("random damage is refused or harmless") {
  Scratch scratch;
  const std::string whole = bytes_of(good_sample());
  uint64_t state = 20240611;
  auto next = [&](uint64_t bound) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % bound;
  };
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = whole;
    for (uint64_t i = 0, count = 1 + next(4); i < count; ++i) {
      size_t at = next(2) ? next(sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + 4 * sizeof(Elf64_Shdr))
                          : next(damaged.size());
      damaged[at] = static_cast<char>(next(3) ? next(256) : next(2) ? 0xFF : 0x7F);
    }
    if (next(8) == 0) damaged.resize(next(damaged.size()));
    refused += !refusal(scratch.holding(damaged)).empty();
  }
  MESSAGE(refused << " of 20000 damaged files refused");
  CHECK(refused > 5000);
}

TEST_CASE("a text without its terminator does not run on") {
  Scratch scratch;
  ElfSample sample = good_sample();
  std::memset(sample.stamp.name, 'a', sizeof sample.stamp.name);
  std::memset(sample.stamp.doc, '\n', sizeof sample.stamp.doc);
  PluginImage image = read_plugin_image(scratch.holding(bytes_of(sample)));
  CHECK(image.name == std::string(64, 'a'));
  CHECK(image.doc.find('\n') == std::string::npos);
}

TEST_CASE("a stamp that differs is named by its part") {
  struct Case {
    const char* expected;
    std::function<void(PluginStamp&)> change;
  };
  const Case cases[] = {
      {"plugin interface number: the plugin's is 9, mtrain's is 1",
       [](PluginStamp& s) { s.abi = 9; }},
      {"stamp size", [](PluginStamp& s) { s.struct_size = 16; }},
      {"pointer size", [](PluginStamp& s) { s.pointer_bytes = 4; }},
      {"sanitizer", [](PluginStamp& s) { s.sanitizers ^= kThreadSanitizer; }},
      {"sanitizer", [](PluginStamp& s) { s.sanitizers ^= 1U << 31; }},
      {"_GLIBCXX_USE_CXX11_ABI", [](PluginStamp& s) { s.cxx11_abi = -1; }},
      {"_GLIBCXX_DEBUG", [](PluginStamp& s) { s.glibcxx_debug ^= 1; }},
      {"__cplusplus", [](PluginStamp& s) { s.cplusplus = 201703; }},
      {"hash of mtrain's headers", [](PluginStamp& s) { s.headers[3] = '!'; }},
  };
  CHECK(stamp_mismatch(host_stamp()).empty());
  for (const auto& test : cases) {
    PluginStamp stamp = host_stamp();
    test.change(stamp);
    INFO(test.expected << " | " << stamp_mismatch(stamp));
    CHECK(stamp_mismatch(stamp).find(test.expected) != std::string::npos);
  }
}

TEST_CASE("names of plugins") {
  for (const char* good : {"a", "llama", "gpt2", "byte_level", "a_1"})
    CHECK(valid_plugin_name(good));
  for (const char* bad :
       {"", "Llama", "2gpt", "_a", "a-b", "a.b", "../a", "a/b", "a b", "\xc3\xa4"})
    CHECK_FALSE(valid_plugin_name(bad));
  CHECK(valid_plugin_name(std::string(63, 'a')));
  CHECK_FALSE(valid_plugin_name(std::string(64, 'a')));
}
