#include "mtrain/plugin/plugin_image.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "mtrain/base/checked.h"
#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

constexpr uint64_t kMaxSections = 4096;
constexpr uint64_t kMaxSegments = 256;
constexpr uint64_t kMaxNameTable = 1 << 20;  // bytes
constexpr uint64_t kMaxNote = 4096;          // bytes

[[noreturn]] void refuse(const fs::path& path, const std::string& reason, const char* hint = "") {
  throw Error(ErrorClass::plugin, cat(path.string(), ": ", reason), hint);
}

constexpr const char* kRebuild = "build or copy the file again";

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#elif defined(__powerpc64__)
constexpr uint16_t kMachine = EM_PPC64;
#elif defined(__riscv)
constexpr uint16_t kMachine = EM_RISCV;
#else
#error "name the ELF machine number of this architecture here"
#endif

std::string architecture(uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "arm64";
    case EM_PPC64:
      return "ppc64";
    case EM_RISCV:
      return "riscv64";
    default:
      return cat("ELF machine ", machine);
  }
}

/// An open file whose reads are bounded by its size when it was opened.
class PluginFile {
 public:
  explicit PluginFile(const fs::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0)
      refuse(path, cat("cannot be opened: ", std::strerror(errno)),
             "check the name and its permissions");
    struct stat info {};
    bool regular = ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode);
    if (regular) size_ = static_cast<uint64_t>(info.st_size);
    if (!regular || size_ == 0) {
      ::close(fd_);
      refuse(path, regular ? "is an empty file" : "is not a regular file", kRebuild);
    }
  }
  ~PluginFile() { ::close(fd_); }
  PluginFile(const PluginFile&) = delete;
  PluginFile& operator=(const PluginFile&) = delete;

  uint64_t size() const { return size_; }
  const fs::path& path() const { return path_; }
  /// True if [offset, offset + bytes) is within the file.
  bool holds(uint64_t offset, uint64_t bytes) const {
    auto end = checked_add(offset, bytes);
    return end && *end <= size_;
  }
  void require(uint64_t offset, uint64_t bytes, const char* what) const {
    if (!holds(offset, bytes))
      refuse(path_,
             cat("is truncated or damaged: its ", what, " would lie at byte ", offset,
                 ", the file has ", size_, " bytes"),
             kRebuild);
  }
  /// Fills `to` from `offset`; refuses the file if it is too short.
  void read(uint64_t offset, std::span<std::byte> to, const char* what) const {
    require(offset, to.size(), what);
    while (!to.empty()) {
      ssize_t got = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0)
        refuse(path_, got < 0 ? cat("cannot be read: ", std::strerror(errno))
                              : "shrank while it was read");
      to = to.subspan(static_cast<size_t>(got));
      offset += static_cast<uint64_t>(got);
    }
  }
  template <class T>
  T read_struct(uint64_t offset, const char* what) const {
    std::array<std::byte, sizeof(T)> bytes;
    read(offset, bytes, what);
    return std::bit_cast<T>(bytes);
  }
  std::vector<std::byte> read_bytes(uint64_t offset, uint64_t bytes, uint64_t limit,
                                    const char* what) const {
    if (bytes > limit)
      refuse(path_, cat("is damaged: its ", what, " claims ", bytes, " bytes"), kRebuild);
    require(offset, bytes, what);  // before the allocation
    std::vector<std::byte> out(bytes);
    read(offset, out, what);
    return out;
  }

 private:
  fs::path path_;
  int fd_;
  uint64_t size_ = 0;
};

Elf64_Ehdr read_header(const PluginFile& file) {
  std::array<unsigned char, EI_NIDENT> ident{};
  file.read(
      0,
      std::as_writable_bytes(std::span(ident).first(std::min<size_t>(ident.size(), file.size()))),
      "ELF header");
  if (std::memcmp(ident.data(), ELFMAG, SELFMAG) != 0)
    refuse(file.path(), "is not a shared library (not an ELF file)", kRebuild);
  if (ident[EI_CLASS] != ELFCLASS64)
    refuse(file.path(), "is not a 64-bit library", "build it for this machine");
  if (ident[EI_DATA] != (std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB))
    refuse(file.path(), "is a library of the other byte order", "build it for this machine");
  auto header = file.read_struct<Elf64_Ehdr>(0, "ELF header");
  if (header.e_machine != kMachine)
    refuse(file.path(),
           cat("is built for another processor: this is a plugin for ",
               architecture(header.e_machine), ", and this mtrain is for ", architecture(kMachine)),
           cat("build it for ", architecture(kMachine), ", or take the file that was built for it")
               .c_str());
  if (header.e_type != ET_DYN)
    refuse(file.path(), "is an ELF file but no shared library",
           "link it as a shared module (mtrain_add_plugin does)");
  return header;
}

