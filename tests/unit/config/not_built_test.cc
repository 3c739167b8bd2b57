#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mtrain/base/text.h"
#include "mtrain/config/container.h"

using namespace mtrain;

namespace {

struct DenseOrMoe {
  std::string type = "dense";
  void bind(Fields& f) { f("type", type, "which model").plugin("model"); }
};

struct Dense {
  int64_t layers = 2, window = 0;
  void bind(Fields& f) {
    f("layers", layers, "blocks").min(1);
    f("attention.window", window, "tokens seen").min(0).needs("sliding-window attention");
  }
};

struct Layout {
  int64_t tp = 1, pp = 1, vp = 1;
  std::string backend = "cpu", precision = "fp32";
  std::vector<std::string> comm = {"p2p"};
  std::optional<double> skip;
  std::string key;
  void bind(Fields& f) {
    f("tp", tp, "tensor ranks").min(1).needs("parallel ranks");
    f("pp", pp, "stages").min(1).needs("parallel ranks");
    f("vp", vp, "virtual stages").min(1).needs("parallel ranks");
    f("backend", backend, "device kind").plugin("backend");
    f("precision", precision, "element type")
        .one_of({"fp32", "bf16", "fp8"})
        .needs("FP8 kernels", {"fp8"});
    f("comm", comm, "how").needs("all-to-all", {"a2a"});
    f("skip", skip, "threshold").needs("step skipping");
    f("key", key, "a secret").secret().needs("uploads");
  }
};

SchemaCatalog not_built_catalog() {
  SchemaCatalog out;
  out.add_section(schema_of<DenseOrMoe>("model", "the model"));
  out.add_section(schema_of<Layout>("dist", "the layout"));
  out.add_component("model", schema_of<Dense>("dense", "every block alike"));
  Schema moe = schema_of<Dense>("moe", "experts");
  moe.needs = "mixture-of-experts layers";
  out.add_component("model", std::move(moe));
  Schema cpu{"cpu", "", {}, {}}, cuda{"cuda", "", {}, "the CUDA backend"};
  cuda.left_out = true;
  out.add_component("backend", std::move(cpu));
  out.add_component("backend", std::move(cuda));
  return out;
}

Report not_built_report(std::string text, std::vector<std::string> overrides = {}) {
  ConfigRequest request{
      .recipe = "r.yaml", .text = std::move(text), .overrides = {}, .search_path = {}};
  int argument = 2;
  for (auto& override : overrides) request.overrides.push_back({std::move(override), argument++});
  Report report;
  ConfigContainer::load(request, not_built_catalog(), report);
  return report;
}

}  // namespace

TEST_CASE("a choice that does not exist is answered with those that are implemented") {
  const std::string text = not_built_report("dist: {precision: fp9}\nmodel: dense\n").text();
  CHECK_MESSAGE(text.find("wanted one of fp32, bf16; got fp9") != std::string::npos, text);
  CHECK_MESSAGE(text.find("note: not implemented yet: fp8") != std::string::npos, text);
}

TEST_CASE("what mtrain or this build lacks is refused at its place, one error for each part") {
  struct Row {
    const char* text;
    std::vector<std::string> overrides;
    size_t errors;
    std::vector<std::string> says;
  };
  const std::vector<Row> rows = {
      {"dist: {tp: 1, precision: bf16, comm: [p2p], skip: null}\nmodel: dense\n", {}, 0, {}},
      {"dist: {tp: 8}\n",
       {},
       1,
       {"error[not-built] dist.tp: needs parallel ranks, which mtrain does not implement yet",
        "r.yaml:1:12", "use dist.tp=1 instead"}},
      {"dist: {tp: 8, vp: 3}\n",
       {"dist.pp=4"},
       1,
       {"dist.tp: needs parallel ranks", "required by dist.tp=8, dist.pp=4, dist.vp=3",
        "use instead: dist.tp=1, dist.pp=1, dist.vp=1"}},
      {"dist: {precision: fp8}\n",
       {},
       1,
       {"dist.precision: needs FP8 kernels", "dist.precision=fp32"}},
      {"dist: {comm: [p2p, a2a]}\n", {}, 1, {"dist.comm: needs all-to-all"}},
      {"dist: {skip: 3}\n", {}, 1, {"dist.skip: needs step skipping", "dist.skip=null"}},
      {"dist: {backend: cuda}\n",
       {},
       1,
       {"dist.backend: needs the CUDA backend, which this build does not have",
        "dist.backend=cpu"}},
      {"model: moe\n",
       {},
       1,
       {"model.type: needs mixture-of-experts layers", "r.yaml:1:8",
        "use model.type=dense instead"}},
      {"model: {type: moe, attention: {window: 4096}}\n",
       {},
       2,
       {"mixture-of-experts layers", "model.attention.window: needs sliding-window attention"}},
      {"model: {attention: {window: 4096}}\n", {"model.attention.window=0"}, 0, {}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.text);
    Report report = not_built_report(row.text, row.overrides);
    std::string text = report.text();
    CHECK_MESSAGE(report.errors() == row.errors, text);
    for (const auto& part : row.says) CHECK_MESSAGE(text.find(part) != std::string::npos, text);
    for (const auto& fault : report.diagnostics()) {
      std::string shown = render(fault);
      CHECK(std::count(shown.begin(), shown.end(), '\n') < 6);
    }
  }
}

TEST_CASE("what is not implemented is checked all the same") {
  Report report = not_built_report(
      "dist: {tp: 0, precision: fp9}\nmodel: {type: moe, attention: {windw: 1}, layers: 0}\n");
  CHECK(report.errors() == 5);
  std::string text = report.text();
  for (const char* part :
       {"dist.tp: wanted integer >= 1", "bad-choice", "did you mean model.attention.window",
        "model.layers: wanted integer >= 1", "needs mixture-of-experts layers"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
}

TEST_CASE("a secret that is not implemented is not repeated") {
  Report report = not_built_report("dist: {tp: 2}\n", {"dist.key=hunter2", "dist.backend=cuda"});
  CHECK(report.errors() == 3);
  for (const auto& fault : report.diagnostics())
    CHECK(cat(fault.message, join(fault.notes, " "), fault.help).find("hunter2") ==
          std::string::npos);
}

TEST_CASE(
    "what is not implemented survives the text next to a plugin and shows in the JSON Schema") {
  Schema before = schema_of<Layout>("layout", "");
  before.needs = "a second machine";
  Schema after = schema_from_json(schema_to_json(before));
  CHECK(after.needs == before.needs);
  CHECK(schema_to_json(after) == schema_to_json(before));
  CHECK(after.fields[0].needs == "parallel ranks");
  CHECK(after.fields[4].needs_values == std::vector<std::string>{"fp8"});
  auto json = nlohmann::json::parse(json_schema_of(after));
  CHECK(json["properties"]["precision"]["description"] ==
        "element type; fp8: not implemented yet, needs FP8 kernels");
}
