#include "mtrain/checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "mtrain/base/checked.h"
#include "mtrain/base/hash.h"
#include "mtrain/checkpoint/refuse.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/checkpoint/strict_json.h"

namespace mtrain {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kTailStart = "\"checksum\": \"sha256:";

std::string hex32(uint32_t value) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", value);
  return text.data();
}

Json dims(const Shape& shape) { return Json(std::vector<int64_t>(shape.begin(), shape.end())); }

std::string tail_of(std::string_view body) { return cat(kTailStart, sha256(body), "\"\n}\n"); }

/// Typed access to the members of one manifest. Errors name the file and the member.
class Reader {
 public:
  explicit Reader(const fs::path& path) : path_(path) {}

  [[noreturn]] void refuse(const std::string& what) const {
    refuse_file(path_, what, kDamagedCheckpoint);
  }
  const Json& member(const Json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) refuse(cat("has no \"", key, '"'));
    return object[key];
  }
  const Json& array(const Json& object, const char* key) const {
    const Json& value = member(object, key);
    if (!value.is_array()) refuse(cat('"', key, "\" must be an array"));
    return value;
  }
  std::string text(const Json& object, const char* key) const {
    const Json& value = member(object, key);
    if (!value.is_string()) refuse(cat('"', key, "\" must be a string"));
    return value.get<std::string>();
  }
  uint64_t number(const Json& object, const char* key) const {
    const Json& value = member(object, key);
    if (!value.is_number_unsigned()) refuse(cat('"', key, "\" must be a non-negative integer"));
    return value.get<uint64_t>();
  }
  uint32_t crc(const Json& object, const char* key) const {
    std::string value = text(object, key);
    uint32_t out = 0;
    if (value.size() != 8 || std::sscanf(value.c_str(), "%8x", &out) != 1 || hex32(out) != value)
      refuse(cat('"', key, "\" must be eight hex digits"));
    return out;
  }
  Shape shape(const Json& object, const char* key) const {
    const Json& value = array(object, key);
    if (value.size() > Shape::kMaxRank)
      refuse(cat('"', key, "\" has rank ", value.size(), ", over ", Shape::kMaxRank));
    Shape out;
    Checked<int64_t> extent(1);
    for (const Json& dim : value) {
      if (!dim.is_number_unsigned() || !checked_cast<int64_t>(dim.get<uint64_t>()))
        refuse(cat('"', key, "\" must contain non-negative integers"));
      out.push_back(dim.get<int64_t>());
      extent = extent * std::max<int64_t>(out[-1], 1);
    }
    if (!extent.valid()) refuse(cat('"', key, "\" overflows 64 bits"));
    return out;
  }

  StoredFile file(const Json& row) const {
    StoredFile out{.name = text(row, "name"),
                   .bytes = number(row, "bytes"),
                   .header_bytes = number(row, "header_bytes"),
                   .header_crc = crc(row, "header_crc32c")};
    int rank = -1, world = -1;
    if (std::sscanf(out.name.c_str(), "shard-%5d-of-%5d.safetensors", &rank, &world) != 2 ||
        rank < 0 || world < 1 || out.name != shard_name(rank, world))
      refuse(cat('\'', printable(out.name), "' is not the name of a shard"));
    if (out.header_bytes > out.bytes) refuse(cat(out.name, ": header is longer than the file"));
    return out;
  }
  StoredTensor tensor(const Json& row, const std::vector<StoredFile>& files) const {
    StoredTensor out{.name = text(row, "name"), .global = shape(row, "shape")};
    if (std::string why = bad_tensor_name(out.name); !why.empty()) refuse(why);
    auto dtype = dtype_from_name(text(row, "dtype"));
    if (!dtype)
      refuse(cat("tensor '", printable(out.name), "': unknown dtype ",
                 printable(text(row, "dtype"), 40)));
    out.dtype = *dtype;
    for (const Json& part : array(row, "boxes")) {
      StoredBox box{.file = number(part, "file"),
                    .key = text(part, "key"),
                    .box = {shape(part, "offset"), shape(part, "shape")},
                    .at = number(part, "at"),
                    .bytes = number(part, "bytes"),
                    .crc = crc(part, "crc32c")};
      std::string who = cat("tensor '", printable(out.name), "', box ", describe(box.box), ": ");
      if (!fits(box.box, out.global)) refuse(cat(who, "outside of ", out.global));
      if (box.file >= files.size()) refuse(cat(who, "file ", box.file, " of ", files.size()));
      Checked<uint64_t> wanted(size_of(out.dtype));
      wanted = wanted * static_cast<uint64_t>(box.box.extent.numel());
      if (!wanted.equals(box.bytes)) refuse(cat(who, "its bytes do not match its shape"));
      out.boxes.push_back(std::move(box));
    }
    return out;
  }

 private:
  const fs::path& path_;
};