std::vector<Elf64_Shdr> read_sections(const PluginFile& file, const Elf64_Ehdr& header) {
  if (header.e_shnum == 0 || header.e_shnum > kMaxSections ||
      header.e_shentsize != sizeof(Elf64_Shdr))
    refuse(file.path(),
           cat("is damaged or stripped of its section table (", header.e_shnum, " sections of ",
               header.e_shentsize, " bytes)"),
           kRebuild);
  std::vector<std::byte> raw = file.read_bytes(header.e_shoff, header.e_shnum * sizeof(Elf64_Shdr),
                                               kMaxSections * sizeof(Elf64_Shdr), "section table");
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), raw.data(), raw.size());
  return sections;
}

// The loader maps what the program headers describe: a truncated file would end in SIGBUS at the
// first access.
std::vector<Elf64_Phdr> read_segments(const PluginFile& file, const Elf64_Ehdr& header) {
  if (header.e_phnum == 0 || header.e_phnum > kMaxSegments ||
      header.e_phentsize != sizeof(Elf64_Phdr))
    refuse(file.path(),
           cat("is damaged: it claims ", header.e_phnum, " segments of ", header.e_phentsize,
               " bytes"),
           kRebuild);
  std::vector<std::byte> raw = file.read_bytes(header.e_phoff, header.e_phnum * sizeof(Elf64_Phdr),
                                               kMaxSegments * sizeof(Elf64_Phdr), "segment table");
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  std::memcpy(segments.data(), raw.data(), raw.size());
  for (const Elf64_Phdr& segment : segments)
    if (segment.p_type != PT_NULL) file.require(segment.p_offset, segment.p_filesz, "segment");
  return segments;
}

std::string_view name_at(std::span<const std::byte> names, uint32_t offset) {
  if (offset >= names.size()) return {};
  const char* begin = reinterpret_cast<const char*>(names.data()) + offset;
  return {begin, strnlen(begin, names.size() - offset)};
}

/// The hex digits of a GNU build-id note; nothing if the section has none.
std::optional<std::string> build_id(const PluginFile& file, const Elf64_Shdr& section) {
  if (section.sh_size > kMaxNote || section.sh_size < sizeof(Elf64_Nhdr) + 4) return std::nullopt;
  std::vector<std::byte> raw =
      file.read_bytes(section.sh_offset, section.sh_size, kMaxNote, "build id");
  Elf64_Nhdr note;
  std::memcpy(&note, raw.data(), sizeof note);
  constexpr size_t kText = sizeof(Elf64_Nhdr), kId = kText + 4;
  if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 ||
      std::memcmp(raw.data() + kText, "GNU", 4) != 0)
    return std::nullopt;
  if (note.n_descsz < 8 || note.n_descsz > raw.size() - kId) return std::nullopt;
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out;
  for (std::byte b : std::span(raw).subspan(kId, note.n_descsz)) {
    out += kDigits[std::to_integer<unsigned>(b) >> 4];
    out += kDigits[std::to_integer<unsigned>(b) & 15];
  }
  return out;
}

void hash_range(const PluginFile& file, uint64_t offset, uint64_t bytes, Sha256& hash) {
  file.require(offset, bytes, "content");
  std::vector<std::byte> buffer(std::min<uint64_t>(bytes, 1 << 20));
  for (uint64_t done = 0; done < bytes; done += buffer.size()) {
    auto part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), bytes - done));
    file.read(offset + done, part, "content");
    hash.update(part);
  }
}

std::string content_hash(const PluginFile& file) {
  Sha256 hash;
  hash_range(file, 0, file.size(), hash);
  return hash.hex();
}

