// Files of families: those of this tree are valid, and every fault of a file has its line.
#include "mtrain/recipe/hf_families.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "has.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/config/yaml_load.h"
#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/hf_family_check.h"
#include "mtrain/recipe/hf_write_config.h"
#include "roots.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

/// A folder of plugins with families.
class Plugins {
 public:
  Plugins() : path_(fs::temp_directory_path() / cat("mtrain-families-", ::getpid())) {
    fs::remove_all(path_);
    write("model.families/common", "keys:\n  use_cache: {harmless: why}\n");
  }
  ~Plugins() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    const fs::path file = path_ / (name + ".yaml");
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  HfFamilies read() const { return HfFamilies::read({path_}); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const std::string kHead = "model_type: a\narchitectures: [A]\n";

/// A faulty file, and parts of the message.
struct Case {
  std::string text;
  std::vector<std::string> parts;
};

void check_faults(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    CAPTURE(c.text);
    const Plugins plugins;
    plugins.write("model_tiny.families/a", c.text);
    plugins.write("model_tiny.families/good", "model_type: good\narchitectures: [G]\nneeds: x\n");
    const HfFamilies families = plugins.read();
    CHECK_FALSE(families.faults().ok());
    const std::string text = families.faults().text();
    for (const std::string& part : c.parts) CHECK_MESSAGE(has(text, part), text);
    CHECK(families.find("good", ""));  // other files stay usable
    CHECK_THROWS_WITH_AS(families.find("a", ""), doctest::Contains("family a is faulty"), Error);
  }
}

}  // namespace

TEST_CASE("the families of this tree are valid and each says what it reads or lacks") {
  const fs::path models = source_root() / "plugins/model";
  const fs::path folder = fs::temp_directory_path() / cat("mtrain-family-links-", ::getpid());
  fs::remove_all(folder);
  fs::create_directories(folder);
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(models)) {
    const fs::path families = entry.path() / "families";
    if (!fs::is_directory(families)) continue;
    fs::create_directory_symlink(
        families, folder / cat("model_", entry.path().filename().string(), ".families"));
    files += static_cast<size_t>(
        std::distance(fs::directory_iterator(families), fs::directory_iterator()));
  }
  fs::create_directory_symlink(models / "families", folder / "model.families");
  const HfFamilies families = HfFamilies::read({folder});
  CHECK_MESSAGE(families.faults().ok(), families.faults().text());
  CHECK(families.all().size() == files);
  CHECK(families.common().size() > 60);
  for (const HfFamily& family : families.all()) {
    CAPTURE(family.model_type);
    CHECK_FALSE(family.architectures.empty());
    CHECK(family.needs.empty() != family.tensors.empty());
    CHECK(families.find("", family.architectures[0]) == &family);
    for (const HfKey& key : family.keys) {
      CAPTURE(key.name);
      if (key.rule == HfKeyRule::harmless || key.rule == HfKeyRule::only)
        CHECK_FALSE(key.reason.empty());
    }
  }
  REQUIRE(families.find("qwen2", ""));
  const HfFamily& qwen2 = *families.find("qwen2", "");
  CHECK(qwen2.key("rms_norm_eps"));                                           // as in llama
  CHECK_FALSE(qwen2.key("mlp_bias"));                                         // taken out
  CHECK(qwen2.tensors.size() == families.find("llama", "")->tensors.size());  // biases changed
  CHECK(families.of_plugin("llama").front()->model_type == "llama");
  fs::remove_all(folder);
}

