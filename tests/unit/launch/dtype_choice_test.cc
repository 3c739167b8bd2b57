// What mixed_precision.dtype=auto uses on the CPU, when a checkpoint exists, and on several ranks;
// a backend's own answers are tested with whole runs (tests/system/cli/dtype_choice_test.cc).
#include "mtrain/launch/dtype_choice.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/record/train_state.h"

using namespace mtrain;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / cat("mtrain-dtype-choice-", ::getpid());
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

PluginHost& no_plugins() {
  static PluginHost host(std::vector<fs::path>{});
  return host;
}

/// The recipe's settings as they are read. Its plugins are not there, which is no matter here.
Recipe recipe(const fs::path& run, const std::string& precision, const std::string& more = "") {
  std::string text =
      cat("model: llama\ndataset: mock\ntrain: {steps: 1}\nrun: {dir: ", run.string(),
          "}\nmixed_precision: {", precision, "}\n", more);
  return read_recipe(
      {.recipe = "r.yaml", .text = text, .directory = {}, .overrides = {}, .cluster = {}},
      no_plugins());
}

/// Leaves a checkpoint whose recipe says this type.
void save_step(const fs::path& run, int64_t step, const std::string& dtype) {
  CheckpointStore store(run / "checkpoints", StoreOptions{});
  std::array<std::byte, 4> value{};
  Slice slice = whole_slice("w", DType::f32, Shape{1}, value);
  CheckpointMeta meta;
  meta.config = cat("mixed_precision: {dtype: ", dtype, "}\n");
  meta.saved = "{}";
  store.save(step, std::span(&slice, 1), to_json(meta));
}

std::string here() { return make_cpu_backend(1)->bf16_products().fast ? "bf16" : "fp32"; }

std::string written(const Recipe& recipe) {
  return recipe.config.root().at("mixed_precision.dtype").as_text();
}

}  // namespace

TEST_CASE(
    "auto uses what the CPU multiplies faster, in settings and configuration; a type that is "
    "named stays") {
  Folder folder;
  Recipe open = recipe(folder.path, "dtype: auto"), named = recipe(folder.path, "dtype: fp16");
  REQUIRE(open.settings.mixed_precision.dtype == "auto");
  CHECK_THROWS_AS(open.settings.mixed_precision.compute_type(), Error);
  resolve_dtype(open, no_plugins());
  CHECK(open.settings.mixed_precision.dtype == here());
  CHECK(name(open.settings.mixed_precision.compute_type()) == here());
  CHECK(open.dtype_reason == make_cpu_backend(1)->bf16_products().reason);
  CHECK(written(open) == here());
  CHECK(open.config.section("mixed_precision").at("dtype").as_text() == here());
  CHECK(open.config.root().at("mixed_precision.dtype").loc().text() ==
        cat("auto: ", open.dtype_reason));
  CHECK(open.config.to_yaml().find(cat("dtype: ", here(), "\n")) != std::string::npos);
  resolve_dtype(named, no_plugins());
  CHECK(written(named) == "fp16");
  CHECK(named.dtype_reason.empty());
}

TEST_CASE("auto uses bf16 under FP8 and FP4 products") {
  Folder folder;
  for (const char* products : {"fp8: hybrid", "fp8: e4m3", "fp4: nvfp4"}) {
    CAPTURE(std::string(products));
    DtypeChoice choice =
        choose_dtype(recipe(folder.path, cat("dtype: auto, ", products)), no_plugins());
    CHECK(choice.dtype == "bf16");
    CHECK(choice.reason.find("is computed in bf16") != std::string::npos);
  }
}

TEST_CASE("a run that goes on keeps the type of its newest checkpoint") {
  Folder folder;
  std::string other = here() == "bf16" ? "fp32" : "bf16";
  save_step(folder.path, 1, here());
  CHECK(choose_dtype(recipe(folder.path, "dtype: auto"), no_plugins()).note.empty());
  save_step(folder.path, 2, other);
  DtypeChoice kept = choose_dtype(recipe(folder.path, "dtype: auto"), no_plugins());
  CHECK(kept.dtype == other);
  CHECK(kept.reason == "the dtype in which this run began");
  CHECK(kept.note == cat("mixed_precision.dtype: ", other,
                         ", the dtype in which this run began; auto would choose ", here(),
                         " on this machine"));
  CHECK(choose_dtype(recipe(folder.path, "dtype: auto", "checkpoint: {resume: never}\n"),
                     no_plugins())
            .dtype == here());
  save_step(folder.path, 3, "fp16");
  CHECK(choose_dtype(recipe(folder.path, "dtype: auto"), no_plugins()).dtype == "fp16");
  CHECK(choose_dtype(recipe(folder.path, "dtype: auto, fp8: e4m3"), no_plugins()).dtype == "fp16");
  save_step(folder.path, 4, "fp32");  // FP8 products do not stand in it
  CHECK(choose_dtype(recipe(folder.path, "dtype: auto, fp8: e4m3"), no_plugins()).dtype == "bf16");
}

TEST_CASE(
    "the type kept is that of the checkpoint that the run continues, not of a damaged newer one") {
  Folder folder;
  std::string other = here() == "bf16" ? "fp32" : "bf16";
  save_step(folder.path, 1, other);
  save_step(folder.path, 2, "fp16");
  fs::path shard = folder.path / "checkpoints" / "step-2" / "shard-00000-of-00001.safetensors";
  std::string bytes = read_file(shard);
  bytes.back() ^= 1;  // manifest and sizes stay right
  write_file_atomic(shard, bytes);
  CHECK(choose_dtype(recipe(folder.path, "dtype: auto"), no_plugins()).dtype == other);
}

TEST_CASE("all ranks take the first one's choice") {
  Folder folder;
  save_step(folder.path / "first", 1, "fp16");
  std::array<Recipe, 3> recipes;
  for (size_t r = 0; r < recipes.size(); ++r)
    recipes[r] = recipe(folder.path / (r == 0 ? "first" : "another"), "dtype: auto");
  run_ranks(3, [&](Communicator& ranks) {
    resolve_dtype(recipes[static_cast<size_t>(ranks.rank())], no_plugins(), ranks);
  });
  for (const Recipe& settled : recipes) {
    CHECK(settled.settings.mixed_precision.dtype == "fp16");
    CHECK(written(settled) == "fp16");
    CHECK(settled.dtype_reason == "the dtype in which this run began");
  }
}