/// The sections of a file and their names, as far as they can be read.
struct SectionTable {
  std::vector<Elf64_Shdr> sections;
  std::vector<std::byte> names;
  std::string_view name(const Elf64_Shdr& section) const { return name_at(names, section.sh_name); }
};

SectionTable section_table(const PluginFile& file, const Elf64_Ehdr& header) {
  SectionTable out{read_sections(file, header), {}};
  if (header.e_shstrndx >= out.sections.size())
    refuse(file.path(), "is damaged: it has no table of section names", kRebuild);
  const Elf64_Shdr& table = out.sections[header.e_shstrndx];
  out.names = file.read_bytes(table.sh_offset, table.sh_size, kMaxNameTable, "section names");
  return out;
}

PluginStamp read_stamp(const PluginFile& file, const Elf64_Shdr& section) {
  // The first 16 bytes have the same meaning in every version; the rest of another version is
  // ignored.
  constexpr uint64_t kFixed = 16;
  if (section.sh_type == SHT_NOBITS || section.sh_size < kFixed)
    refuse(file.path(), cat("is damaged: its plugin stamp has ", section.sh_size, " bytes"),
           kRebuild);
  PluginStamp stamp{};
  auto bytes = std::as_writable_bytes(std::span(&stamp, 1));
  file.read(section.sh_offset, bytes.first(kFixed), "plugin stamp");
  if (std::string_view(stamp.magic, sizeof stamp.magic) != kStampMagic)
    refuse(file.path(), "is damaged: its plugin stamp does not begin with the right mark",
           kRebuild);
  if (stamp.abi == kPluginAbi && stamp.struct_size == sizeof stamp &&
      section.sh_size >= sizeof stamp)
    file.read(section.sh_offset, bytes, "plugin stamp");
  else if (stamp.abi == kPluginAbi && stamp.struct_size == sizeof stamp)
    refuse(file.path(), cat("is damaged: its plugin stamp has ", section.sh_size, " bytes"),
           kRebuild);
  return stamp;
}

}  // namespace

PluginImage read_plugin_image(const fs::path& path) {
  PluginFile file(path);
  Elf64_Ehdr header = read_header(file);
  read_segments(file, header);
  const SectionTable table = section_table(file, header);
  const Elf64_Shdr* stamp_section = nullptr;
  std::optional<std::string> id;
  for (const Elf64_Shdr& section : table.sections) {
    std::string_view name = table.name(section);
    if (name == kStampSection) stamp_section = &section;
    if (name == ".note.gnu.build-id") id = build_id(file, section);
  }
  if (!stamp_section)
    refuse(path, "is a shared library but no mtrain plugin (it carries no stamp)",
           "define the plugin with MT_PLUGIN of mtrain/plugin/plugin.h, and do not strip its "
           "sections");
  PluginImage image;
  image.stamp = read_stamp(file, *stamp_section);
  image.name = stamp_text(image.stamp.name);
  image.doc = stamp_text(image.stamp.doc);
  image.version = stamp_text(image.stamp.version);
  image.identity = id ? cat("build-id:", *id) : cat("sha256:", content_hash(file));
  return image;
}

std::string plugin_content_hash(const fs::path& path) {
  PluginFile file(path);
  const Elf64_Ehdr header = read_header(file);
  const SectionTable table = section_table(file, header);
  Sha256 hash;
  auto add = [&hash](const std::string& text) { hash.update(std::as_bytes(std::span(text))); };
  for (const Elf64_Phdr& segment : read_segments(file, header))
    add(cat(segment.p_type, ' ', segment.p_flags, ' ', segment.p_vaddr, ' ', segment.p_memsz,
            '\n'));
  for (const Elf64_Shdr& section : table.sections) {
    std::string_view name = table.name(section);
    const bool search_path = name == ".dynamic" || name == ".dynstr";
    if (!(section.sh_flags & SHF_ALLOC) || section.sh_type == SHT_NOBITS || search_path) continue;
    add(cat(name, ' ', section.sh_addr, ' ', section.sh_size, '\n'));
    hash_range(file, section.sh_offset, section.sh_size, hash);
  }
  return cat("sha256:", hash.hex());
}

}  // namespace mtrain