/// Checks that every byte is covered by exactly one checksum.
void check_tiling(const Manifest& manifest, const Reader& reader) {
  std::vector<std::vector<const StoredBox*>> by_file(manifest.files.size());
  for (const auto& tensor : manifest.tensors)
    for (const auto& box : tensor.boxes) by_file[box.file].push_back(&box);
  for (size_t i = 0; i < by_file.size(); ++i) {
    auto& boxes = by_file[i];
    std::sort(boxes.begin(), boxes.end(), [](const StoredBox* a, const StoredBox* b) {
      return std::tie(a->at, a->bytes) < std::tie(b->at, b->bytes);
    });
    uint64_t expected = manifest.files[i].header_bytes;
    for (const StoredBox* box : boxes) {
      auto end = checked_add(box->at, box->bytes);
      if (box->at != expected || !end)
        reader.refuse(cat(manifest.files[i].name, ": '", printable(box->key),
                          "' overlaps another tensor or leaves a gap"));
      expected = *end;
    }
    if (expected != manifest.files[i].bytes)
      reader.refuse(cat(manifest.files[i].name, ": its tensors do not cover the file"));
  }
}

std::string box_line(const StoredBox& box) {
  return Json{{"file", box.file},
              {"key", box.key},
              {"offset", dims(box.box.offset)},
              {"shape", dims(box.box.extent)},
              {"at", box.at},
              {"bytes", box.bytes},
              {"crc32c", hex32(box.crc)}}
      .dump();
}

bool by_name(const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; }

}  // namespace

const StoredTensor* Manifest::find(std::string_view name) const {
  auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const StoredTensor& t, std::string_view wanted) { return t.name < wanted; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

uint64_t Manifest::bytes() const {
  uint64_t total = 0;
  for (const auto& file : files) total += file.bytes;
  return total;
}

std::string shard_name(int rank, int world) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "shard-%05d-of-%05d.safetensors", rank, world);
  return text.data();
}

std::string encode(const Manifest& m) {
  std::string text =
      cat("{\n\"format\": \"mtrain-checkpoint\",\n\"version\": ", kManifestVersion,
          ",\n\"step\": ", m.step, ",\n\"created\": ", Json(m.created).dump(), ",\n\"files\": [");
  for (size_t i = 0; i < m.files.size(); ++i)
    text += (i ? ",\n " : "\n ") + Json{{"name", m.files[i].name},
                                        {"bytes", m.files[i].bytes},
                                        {"header_bytes", m.files[i].header_bytes},
                                        {"header_crc32c", hex32(m.files[i].header_crc)}}
                                       .dump();
  text += "\n],\n\"tensors\": [";
  for (size_t i = 0; i < m.tensors.size(); ++i) {
    const auto& t = m.tensors[i];
    text += cat(i ? ",\n " : "\n ", "{\"name\": ", Json(t.name).dump(), ", \"dtype\": \"",
                name(t.dtype), "\", \"shape\": ", dims(t.global).dump(), ", \"boxes\": [");
    for (size_t k = 0; k < t.boxes.size(); ++k) text += (k ? ",\n  " : "") + box_line(t.boxes[k]);
    text += "]}";
  }
  text += cat("\n],\n\"meta\": ", m.meta, ",\n");
  return text + tail_of(text);
}

