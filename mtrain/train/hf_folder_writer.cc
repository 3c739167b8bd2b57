#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "mtrain/base/error.h"
#include "mtrain/base/hash.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/train/background_writer.h"
#include "mtrain/train/hf_export.h"

namespace mtrain {
namespace {

/// Names with their numbers in order: layers.2 before layers.10.
bool natural_less(const std::string& a, const std::string& b) {
  auto digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    size_t end_a = i, end_b = j;
    while (end_a < a.size() && digit(a[end_a])) ++end_a;
    while (end_b < b.size() && digit(b[end_b])) ++end_b;
    if (end_a - i != end_b - j) return end_a - i < end_b - j;
    if (const int order = a.compare(i, end_a - i, b, j, end_b - j); order != 0) return order < 0;
    i = end_a, j = end_b;
  }
  return a.size() - i < b.size() - j;
}

uint64_t tensor_bytes(const TensorSpec& spec) {
  return static_cast<uint64_t>(spec.shape.numel()) * size_of(spec.dtype);
}

/// The tensors of each shard.
std::vector<std::vector<size_t>> shards_of(const std::vector<TensorSpec>& tensors,
                                           uint64_t shard_bytes) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return natural_less(tensors[a].name, tensors[b].name); });
  std::vector<std::vector<size_t>> out;
  uint64_t used = 0;
  for (size_t i : order) {
    const uint64_t bytes = tensor_bytes(tensors[i]);
    if (out.empty() || used + bytes > shard_bytes) out.emplace_back(), used = 0;
    out.back().push_back(i);
    used += bytes;
  }
  return out;
}

std::string shard_name(size_t number, size_t count) {
  if (count == 1) return "model.safetensors";
  auto five = [](size_t n) {
    const std::string text = std::to_string(n);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  return cat("model-", five(number), "-of-", five(count), ".safetensors");
}

/// Writes the file of some tensors.
void write_shard(const fs::path& path, const std::vector<TensorSpec>& tensors,
                 const std::vector<size_t>& chosen, HfTensorReader& reader) {
  std::vector<TensorSpec> specs;
  std::map<std::string, size_t> places;
  for (size_t i : chosen) {
    specs.push_back(tensors[i]);
    places[tensors[i].name] = i;
  }
  SafetensorsWriter file(path, kExportSite, std::move(specs));
  BackgroundWriter writer(file);
  const HfSink sink = [&writer](std::span<const std::byte> bytes) { writer.write(bytes); };
  for (const TensorSpec& spec : file.order()) reader.read(places.at(spec.name), sink);
  writer.finish();
}

/// The start of the names of this machine's unfinished folders for `to`; the number of the process
/// follows.
std::string unfinished_prefix(const fs::path& to) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  return cat(".", to.filename().string(), ".partial-", host, "-");
}

/// Removes what killed processes of this machine left.
void remove_unfinished(const fs::path& to) {
  const std::string prefix = unfinished_prefix(to);
  std::error_code error;
  for (fs::directory_iterator at(to.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const auto process = static_cast<pid_t>(std::atol(name.c_str() + prefix.size()));
    std::error_code ignored;
    if (process > 0 && ::kill(process, 0) != 0 && errno == ESRCH)
      fs::remove_all(at->path(), ignored);
  }
}

}  // namespace

HfTensorReader::~HfTensorReader() = default;

void require_absent(const fs::path& to) {
  std::error_code error;
  const auto status = fs::symlink_status(to, error);
  MT_USER_CHECK(!fs::exists(status), ErrorClass::io, cat(printable(to.string()), " exists already"),
                "choose a new folder, or remove this one: nothing is overwritten");
}

fs::path unfinished_place(const fs::path& to) {
  require_absent(to);
  make_directories(to.parent_path());
  remove_unfinished(to);
  fs::path place = to.parent_path() / cat(unfinished_prefix(to), ::getpid());
  std::error_code error;
  fs::remove_all(place, error);  // of a killed process with the same number
  return place;
}

HfFolderWriter::HfFolderWriter(const fs::path& to, const HfTeam& team) : team_(team) {
  team_.together([&] {
    if (!team_.first()) return;
    to_ = fs::absolute(to).lexically_normal();
    if (to_.filename().empty()) to_ = to_.parent_path();  // a name that ends in a slash
    unfinished_.path = unfinished_place(to_);
    make_directories(unfinished_.path);
  });
  temporary_ = team_.of_first(unfinished_.path.string());
  std::error_code error;
  writers_ = team_.of_each(fs::is_directory(temporary_, error));
}

