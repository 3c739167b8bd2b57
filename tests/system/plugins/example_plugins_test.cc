// examples/plugins as its reader uses it: copied out of the tree, built against an installed
// mtrain, and trained together in several layouts.
#include "../cli/training_run.h"
#include "installed.h"
#include "roots.h"

namespace mtrain::testing {
namespace {

constexpr int64_t kRecords = 120, kWidth = 65;

/// Sums in words, "7+5=12;", split into records of one byte per id.
void write_records(const fs::path& file) {
  std::string text;
  for (int64_t i = 0; std::ssize(text) < kRecords * kWidth; ++i) {
    const int64_t a = i * 7 % 10, b = i * i % 10;
    text += cat(a, "+", b, "=", a + b, ";");
  }
  std::ofstream(file, std::ios::binary) << text.substr(0, kRecords * kWidth);
}

/// The folder of examples, copied and built.
struct Examples {
  fs::path folder = installed().folder / "example_plugins";
  Installed::Built built;
  std::string recipe = (folder / "recipes/together.yaml").string();

  Examples() {
    fs::copy(source_root() / "examples/plugins", folder, fs::copy_options::recursive);
    built = installed().build(folder);
    write_records(folder / "records.bin");
  }
  Outcome mtrain(const Words& words) const {
    return run(
        {.arguments = with({installed().mtrain, "--plugin-path", built.folder.string()}, words)});
  }
  /// Eight steps, with a checkpoint after four.
  void train(const std::string& name, const Words& words) const {
    Outcome out = mtrain(
        with({recipe, "-q", "run.threads=1", "train.steps=8", "scheduler.warmup_steps=0",
              "checkpoint.interval=4", "validation.interval=8", "run.dir=" + at(name).string()},
             words));
    const std::string details = text(words) + out.err;
    REQUIRE_MESSAGE(out.status == 0, details);
  }
  fs::path at(const std::string& name) const { return folder / "runs" / name; }
  std::string digest(const std::string& name) const {
    Outcome out = mtrain({"checkpoint", "digest", at(name).string()});
    REQUIRE_MESSAGE(out.status == 0, out.err);
    return out.out;
  }
  Json bench(const Words& words) const {
    Outcome out = mtrain(
        with({"bench", recipe, "--steps", "2", "--warmup", "1", "--json", "--plain"}, words));
    REQUIRE_MESSAGE(out.status == 0, out.err);
    return Json::parse(out.out);
  }
};

const Examples& examples() {
  static const Examples the_ones;
  return the_ones;
}

}  // namespace

TEST_CASE("the example plugins build outside the tree, with or without a CUDA compiler") {
  const Examples& e = examples();
  for (const char* file : {"model_gemma_like", "optimizer_muon_lion", "dataset_fixed_records"})
    for (const char* extension : {".so", ".json"})
      CHECK_MESSAGE(fs::exists(e.built.folder / (std::string(file) + extension)), file, extension);
  const bool cuda = e.built.configured.find("muon_lion: kernels for CUDA") != std::string::npos,
             skipped = e.built.configured.find("CUDA are skipped") != std::string::npos;
  CHECK(cuda != skipped);
  Outcome checked = e.mtrain({"check", e.recipe});
  CHECK_MESSAGE(checked.status == 0, checked.out, checked.err);
}

TEST_CASE("the example plugins train in every layout as on one rank") {
  const Examples& e = examples();
  e.train("one", {});
  const std::vector<Json> expected = rows(e.at("one"), "grad_norm"),
                          validated = rows(e.at("one"), "val_loss");
  REQUIRE(expected.size() == 8);
  REQUIRE(!validated.empty());
  REQUIRE(validated.back()["val_loss"].is_number());
  CHECK(expected.back()["loss"].get<double>() < expected.front()["loss"].get<double>());
  const std::vector<Words> layouts = {
      {"dist.nproc=2", "dist.tp=2"},
      {"dist.nproc=4", "dist.tp=4"},  // two ranks share a key head
      {"dist.nproc=2", "dist.tp=2", "dist.sp=true", "comm_overlap.tp=true",
       "model.recompute=selective", "model.recompute_modules=[layernorm]"},
      {"dist.nproc=4", "dist.tp=4", "dist.sp=true", "comm_overlap.tp=true"},
      {"dist.nproc=2", "dist.zero=1"},
      {"dist.nproc=2", "dist.zero=3"},
      {"dist.nproc=2", "dist.pp=2"},
      {"dist.nproc=2", "dist.pp=2", "dist.first_stage_layers=1"},
  };
  for (const Words& layout : layouts) {
    const std::string words = text(layout);
    CAPTURE(words);
    e.train("layout", layout);
    const std::vector<Json> seen = rows(e.at("layout"), "grad_norm");
    REQUIRE(seen.size() == expected.size());
    for (size_t i = 0; i < seen.size(); ++i) {
      CHECK(apart(seen[i], expected[i], "loss") < 1e-5);
      CHECK(apart(seen[i], expected[i], "grad_norm") < 1e-4);
    }
    const std::vector<Json> valid = rows(e.at("layout"), "val_loss");
    REQUIRE(valid.size() == validated.size());
    CHECK(apart(valid.back(), validated.back(), "val_loss") < 1e-5);
    fs::remove_all(e.at("layout"));
  }
}

TEST_CASE("recomputing parts of the example model changes no bit") {
  const Examples& e = examples();
  e.train("kept", {});
  const std::string kept = e.digest("kept");
  const std::vector<Words> choices = {
      {"model.recompute=full"},
      {"model.recompute=selective", "model.recompute_modules=[layernorm, mlp]"},
  };
  for (const Words& choice : choices) {
    e.train("recomputed", choice);
    CHECK_MESSAGE(e.digest("recomputed") == kept, text(choice));
    fs::remove_all(e.at("recomputed"));
  }
}

TEST_CASE("a resumed run of the example plugins ends as an uninterrupted one") {
  const Examples& e = examples();
  e.train("whole", {});
  e.train("resumed", {});
  REQUIRE(e.digest("resumed") == e.digest("whole"));
  forget_checkpoint(e.at("resumed"), 8);
  const std::string half = e.digest("resumed");
  CHECK(half != e.digest("whole"));
  e.train("resumed", {});
  CHECK(e.digest("resumed") == e.digest("whole"));
  // In another order it is other data, and the run says so.
  forget_checkpoint(e.at("resumed"), 8);
  Outcome other = e.mtrain({e.recipe, "-q", "train.steps=8", "dataset.shuffle=false",
                            "run.dir=" + e.at("resumed").string()});
  CHECK(other.status != 0);
  CHECK_MESSAGE(other.err.find("dataset.shuffle") != std::string::npos, other.err);
}

TEST_CASE("rules and the memory plan know the sizes of the example model") {
  const Examples& e = examples();
  struct Row {
    Words words;
    std::vector<std::string> parts;
  };
  const Row rows[] = {
      {{"dist.nproc=3", "dist.tp=3"}, {"tp-divides-heads", "model.query_heads (4)"}},
      {{"dist.nproc=3", "dist.pp=3"}, {"layers-per-stage", "4 blocks"}},
      {{"model.key_heads=3"}, {"kv-heads-divide-heads", "model.key_heads"}},
      {{"offload.layers=4"}, {"offload-layers", "not below model.depth (4)", "offload.layers=3"}},
      {{"dataset.id_bytes=5"}, {"dataset.id_bytes"}},
  };
  for (const Row& row : rows) {
    Outcome out = e.mtrain(with({"check", e.recipe}, row.words));
    CHECK(out.status == 10);
    for (const std::string& part : row.parts)
      CHECK_MESSAGE(out.err.find(part) != std::string::npos, part, " in ", out.err);
  }
  // The table and the last norm once; of a block two norms, qkv (4 + 2 * 2 heads of 32), out, MLP.
  const auto parameters = [](int64_t depth) {
    const int64_t d = 64, f = 192, rows = 320;  // 257 ids, padded to a multiple of 64
    return rows * d + d + depth * (2 * d + 8 * 32 * d + 4 * 32 * d + 3 * f * d);
  };
  for (int64_t depth : {4, 8}) {
    const Json figures = e.bench({cat("model.depth=", depth)});
    CHECK(figures["parameters"].get<int64_t>() == parameters(depth));
    CHECK(figures["planned_memory"]["uses"] == figures["tensor_memory"]["uses"]);
    CHECK(figures["planned_memory"]["uses"]["parameters"].get<int64_t>() == 4 * parameters(depth));
  }
}

TEST_CASE("the layouts of the example model are verified") {
  const Examples& e = examples();
  Outcome out = e.mtrain({"verify", "layouts", (e.folder / "recipes/gemma_like.yaml").string(),
                          "--ranks", "2", "--steps", "2", "--only", "pp2"});
  CHECK_MESSAGE(out.status == 0, out.out, out.err);
}

TEST_CASE("the example dataset names what is wrong with a file") {
  const Examples& e = examples();
  const std::string run_dir = "run.dir=" + e.at("wrong").string();
  Outcome width = e.mtrain({e.recipe, "-q", "model.seq_length=63", run_dir});
  CHECK(width.status == 11);
  CHECK_MESSAGE(width.err.find("records of 64 bytes") != std::string::npos, width.err);
  Outcome ids = e.mtrain({e.recipe, "-q", "tokenizer={type: 'null', vocab_size: 50}", run_dir});
  CHECK(ids.status == 11);
  CHECK_MESSAGE(ids.err.find("ids are below 51") != std::string::npos, ids.err);
  Outcome valid = e.mtrain({e.recipe, "-q", "dataset.valid_share=0", run_dir});
  CHECK(valid.status == 11);
  CHECK_MESSAGE(valid.err.find("valid split") != std::string::npos, valid.err);
  const std::string off = "validation.steps=0";  // as the help says
  CHECK_MESSAGE(valid.err.find(off) != std::string::npos, valid.err);
  Outcome without = e.mtrain({e.recipe, "-q", "dataset.valid_share=0", off, "train.steps=1",
                              "scheduler.warmup_steps=0", run_dir});
  CHECK_MESSAGE(without.status == 0, without.err);
}

}  // namespace mtrain::testing