TEST_CASE("each fault of a family's file is named with its line") {
  const std::vector<Case> cases = {
      {"", {"not a map"}},
      {"model_type: [", {"a.yaml:1"}},
      {"model_type: b\narchitectures: [A]\nneeds: x\n",
       {"a.yaml:1:13", "model_type is b, but the file is called a.yaml"}},
      {"model_type: a\nneeds: x\n", {"architectures is missing"}},
      {kHead, {"needs one of `keys`, `like` or `needs`"}},
      {kHead + "kyes: {}\n", {"a.yaml:3:1", "there is no 'kyes' here", "did you mean keys?"}},
      {kHead + "keys:\n  x: {seting: y}\n", {"a.yaml:4:3", "x has no rule", "one of: setting"}},
      {kHead + "keys:\n  x: {setting: y, harmless: z}\n",
       {"x has two rules, setting and harmless"}},
      {kHead + "keys:\n  x: {only: [1]}\n", {"x: the rule `only` needs a reason"}},
      {kHead + "keys:\n  x: {only: 1, because: z}\n", {"wanted a list of the accepted values"}},
      {kHead + "keys:\n  x: {harmless: z, zero: omitted}\n", {"there is no 'zero'"}},
      {kHead + "keys:\n  x: {setting: y, zero: never}\n",
       {"wanted omitted, null, refused or =KEY"}},
      {kHead + "keys:\n  x: {setting: y, as: square}\n", {"wanted inverse or inverse_root"}},
      {kHead + "keys:\n  x: {setting: y, interval: z}\n", {"there is no 'interval'"}},
      {kHead + "keys:\n  x: {layer_types: y, positions: z, positions_without: w}\n",
       {"x refers to w, which is no key"}},
      {kHead + "keys:\n  x: {setting: y, default: =z}\n",
       {"x has the value of z, which is no key"}},
      {kHead + "keys:\n  x: {setting: y, default: =x/z}\n",
       {"x has the value of z, which is no key"}},
      {kHead + "keys:\n  x: {window: y, if: z}\n", {"x refers to z, which is no key"}},
      {kHead + "keys:\n  x: {setting: y, blocks: z}\n", {"there is no 'blocks'"}},
      {kHead + "keys:\n  x: {setting: y, required: 3}\n", {"wanted one setting and its value"}},
      {kHead + "keys:\n  x: {setting: y, also: [z]}\n  z: {harmless: w}\n",
       {"z is another name of both x and itself"}},
      {kHead + "keys:\n  x: {setting: y, also: [z]}\n  w: {setting: v, also: [z]}\n",
       {"z is another name of both w and x"}},
      {kHead + "keys:\n  x: 5\n", {"a.yaml:4:6", "x is not a map"}},
      {kHead + "like: a\n", {"a.yaml:3:7", "no usable family a"}},
      {kHead + "like: none\n", {"no usable family none"}},
      {kHead + "keys: {}\ntensors:\n  t.{i}: p.{j}\n", {"p.{j} has {j}, and t.{i} does not"}},
      {kHead + "keys: {}\ntensors:\n  t.{e}: p\n", {"`indices` does not give the number of {e}"}},
      {kHead + "keys: {}\ntensors:\n  t: {parameter: p, part: query}\n",
       {"there is no part 'query'"}},
      {kHead + "keys: {}\ntensors:\n  t: {parameter: p, blocks: odd}\n",
       {"a.yaml:5:3", "there are no blocks odd"}},
      {kHead + "keys: {}\ntensors:\n  t: {parameter: p, interleave: true}\n",
       {"interleave needs several parameters"}},
      {kHead + "keys: {}\ntensors:\n  t: {parameters: [p, q], part: keys}\n",
       {"a part is of one parameter"}},
      {kHead + "keys: {}\ntensors:\n  t: {transpose: true}\n", {"t names no parameter"}},
      {kHead + "keys: {}\ncopies:\n  t: {of: u}\n", {"t is a copy of u, which is not among"}},
      {kHead + "keys: {}\nobjects:\n  rope: {write: x}\n", {"rope has no names to read"}},
      {kHead + "keys: {}\nblocks:\n  odd: {from: x}\n", {"blocks odd lacks `every`"}},
      {kHead + "keys: {}\nzeros: {head_dim: hidden //}\n", {":4:"}},
      {kHead + "keys: {}\nzeros: {head_dim: \"'x'\"}\n", {"that is a whole number"}},
  };
  check_faults(cases);
}