HfFolderWriter::Unfinished::~Unfinished() {
  std::error_code ignored;
  if (!path.empty()) fs::remove_all(path, ignored);
}

HfFolderWriter::~HfFolderWriter() = default;

void HfFolderWriter::text(const std::string& name, std::string_view content) {
  if (!team_.first()) return;
  FileWriter file(temporary_ / name, kExportSite);
  file.write(content);
  file.sync();
  file.close();
}

void HfFolderWriter::copy(const fs::path& file) {
  if (team_.first()) text(file.filename().string(), read_file(file));
}

namespace {

/// The files of the weights.
struct FilePlan {
  std::vector<std::vector<size_t>> shards;        // the tensors of each file
  std::vector<int> owners;                        // the rank that writes it
  uint64_t total = 0;                             // bytes of all tensors
  nlohmann::json map = nlohmann::json::object();  // the file of each tensor
};

FilePlan plan_files(const std::vector<TensorSpec>& tensors, uint64_t shard_bytes,
                    const std::vector<bool>& writers) {
  FilePlan out;
  out.shards = shards_of(tensors, shard_bytes);
  std::vector<uint64_t> sizes;
  for (size_t s = 0; s < out.shards.size(); ++s) {
    sizes.push_back(0);
    for (size_t i : out.shards[s]) {
      out.map[tensors[i].name] = shard_name(s + 1, out.shards.size());
      sizes.back() += tensor_bytes(tensors[i]);
    }
    out.total += sizes.back();
  }
  out.owners = balanced(sizes, writers);
  return out;
}

}  // namespace

HfWritten HfFolderWriter::weights(const std::vector<TensorSpec>& tensors, uint64_t shard_bytes,
                                  HfTensorReader& reader) {
  FilePlan files;
  std::string digest;
  team_.together([&] {
    files = plan_files(tensors, shard_bytes, writers_);
    std::string all = files.map.dump();
    for (const TensorSpec& t : tensors) all += cat('\n', t.name, ' ', name(t.dtype), ' ', t.shape);
    digest = sha256(all);
  });
  const std::string firsts = team_.of_first(digest);
  team_.together([&] {
    MT_USER_CHECK(digest == firsts, ErrorClass::config,
                  "this rank would write other tensors or files than the first rank",
                  "give all ranks the same folder of model.init_from and the same tokenizer");
  });
  team_.together([&] {
    const size_t count = files.shards.size();
    for (size_t s = 0; s < count; ++s)
      if (files.owners[s] == team_.rank())
        write_shard(temporary_ / shard_name(s + 1, count), tensors, files.shards[s], reader);
    if (count == 1) return;
    const nlohmann::json index = {{"metadata", {{"total_size", files.total}}},
                                  {"weight_map", files.map}};
    text("model.safetensors.index.json", index.dump(2) + "\n");
  });
  return {.files = files.shards.size(),
          .ranks = std::set<int>(files.owners.begin(), files.owners.end()).size()};
}

void HfFolderWriter::file(const std::string& name, const std::vector<TensorSpec>& tensors,
                          HfTensorReader& reader) {
  if (!team_.first()) return;
  std::vector<size_t> all(tensors.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  write_shard(temporary_ / name, tensors, all, reader);
}

void HfFolderWriter::commit() {
  team_.together([&] {
    if (!team_.first()) return;
    sync_directory(temporary_, kExportSite);
    require_absent(to_);
    durable_rename(temporary_, to_, kExportSite);
    unfinished_.path.clear();
  });
}

std::vector<fs::path> set_aside_hf_exports(const fs::path& dir, const std::vector<int64_t>& steps) {
  std::vector<fs::path> out;
  fs::path aside;
  for (int64_t step : steps) {
    const fs::path folder = dir / cat("step-", step);
    std::error_code error;
    if (!fs::exists(fs::symlink_status(folder, error))) continue;
    for (int number = 1; aside.empty() || (out.empty() && fs::exists(aside)); ++number)
      aside = dir / cat("set-aside-", number);
    make_directories(aside);
    out.push_back(aside / folder.filename());
    durable_rename(folder, out.back(), kExportSite);
  }
  if (!out.empty()) sync_directory(dir, kExportSite);
  return out;
}

std::vector<fs::path> hf_side_files(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.json", "merges.txt",
        "vocab.txt", "chat_template.jinja", "generation_config.json"}) {
    std::error_code error;
    if (!fs::is_regular_file(folder / name, error)) continue;
    require_inside(folder, name);
    out.push_back(folder / name);
  }
  return out;
}

}  // namespace mtrain
