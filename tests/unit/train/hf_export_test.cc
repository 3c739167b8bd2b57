// Weights in pieces: tensors that are larger than a piece have the same bytes as in one, in every
// arrangement, and the memory of an export does not depend on the size of a tensor.
#include "mtrain/train/hf_export.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <map>

#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/config/yaml_load.h"
#include "temp_dir.h"

using namespace mtrain;

namespace {

using Part = HfTensorRule::Part;

using Folder = testing::TempDir;

Schema schema() {
  auto field = [](const char* path, Fact fact, const char* value) {
    FieldSpec spec;
    spec.path = path;
    spec.type = FieldType::integer;
    spec.default_value = value;
    spec.fact = fact;
    return spec;
  };
  return {
      .name = "tiny",
      .doc = "",
      .fields = {field("layers", Fact::layers, "1"), field("hidden_size", Fact::hidden_size, "160"),
                 field("heads", Fact::heads, "4"), field("kv_heads", Fact::kv_heads, "2"),
                 field("experts", Fact::experts, "3")},
      .needs = ""};
}

/// Each element has its place as its value.
std::vector<float> counted_from(int64_t first, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = static_cast<float>(first + i);
  return out;
}

struct Checkpoint {
  Folder folder;
  CheckpointStore store{folder / "run", StoreOptions{}};
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, Shape> shapes;

  void add(const std::string& name, const Shape& shape) {
    shapes[name] = shape;
    values[name] = counted_from(1000 * static_cast<int64_t>(values.size()), shape.numel());
  }
  void save() {
    std::vector<Slice> slices;
    for (auto& [name, floats] : values)
      slices.push_back(
          whole_slice(name, DType::f32, shapes[name], std::as_writable_bytes(std::span(floats))));
    store.save(1, slices, "{}");
  }
  float at(const std::string& name, int64_t i) const {
    return values.at(name)[static_cast<size_t>(i)];
  }
};

std::vector<float> floats_of(const HfDir& dir, const std::string& name) {
  const TensorInfo& t = dir.at(name);
  std::vector<float> out(t.data.size() / sizeof(float));
  std::memcpy(out.data(), t.data.data(), t.data.size());
  return out;
}

}  // namespace

TEST_CASE("tensors that are larger than a piece are exported element by element to their places") {
  Checkpoint checkpoint;
  const int64_t E = 3, I = 270, H = 160;  // an expert's matrix is larger than a piece
  checkpoint.add("gate", Shape{E, I, H});
  checkpoint.add("up", Shape{E, I, H});
  checkpoint.add("down", Shape{E, H, I});
  checkpoint.add("bias_gate", Shape{E, I});
  checkpoint.add("bias_up", Shape{E, I});
  checkpoint.add("plain", Shape{900, H});
  checkpoint.add("wide", Shape{2, 70000});
  checkpoint.add("turned", Shape{500, 300});
  checkpoint.add("qkv", Shape{(4 + 2 * 2) * 40, 2500});
  checkpoint.add("vector", Shape{70001});
  checkpoint.save();
  HfFamily family;
  family.model_type = "tiny";
  family.indices = {{"e", "experts"}};
  family.tensors = {
      {.tensor = "gate_up",
       .parameters = {"gate", "up"},
       .transpose = true,
       .interleave = true,
       .stacked = true},
      {.tensor = "gate_up_rows", .parameters = {"gate", "up"}, .interleave = true, .stacked = true},
      {.tensor = "halves", .parameters = {"gate", "up"}, .stacked = true},
      {.tensor = "down_turned", .parameters = {"down"}, .transpose = true, .stacked = true},
      {.tensor = "down.{e}", .parameters = {"down"}},
      {.tensor = "biases",
       .parameters = {"bias_gate", "bias_up"},
       .interleave = true,
       .stacked = true},
      {.tensor = "plain", .parameters = {"plain"}},
      {.tensor = "wide", .parameters = {"wide"}},
      {.tensor = "turned", .parameters = {"turned"}, .transpose = true},
      {.tensor = "keys", .parameters = {"qkv"}, .part = Part::keys},
      {.tensor = "all", .parameters = {"qkv"}, .part = Part::all, .transpose = true},
      {.tensor = "vector", .parameters = {"vector"}}};
  const Schema plugin = schema();
  const Node section = parse_yaml("{}");
  const HfModel model(section, plugin);
  const HfExport options{.family = family, .model = model, .vocab_size = 1, .shard_bytes = 1};
  HfFolderWriter out(checkpoint.folder / "out");
  CHECK(export_hf_weights(checkpoint.store, 1, options, out).tensors == 14);
  out.text("config.json", "{}");
  out.commit();
  const HfDir dir(checkpoint.folder / "out");
  int64_t wrong = 0, seen = 0;
  auto compare = [&](const std::string& name, const Shape& shape, auto wanted) {
    CAPTURE(name);
    REQUIRE(dir.at(name).shape == shape);
    const std::vector<float> got = floats_of(dir, name);
    const int64_t inner = shape[shape.rank() - 1],
                  rows = shape.rank() > 1 ? shape[shape.rank() - 2] : 1;
    for (int64_t i = 0; i < shape.numel(); ++i, ++seen)
      wrong += got[static_cast<size_t>(i)] != wanted(i / inner / rows, i / inner % rows, i % inner);
    CHECK(wrong == 0);
  };
  const Checkpoint& c = checkpoint;
  auto half = [](int64_t row) { return row % 2 ? "up" : "gate"; };
  compare("gate_up", Shape{E, H, 2 * I},
          [&](int64_t e, int64_t h, int64_t r) { return c.at(half(r), (e * I + r / 2) * H + h); });
  compare("gate_up_rows", Shape{E, 2 * I, H},
          [&](int64_t e, int64_t r, int64_t h) { return c.at(half(r), (e * I + r / 2) * H + h); });
  compare("halves", Shape{E, 2 * I, H}, [&](int64_t e, int64_t r, int64_t h) {
    return c.at(r < I ? "gate" : "up", (e * I + r % I) * H + h);
  });
  compare("down_turned", Shape{E, I, H},
          [&](int64_t e, int64_t i, int64_t h) { return c.at("down", (e * H + h) * I + i); });
  compare("down.1", Shape{H, I},
          [&](int64_t, int64_t h, int64_t i) { return c.at("down", (H + h) * I + i); });
  compare("biases", Shape{E, 2 * I}, [&](int64_t, int64_t e, int64_t r) {
    return c.at(r % 2 ? "bias_up" : "bias_gate", e * I + r / 2);
  });
  compare("plain", Shape{900, H},
          [&](int64_t, int64_t r, int64_t h) { return c.at("plain", r * H + h); });
  compare("wide", Shape{2, 70000},
          [&](int64_t, int64_t r, int64_t k) { return c.at("wide", r * 70000 + k); });
  compare("turned", Shape{300, 500},
          [&](int64_t, int64_t k, int64_t r) { return c.at("turned", r * 300 + k); });
  compare("keys", Shape{80, 2500}, [&](int64_t, int64_t r, int64_t k) {
    return c.at("qkv", ((r / 40 * 4 + 2) * 40 + r % 40) * 2500 + k);
  });
  compare("all", Shape{2500, 320}, [&](int64_t, int64_t k, int64_t r) {
    const int64_t head = r / 40;  // four of queries, two of keys, two of values
    const int64_t place = head < 4   ? head / 2 * 4 + head % 2
                          : head < 6 ? (head - 4) * 4 + 2
                                     : (head - 6) * 4 + 3;
    return c.at("qkv", (place * 40 + r % 40) * 2500 + k);
  });
  compare("vector", Shape{70001}, [&](int64_t, int64_t, int64_t k) { return c.at("vector", k); });
  CHECK(seen > 2000000);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace {

/// The most memory that this process has had in RAM since reset_peak(), in bytes.
uint64_t peak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  return 0;
}
bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5";
  file.flush();
  return file.good() && peak() > 0;
}

}  // namespace

