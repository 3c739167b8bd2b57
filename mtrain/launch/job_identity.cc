#include "mtrain/launch/job_identity.h"

#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "mtrain/base/hash.h"
#include "mtrain/config/diff.h"
#include "mtrain/config/yaml_load.h"

namespace mtrain {
namespace {

constexpr size_t kRecordBytes = 2048, kMostShown = 5;
constexpr std::string_view kCoreLibrary = "libmtrain_core.so";

/// The build id in the notes of a loaded object; empty if it has none.
std::string build_id(const dl_phdr_info& info) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info.dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(info.dlpi_addr + part.p_vaddr);
    const auto* end = at + part.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const auto* name = at + sizeof note;
      const auto* content = name + (note.n_namesz + 3) / 4 * 4;
      if (content + note.n_descsz > end) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          std::memcmp(name, "GNU", 4) == 0) {
        std::string hex;
        for (size_t b = 0; b < note.n_descsz; ++b)
          hex += cat("0123456789abcdef"[content[b] >> 4], "0123456789abcdef"[content[b] & 15]);
        return hex;
      }
      at = content + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return {};
}

std::string identity_of(const dl_phdr_info& info, const fs::path& file) {
  std::string id = build_id(info);
  if (!id.empty()) return cat("build-id:", id);
  return cat("sha256:", sha256(MappedFile(file).bytes()));
}

void add_program(JobIdentity& identity) {
  auto visit = [](dl_phdr_info* info, size_t, void* to) {
    auto& builds = static_cast<JobIdentity*>(to)->builds;
    std::string_view name = info->dlpi_name;
    if (name.empty() && builds.empty())
      builds.emplace_back("executable", identity_of(*info, "/proc/self/exe"));
    if (name.find(kCoreLibrary) != std::string_view::npos)
      builds.emplace_back("core library", identity_of(*info, info->dlpi_name));
    return 0;
  };
  dl_iterate_phdr(visit, &identity);  // the executable comes first, with an empty name
}

std::string text_of(const JobIdentity& identity) {
  std::string text;
  for (const auto& [what, build] : identity.builds) text += cat(what, '\t', build, '\n');
  return cat(text, '\n', identity.recipe);
}

JobIdentity parse(const std::string& text) {
  JobIdentity identity;
  size_t end = text.find("\n\n");
  if (end == std::string::npos) end = 0;
  for (const auto& line : split(std::string_view(text).substr(0, end), '\n')) {
    size_t tab = line.find('\t');
    if (tab != std::string::npos)
      identity.builds.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  identity.recipe = text.substr(std::min(text.size(), end + 2));
  return identity;
}

std::vector<std::string> recipe_differences(const std::string& mine, const std::string& firsts) {
  if (mine == firsts) return {};
  Node before = parse_yaml(firsts, "the first rank's recipe"),
       after = parse_yaml(mine, "this rank's recipe");
  auto value = [](const Node* node) { return node ? brief(*node) : std::string("absent"); };
  std::vector<std::string> found;
  for (const auto& d : differences(before, after))
    found.push_back(cat(d.path, " is ", value(d.after), ", on rank 0 ", value(d.before)));
  if (found.empty()) found.emplace_back("its recipe has the same values but differs as text");
  return found;
}

/// The differences of this rank from rank 0; empty if there are none.
std::string own_differences(const JobIdentity& mine, const JobIdentity& first) {
  std::vector<std::string> found = recipe_differences(mine.recipe, first.recipe);
  auto build_of = [](const JobIdentity& identity, const std::string& what) {
    for (const auto& [name, build] : identity.builds)
      if (name == what) return build;
    return std::string("missing");
  };
  for (const auto& [what, build] : mine.builds)
    if (std::string there = build_of(first, what); there != build)
      found.push_back(cat("its ", what, " is ", build, ", on rank 0 ", there));
  size_t more = found.size() > kMostShown ? found.size() - kMostShown : 0;
  found.resize(found.size() - more);
  return cat(join(found, "; "), more > 0 ? cat("; and ", more, " more") : std::string());
}

}  // namespace

JobIdentity job_identity(const Recipe& recipe, const PluginHost& plugins) {
  JobIdentity identity{.recipe = recipe.config.to_yaml(), .builds = {}};
  add_program(identity);
  const Settings& s = recipe.settings;
  std::vector<std::pair<std::string, std::string>> used = {{"model", s.model.type},
                                                           {"tokenizer", s.tokenizer.type},
                                                           {"dataset", s.dataset.type},
                                                           {"optimizer", s.optimizer.type}};
  if (s.objective.over_answers()) used.emplace_back("objective", s.objective.type);
  if (s.dist.comm) used.emplace_back("comm", *s.dist.comm);
  for (const auto& [kind, name] : used)
    if (!name.empty() && name != "thread")
      identity.builds.emplace_back(cat("plugin ", kind, "/", name),
                                   plugins.locate(kind, name).identity);
  return identity;
}

std::string identity_differences(Communicator& ranks, const JobIdentity& mine) {
  std::string text = text_of(mine), hash = sha256(text);
  auto n = static_cast<size_t>(ranks.size());
  std::vector<uint8_t> own(hash.begin(), hash.end()), hashes(own.size() * n);
  ranks.all_gather(own, hashes);
  bool same = true;
  for (size_t r = 1; r < n; ++r)
    same &= std::equal(own.begin(), own.end(),
                       hashes.begin() + static_cast<std::ptrdiff_t>(r * own.size()));
  if (ranks.all_reduce_value<int32_t>(same ? 1 : 0, ReduceOp::min) != 0) return {};

  auto length = static_cast<int64_t>(text.size());
  ranks.broadcast(Buffer(&length, 1, DType::i64), 0);
  std::vector<uint8_t> bytes(text.begin(), text.end());
  bytes.resize(static_cast<size_t>(length));
  ranks.broadcast(bytes, 0);
  std::string found = own_differences(mine, parse(std::string(bytes.begin(), bytes.end())));

  char host[64] = "";
  gethostname(host, sizeof(host) - 1);
  std::string line = found.empty() ? "" : cat("rank ", ranks.rank(), " on ", host, ": ", found);
  std::vector<uint8_t> record(kRecordBytes, 0), records(kRecordBytes * n);
  std::memcpy(record.data(), line.data(), std::min(line.size(), kRecordBytes - 1));
  ranks.all_gather(record, records);
  std::string all;
  for (size_t r = 0; r < n; ++r)
    if (const char* one = reinterpret_cast<const char*>(records.data() + r * kRecordBytes); *one)
      all += cat("\n  ", one);
  return all;
}

}  // namespace mtrain