TEST_CASE("each fault of what depends on other keys, and of parts of projections, is named") {
  check_faults({
      {kHead + "keys:\n  x: {setting: y, times: z //}\n", {"a.yaml:4:"}},
      {kHead + "keys:\n  x: {setting: y, with: {z: 1}}\n", {"x refers to z, which is no key"}},
      {kHead + "keys:\n  x: {setting: y, leading: [z]}\n", {"there is no 'leading'"}},
      {kHead + "keys:\n  x: {only: [1], or: =z-1, because: w}\n",
       {"x has the value of z, which is no key"}},
      {kHead + "keys:\n  x: {setting: y, default: =4*z}\n",
       {"x has the value of z, which is no key"}},
      {kHead + "keys: {}\ntensors:\n  t: {parameter: p, part: keys, groups: 2}\n",
       {"t: groups are of a tensor with all parts"}},
      {kHead + "keys: {}\ntensors:\n  t: {parameter: p, groups: none}\n",
       {"wanted the number of groups of heads"}},
  });
}

TEST_CASE("families that are like each other: changes, removed entries, circles") {
  const Plugins plugins;
  plugins.write("model_tiny.families/base",
                "model_type: base\narchitectures: [B]\nkeys:\n  x: {setting: y, default: 1}\n"
                "  z: {harmless: w}\ntensors:\n  t: p\n  u: q\n");
  plugins.write("model_tiny.families/more",
                "model_type: more\narchitectures: [M]\nlike: base\nsettings: {bias: true}\nkeys:\n"
                "  x: {setting: y, default: 2}\n  z: null\ntensors:\n  u: r\n  v: s\n");
  plugins.write("model_tiny.families/one", "model_type: one\narchitectures: [O]\nlike: two\n");
  plugins.write("model_tiny.families/two", "model_type: two\narchitectures: [T]\nlike: one\n");
  const HfFamilies families = plugins.read();
  const HfFamily& more = *families.find("more", "");
  CHECK(more.key("x")->omitted->value.as_int() == 2);
  CHECK_FALSE(more.key("z"));
  CHECK(more.tensors.size() == 3);
  CHECK(more.settings.size() == 1);
  CHECK(families.find("base", "")->settings.empty());
  CHECK(has(families.faults().text(), "in a circle"));
  Schema schema{.name = "tiny", .doc = "", .fields = {}, .needs = ""};
  CHECK(has(lacking_part(more, &schema), "the setting model.bias"));
  schema.fields.push_back(
      {.path = "bias", .type = FieldType::boolean, .default_value = "false", .needs = "biases"});
  CHECK(lacking_part(more, &schema) == "biases");
  schema.fields.back().needs = "";
  CHECK(lacking_part(more, &schema).empty());
  CHECK(has(lacking_part(more, nullptr), "the model plugin tiny"));
}

TEST_CASE("settings that the plugin does not have, and values that they cannot have, are named") {
  const Plugins plugins;
  plugins.write("model_tiny.families/a", kHead + R"(
settings: {bias: 3, norm: round}
zeros: {widht: layers}
keys:
  x: {setting: layer, default: 1}
  act: {setting: norm, values: {soft: layer, hard: sharp}, default: soft}
  y: {setting: layers, required: {norms: rms}, default: 1}
  z: {setting: layers, times: "layers * heigth"}
  drop: {dropout: dropout, default: 0.0}
training_settings: [speed]
tensors:
  t: {parameter: t, when: {bias: maybe, layers: not 0}}
  u: {parameter: u, when: {layers: not few}}
)");
  const HfFamilies families = plugins.read();
  REQUIRE_MESSAGE(families.faults().ok(), families.faults().text());
  Schema schema{.name = "tiny", .doc = "", .fields = {}, .needs = ""};
  schema.fields.push_back({.path = "layers", .type = FieldType::integer});
  schema.fields.push_back({.path = "bias", .type = FieldType::boolean});
  schema.fields.push_back({.path = "norm", .type = FieldType::string, .choices = {"rms", "layer"}});
  const Report report = hf_family_faults(*families.find("a", ""), schema, nullptr);
  const std::string text = report.text();
  for (const char* part :
       {"settings: model.bias cannot be 3: it is true or false",
        "settings: model.norm cannot be round: it is one of rms, layer", "no setting widht",
        "keys.x: the model plugin tiny has no setting layer",
        "keys.z: the model plugin tiny has no setting heigth",
        "a.yaml:7:", "keys.act: model.norm cannot be sharp",
        "keys.y: the model plugin tiny has no setting norms", "no setting speed",
        "tensors.t: model.bias cannot be maybe", "tensors.u: model.layers cannot be few"})
    CHECK_MESSAGE(has(text, part), text);
  CHECK(report.errors() == 10);
}

