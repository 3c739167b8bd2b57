#include "mtrain/checkpoint/hf_dir.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "checkpoint_testing.h"
#include "roots.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

/// A file with one-byte tensors of these names.
void put_shard(const fs::path& path, const std::vector<std::string>& names) {
  fs::remove(path);
  std::vector<TensorSpec> specs;
  for (const auto& name : names) specs.push_back({name, DType::u8, {1}});
  SafetensorsWriter writer(path, "test", specs);
  for (size_t i = 0; i < names.size(); ++i) writer.write(std::as_bytes(std::span("x", 1)));
  writer.finish();
}

const std::string kShard1 = "model-00001-of-00002.safetensors",
                  kShard2 = "model-00002-of-00002.safetensors";

std::string index_of(const std::vector<std::pair<std::string, std::string>>& map,
                     const std::string& metadata = R"({"total_size": 3})") {
  std::string rows;
  for (const auto& [tensor, file] : map)
    rows += cat(rows.empty() ? "" : ",", '"', tensor, "\":\"", file, '"');
  return cat("{\"metadata\":", metadata, ",\"weight_map\":{", rows, "}}");
}

/// A folder with two shards: a, b | c.
struct Model {
  TempDir dir;
  fs::path index = dir / "model.safetensors.index.json";
  Model() {
    put_file(dir / "config.json", R"({"model_type":"llama"})");
    put_shard(dir / kShard1, {"a", "b"});
    put_shard(dir / kShard2, {"c"});
    put_file(index, index_of({{"a", kShard1}, {"b", kShard1}, {"c", kShard2}}));
  }
  std::string refusal() {
    ErrorClass error_class{};
    std::string message = failure([&] { HfDir model(dir.path()); }, &error_class);
    CHECK((message.empty() || error_class == ErrorClass::checkpoint));
    return message;
  }
};

}  // namespace

TEST_CASE("a sharded model opens as one") {
  Model model;
  HfDir dir(model.dir.path());
  REQUIRE(dir.tensors().size() == 3);
  CHECK(dir.tensors()[0]->name == "a");
  CHECK(dir.at("c").data.size() == 1);
  CHECK(dir.find("d") == nullptr);
  CHECK(dir.config_text() == R"({"model_type":"llama"})");
  CHECK_FALSE(dir.text("tokenizer.json").has_value());
  CHECK(failure([&] { dir.at("bb"); }).find("did you mean") != std::string::npos);
  CHECK(failure([&] { dir.text("../mtrain-absent"); }).empty());  // absent
  CHECK(HfDir(model.dir / kShard1).tensors().size() == 2);        // one file alone
  for (const char* metadata :
       {"{}", R"({"total_size": 3.0})", R"({"total_size": 3, "format": "pt"})"}) {
    put_file(model.index, index_of({{"a", kShard1}, {"b", kShard1}, {"c", kShard2}}, metadata));
    CHECK(model.refusal() == "");
  }
}

TEST_CASE("index and shards that disagree are refused") {
  struct Case {
    std::string index;
    const char* expected;
  };
  const std::string b = kShard1, c = kShard2;
  const std::vector<Case> cases = {
      {"", "malformed JSON"},
      {"[]", "wanted a JSON object"},
      {"{}", "\"weight_map\""},
      {R"({"weight_map":[]})", "\"weight_map\""},
      {R"({"weight_map":{}})", "weight_map is empty"},
      {R"({"weight_map":{"a":1}})", "'a' must have a file name"},
      {R"({"weight_map":{"a":"x","a":"y"}})", "\"a\" occurs twice"},
      {R"({"weight_map":{"":"x"}})", "name is empty"},
      {"\xEF\xBB\xBF" + index_of({{"a", b}, {"b", b}, {"c", c}}), "byte-order mark"},
      {std::string(100, '['), "deeper than the limit of 64"},
      {index_of({{"a", "../" + b}}), "not a plain file name"},
      {index_of({{"a", "/etc/passwd"}}), "not a plain file name"},
      {index_of({{"a", "sub/" + b}}), "not a plain file name"},
      {index_of({{"a", ".."}}), "not a plain file name"},
      {index_of({{"a", ""}}), "not a plain file name"},
      {index_of({{"a", "x\\u0000.safetensors"}}), "not a plain file name"},
      {index_of({{"a", "model-00003-of-00003.safetensors"}}), "cannot be opened"},
      {index_of({{"a", b}, {"b", b}}),
       "has a shard model-00002-of-00002.safetensors that the index does not list"},
      {index_of({{"a", b}, {"b", b}, {"c", c}, {"d", c}}),
       "says that 'd' is in model-00002-of-00002.safetensors, but it is not"},
      {index_of({{"a", b}, {"b", c}, {"c", c}}),
       "says that 'b' is in model-00002-of-00002.safetensors, but it is not"},
      {index_of({{"a", b}, {"c", c}}),
       "does not list tensor 'b' of model-00001-of-00002.safetensors"},
      {index_of({{"a", b}, {"b", b}, {"c", c}}, R"({"total_size": 4})"),
       "total_size says 4, the tensors have 3 bytes"},
      {index_of({{"a", b}, {"b", b}, {"c", c}}, R"({"total_size": "3"})"), "total_size says"},
      {index_of({{"a", b}, {"b", b}, {"c", c}}, "[]"), "\"metadata\" must be an object"},
  };
  Model model;
  for (const auto& bad : cases) {
    CAPTURE(bad.index);
    put_file(model.index, bad.index);
    std::string message = model.refusal();
    CAPTURE(message);
    CHECK(message.find(bad.expected) != std::string::npos);
    CHECK(message.find("model.safetensors.index.json") != std::string::npos);
  }
}