TEST_CASE("an export has less than two shards in memory, however large a tensor is") {
  Checkpoint checkpoint;
  constexpr uint64_t kShard = 8 << 20;
  checkpoint.add("gate", Shape{8, 1024, 1024});  // 32 MiB each, 64 MiB in one tensor
  checkpoint.add("up", Shape{8, 1024, 1024});
  checkpoint.save();
  checkpoint.values.clear();
  HfFamily family;
  family.model_type = "tiny";
  family.tensors = {{.tensor = "gate_up",
                     .parameters = {"gate", "up"},
                     .transpose = true,
                     .interleave = true,
                     .stacked = true}};
  const Schema plugin = schema();
  const Node section = parse_yaml("{}");
  const HfModel model(section, plugin);
  const HfExport options{.family = family,
                         .model = model,
                         .dtype = DType::bf16,
                         .vocab_size = 1,
                         .shard_bytes = kShard};
  if (!reset_peak()) {
    MESSAGE("this system does not report the peak of memory");
    return;
  }
  uint64_t before = peak();
  HfFolderWriter out(checkpoint.folder / "out");
  export_hf_weights(checkpoint.store, 1, options, out);
  CHECK(peak() - before < 2 * kShard);
  out.commit();
  REQUIRE(reset_peak());
  before = peak();
  const HfDir source(checkpoint.folder / "out");
  HfFolderWriter again(checkpoint.folder / "again");
  convert_hf_weights(source, DType::f32, kShard, again);
  CHECK(peak() - before < 2 * kShard);
  MESSAGE("the most memory that the conversion added: ", peak() - before, " bytes");
}
#endif

TEST_CASE("exports that no longer count are set aside together") {
  const Folder folder;
  for (int step : {2, 4, 6}) fs::create_directories(folder / cat("step-", step));
  CHECK(set_aside_hf_exports(folder / "", {5}).empty());
  CHECK_FALSE(fs::exists(folder / "set-aside-1"));
  CHECK(set_aside_hf_exports(folder / "", {4, 6}).size() == 2);
  CHECK(fs::exists(folder / "set-aside-1/step-4"));
  CHECK(fs::exists(folder / "set-aside-1/step-6"));
  CHECK(fs::exists(folder / "step-2"));
  CHECK(set_aside_hf_exports(folder / "", {2}).size() == 1);
  CHECK(fs::exists(folder / "set-aside-2/step-2"));
}