TEST_CASE("an earlier folder adds and replaces families; an earlier plugin replaces all") {
  const Plugins first;
  const fs::path later = first.path() / "later";
  first.write("model_tiny.families/a", kHead + "like: b\n");
  first.write("later/model_tiny.families/a", kHead + "needs: w\n");
  first.write("later/model_tiny.families/b", "model_type: b\narchitectures: [B]\nkeys: {}\n");
  first.write("later/model_other.families/a", kHead + "needs: z\n");
  HfFamilies families = HfFamilies::read({first.path(), later});
  CHECK_MESSAGE(families.faults().ok(), families.faults().text());
  CHECK(families.all().size() == 2);
  CHECK(families.find("b", ""));
  CHECK(families.find("a", "")->plugin == "tiny");
  CHECK(families.key(nullptr, "use_cache"));
  CHECK_FALSE(families.key(nullptr, "use_cash"));
  first.write("model_tiny.families/a", kHead + "needs: x\n");
  std::ofstream(first.path() / "model_tiny.so") << "a plugin";
  families = HfFamilies::read({first.path(), later});
  CHECK_FALSE(families.find("b", ""));
  CHECK(families.find("a", "")->needs == "x");
}

TEST_CASE("plus: a key counts more than its setting, in what is read, omitted and written") {
  const Plugins plugins;
  plugins.write("model.families/common",
                "keys:\n  model_type: {harmless: why}\n  architectures: {harmless: why}\n");
  plugins.write("model_tiny.families/a",
                kHead +
                    "keys:\n  max_position_embeddings: {setting: max_positions, plus: 2, "
                    "zero_setting: seq_length, default: 512}\n"
                    "  hidden_size: {setting: width}\ntensors:\n  t: p\n");
  const HfFamilies families = plugins.read();
  CHECK_MESSAGE(families.faults().ok(), families.faults().text());
  auto field = [](const char* path) {
    FieldSpec spec;
    spec.path = path;
    spec.type = FieldType::integer;
    spec.default_value = "0";
    return spec;
  };
  const Schema schema{.name = "tiny",
                      .doc = "",
                      .fields = {field("max_positions"), field("seq_length"), field("width")},
                      .needs = ""};
  const HfTarget target{.families = families,
                        .plugin = "tiny",
                        .schemas = {&schema},
                        .schema_of = [&](std::string_view) { return &schema; }};
  auto read = [&](const std::string& keys) {
    const HfFolderConfig config = read_hf_config(
        cat(R"({"model_type": "a", "architectures": ["A"], "hidden_size": 8)", keys, "}"),
        "config.json", target);
    for (const HfRefusal& refusal : config.refused) CHECK_MESSAGE(false, refusal.what);
    int64_t value = -1;
    for (const HfSetting& setting : config.settings)
      if (setting.path == "model.max_positions") value = setting.value.as_int();
    return value;
  };
  CHECK(read(R"(, "max_position_embeddings": 514)") == 512);
  CHECK(read("") == 510);  // the default of the config class is theirs, too
  auto written = [&](const char* settings) {
    const Node section = parse_yaml(settings);
    const HfFamily& family = *families.find("a", "");
    const std::string text = hf_config_text(families, family, HfModel(section, schema), {});
    return nlohmann::json::parse(text).at("max_position_embeddings").get<int64_t>();
  };
  CHECK(written("{max_positions: 512, seq_length: 128, width: 8}") == 514);
  CHECK(written("{max_positions: 0, seq_length: 128, width: 8}") == 130);
}

TEST_CASE("what acts only while training: folders do without it, a resume reports its change") {
  double noise = 0, scale = 1;
  Fields f;
  f("noise", noise, "").training_only();
  f("scale", scale, "");
  const HfFamily family;
  CHECK(is_training_setting(family, f.fields()[0].spec));
  CHECK_FALSE(is_training_setting(family, f.fields()[1].spec));
  CHECK(f.fields()[0].spec.resume == ResumeClass::changes_result);
}