TEST_CASE("a tensor in two shards, a link out of the folder and pickles are refused") {
  {
    Model model;
    put_shard(model.dir / kShard2, {"b", "c"});
    CHECK(model.refusal().find("'b' is in two shards") != std::string::npos);
  }
  {
    Model model;
    TempDir outside;
    put_shard(outside / "stolen", {"c"});
    fs::remove(model.dir / kShard2);
    fs::create_symlink(outside / "stolen", model.dir / kShard2);
    CHECK(model.refusal().find("a link out of the folder") != std::string::npos);
    fs::remove(model.dir / kShard2);
    put_shard(model.dir / "inside", {"c"});
    fs::create_symlink("inside", model.dir / kShard2);
    CHECK(model.refusal() == "");
    fs::remove(model.dir / "config.json");
    fs::create_symlink("/etc/hostname", model.dir / "config.json");
    CHECK(failure([&] {
            HfDir(model.dir.path()).config_text();
          }).find("a link out of the folder") != std::string::npos);
  }
  {
    TempDir dir;
    put_file(dir / "pytorch_model.bin", "\x80\x02");
    CHECK(failure([&] { HfDir model(dir.path()); }).find("pytorch_model.bin is a pickle") !=
          std::string::npos);
    CHECK(failure([&] { HfDir model(dir / "pytorch_model.bin"); }).find("at least 8 bytes") ==
          std::string::npos);
    CHECK(failure([&] { HfDir model(dir / "nothing"); }).find("no such file or folder") !=
          std::string::npos);
    try {
      HfDir model(dir / "nothing");
    } catch (const Error& error) {  // a name of a run with a mistake ends here, too
      CHECK(error.hint().starts_with("give a run's folder or one of its checkpoints, "));
      CHECK(error.hint().find("download") == std::string::npos);
    }
    try {
      HfDir model(dir / "meta-llama/Llama-3.2-1B");
    } catch (const Error& error) {
      CHECK(error.hint().find("nothing is downloaded: if meta-llama/Llama-3.2-1B is a model of a "
                              "hub, fetch its folder first, e.g. hf download "
                              "meta-llama/Llama-3.2-1B --local-dir FOLDER") != std::string::npos);
    }
    put_file(dir / "model.safetensors", std::string("\2\0\0\0\0\0\0\0{}", 10));
    CHECK(failure([&] { HfDir model(dir.path()); }).find("holds no tensors") != std::string::npos);
    CHECK(failure([&] { HfDir(dir.path()).config_text(); }).size() > 0);
  }
}

TEST_CASE("the cache layout of Hugging Face's tools is understood") {
  TempDir cache;
  fs::path snapshot = cache / "models--x--y" / "snapshots" / "0123abcd",
           blobs = cache / "models--x--y" / "blobs";
  fs::create_directories(snapshot);
  fs::create_directories(blobs);
  put_shard(blobs / "f00d", {"a"});
  put_file(blobs / "c0ff", "{}");
  fs::create_symlink("../../blobs/f00d", snapshot / "model.safetensors");
  fs::create_symlink("../../blobs/c0ff", snapshot / "config.json");
  HfDir model(snapshot);
  CHECK(model.tensors().size() == 1);
  CHECK(model.config_text() == "{}");
}

TEST_CASE("models written by other programs are read") {
  for (const char* name : {"gpt2_tiny", "gpt2_tiny_sharded", "llama_tiny", "llama31_tiny"}) {
    HfDir model(source_root() / "tests" / "golden" / name);
    CHECK(model.tensors().size() > 10);
    CHECK(model.config_text().find("model_type") != std::string::npos);
  }
  HfDir whole(source_root() / "tests" / "golden" / "gpt2_tiny");
  HfDir sharded(source_root() / "tests" / "golden" / "gpt2_tiny_sharded");
  REQUIRE(whole.tensors().size() == sharded.tensors().size());
  for (const TensorInfo* tensor : whole.tensors())
    CHECK(std::ranges::equal(tensor->data, sharded.at(tensor->name).data));

  fs::path models = shared_root() / "data" / "models";
  if (!fs::exists(models)) {
    MESSAGE("skipped: no ", models.string());
    return;
  }
  HfDir stories(models / "stories260K_hf");
  CHECK(stories.at("model.embed_tokens.weight").shape == Shape{512, 64});
  CHECK(stories.at("model.layers.0.self_attn.q_proj.weight").dtype == DType::f32);
  SafetensorsFile tiny(models / "hf2q_tiny.safetensors");
  CHECK(tiny.tensors().size() == 5);
  CHECK(tiny.at("model.embed_tokens.weight").file_dtype == "F16");
  CHECK(tiny.at("model.embed_tokens.weight").shape == Shape{32, 8});
  for (const auto& entry : fs::directory_iterator(models / "torchtune"))
    CHECK(failure([&] { SafetensorsFile file(entry.path()); }).find("got a") != std::string::npos);
}