Manifest decode(std::string_view text, const fs::path& path) {
  Reader reader(path);
  const size_t tail_bytes = kTailStart.size() + 64 + 4;
  if (text.size() < tail_bytes)
    reader.refuse(cat("wanted a manifest, got ", text.size(), " bytes"));
  std::string_view body = text.substr(0, text.size() - tail_bytes);
  if (text.substr(body.size()) != tail_of(body))
    reader.refuse("does not match its own checksum: the file is truncated or was changed");
  Json json = parse_json_tree(text, {.path = path, .offset = 0, .hint = kDamagedCheckpoint});
  if (reader.text(json, "format") != "mtrain-checkpoint")
    reader.refuse("\"format\" is not mtrain-checkpoint");
  if (uint64_t version = reader.number(json, "version");
      version != static_cast<uint64_t>(kManifestVersion))
    throw Error(ErrorClass::checkpoint,
                cat(printable(path.string()), ": format version ", version, ", this build reads ",
                    kManifestVersion),
                "it was written by a newer version of mtrain: use that version");
  Manifest out;
  auto step = checked_cast<int64_t>(reader.number(json, "step"));
  if (!step) reader.refuse("\"step\" is out of range");
  out.step = *step;
  out.created = printable(reader.text(json, "created"), 40);
  for (const Json& row : reader.array(json, "files")) out.files.push_back(reader.file(row));
  for (const Json& row : reader.array(json, "tensors"))
    out.tensors.push_back(reader.tensor(row, out.files));
  for (size_t i = 1; i < out.tensors.size(); ++i)
    if (!by_name(out.tensors[i - 1], out.tensors[i]))
      reader.refuse("tensors are not sorted by name, or a tensor occurs twice");
  std::set<std::string_view> names;
  for (const auto& file : out.files)
    if (!names.insert(file.name).second) reader.refuse(cat(file.name, " occurs twice"));
  if (!reader.member(json, "meta").is_object()) reader.refuse("\"meta\" must be an object");
  out.meta = json["meta"].dump();
  check_tiling(out, reader);
  return out;
}

void merge(Manifest& into, Manifest&& part, const fs::path& path) {
  const size_t first_file = into.files.size();
  for (auto& file : part.files) into.files.push_back(std::move(file));
  for (auto& tensor : part.tensors) {
    for (auto& box : tensor.boxes) box.file += first_file;
    auto found = std::lower_bound(into.tensors.begin(), into.tensors.end(), tensor, by_name);
    if (found == into.tensors.end() || found->name != tensor.name) {
      into.tensors.insert(found, std::move(tensor));
      continue;
    }
    if (found->dtype != tensor.dtype || !(found->global == tensor.global))
      throw Error(ErrorClass::checkpoint,
                  cat(path.string(), ": tensor '", printable(tensor.name), "' is ",
                      name(found->dtype), ' ', found->global, " on one rank and ",
                      name(tensor.dtype), ' ', tensor.global, " on another"));
    std::move(tensor.boxes.begin(), tensor.boxes.end(), std::back_inserter(found->boxes));
  }
}

std::string overlap_problem(const StoredTensor& tensor) {
  std::vector<const Box*> boxes;
  for (const auto& box : tensor.boxes)
    if (box.box.extent.numel() > 0) boxes.push_back(&box.box);
  const bool ranked = tensor.global.rank() > 0;
  // Boxes are sorted by their start in the first dimension, so a box can only overlap those that
  // start before its end.
  if (ranked)
    std::sort(boxes.begin(), boxes.end(),
              [](const Box* a, const Box* b) { return a->offset[0] < b->offset[0]; });
  uint64_t budget = 100'000'000;  // comparisons, to bound the time for a malicious manifest
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t k = i + 1; k < boxes.size(); ++k) {
      if (ranked && boxes[k]->offset[0] >= boxes[i]->offset[0] + boxes[i]->extent[0]) break;
      if (--budget == 0)
        return cat("tensor '", printable(tensor.name), "': it has too many boxes (", boxes.size(),
                   ")");
      if (intersect(*boxes[i], *boxes[k]))
        return cat("tensor '", printable(tensor.name), "': box ", describe(*boxes[k]),
                   " overlaps box ", describe(*boxes[i]));
    }
  }
  return {};
}

std::string cover_problem(const StoredTensor& tensor) {
  if (std::string why = overlap_problem(tensor); !why.empty()) return why;
  int64_t covered = 0;  // cannot overflow: the boxes do not overlap and are inside the tensor
  for (const auto& box : tensor.boxes) covered += box.box.extent.numel();
  if (covered == tensor.global.numel()) return {};
  return cat("tensor '", printable(tensor.name), "': its boxes cover ", covered, " of ",
             tensor.global.numel(), " elements");
}

std::string canonical_meta(std::string_view text, const fs::path& origin) {
  Json json = parse_json_tree(
      text, {.path = origin, .offset = 0, .hint = "the metadata of a checkpoint is a JSON object"});
  if (!json.is_object())
    throw Error(ErrorClass::checkpoint,
                cat(origin.string(), ": the metadata must be a JSON object"));
  return json.dump();
}

}  // namespace mtrain
