// peft.base: adapters of weights that are stored as codes train as with PyPI's peft and
// bitsandbytes, in every layout, continue, are merged, and take the memory that they save.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "built_plugins.h"
#include "done.h"
#include "golden_case.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/train/file_values.h"
#include "mtrain/train/memory_plan.h"
#include "roots.h"
#include "small_tokenizer.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using mtrain::cat;

namespace {

fs::path golden(const std::string& name) { return source_root() / "tests/golden/qlora" / name; }

nlohmann::json golden_values(const std::string& name) {
  return nlohmann::json::parse(slurp(golden(name) / "golden.json"));
}

/// The weights of the golden values as `there`, the records of a case as x.jsonl, its adapters as
/// `start`, and a recipe.
void write_case(const Scratch& scratch, const std::string& name) {
  copy_model(scratch, golden("base"));
  fs::copy(golden(name) / "start", scratch / "start", fs::copy_options::recursive);
  scratch.write("x.jsonl", lines_of(golden_values(name).at("records")));
  scratch.write("r.yaml",
                "model: {type: llama, init_from: there, seq_length: 32}\n" + kGoldenTraining +
                    "dataset: {type: sft, path: x.jsonl, split: '1'}\n"
                    "train: {steps: 5, global_batch_size: 3, micro_batch_size: 1}\n"
                    "peft: {type: " +
                    (name == "nf4_dora" ? "dora" : "lora") +
                    ", base: " + name.substr(0, name.find('_')) + ", rank: 4, alpha: 8}\n");
}

double adapters_apart(const fs::path& folder, const fs::path& other) {
  return largest_difference(folder / "adapter_model.safetensors",
                            other / "adapter_model.safetensors");
}

}  // namespace

TEST_CASE("adapters of quantized weights train as with peft and bitsandbytes") {
  for (const std::string name : {"nf4", "int8", "nf4_dora"}) {
    CAPTURE(name);
    const Scratch scratch("mtrain-qlora");
    write_case(scratch, name);
    const nlohmann::json steps = golden_values(name).at("steps");
    done(scratch, "r.yaml -q run.dir=run peft.init_from=start");
    const std::vector<double> losses = column(scratch / "run", "loss"),
                              norms = column(scratch / "run", "grad_norm");
    REQUIRE(losses.size() == steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      CHECK(losses[i] == doctest::Approx(steps[i].at("loss").get<double>()).epsilon(2e-6));
      CHECK(norms[i] == doctest::Approx(steps[i].at("grad_norm").get<double>()).epsilon(1e-5));
    }
    done(scratch, "-q export run out");
    CHECK(adapters_apart(golden(name) / "end", scratch / "out") < 5e-6);
    // Weights that are not quantized give another loss.
    done(scratch, "r.yaml -q run.dir=plain train.steps=1 peft.init_from=start peft.base=same");
    CHECK(std::fabs(column(scratch / "plain", "loss")[0] - losses[0]) > 1e-4);
  }
}

TEST_CASE("magnitudes and vectors on quantized weights learn the same in every layout") {
  const Scratch scratch("mtrain-qlora-kinds");
  write_case(scratch, "nf4_dora");
  int number = 0;
  for (const std::string set : {" peft.type=dora peft.base=nf4 peft.init_from=start ",
                                " peft.type=dora peft.base=fp8 peft.init_from=start ",
                                " peft.type=ia3 peft.base=nf4 optimizer.lr=1e-2 "}) {
    const std::string one = cat("one", number);
    done(scratch, "r.yaml -q run.dir=" + one + set);
    const std::vector<double> want = column(scratch / one, "loss");
    for (const std::string layout : {"dist.tp=2", "dist.pp=2", "dist.cp=2"}) {
      CAPTURE(set + layout);
      const std::string run = cat("r", ++number);
      done(scratch, "r.yaml -q dist.nproc=2 run.dir=" + run + set + layout);
      const std::vector<double> got = column(scratch / run, "loss");
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(got[i] == doctest::Approx(want[i]).epsilon(3e-6));
    }
    // Merged are the values with which training computed.
    done(scratch, "-q merge " + one + " --dtype fp32 --into merged-" + one);
    const std::string eval =
        " -q --batches all --json dataset=sft dataset.path=x.jsonl "
        "dataset.split='0,1' mixed_precision.dtype=fp32";
    const auto loss_of = [&](const std::string& from) {
      return nlohmann::json::parse(done(scratch, "eval --from " + from + eval).out)
          .at("loss")
          .get<double>();
    };
    CHECK(loss_of("merged-" + one) == doctest::Approx(loss_of(one)).epsilon(3e-6));
  }
}

TEST_CASE("adapters of quantized weights learn the same in every layout") {
  const Scratch scratch("mtrain-qlora-layouts");
  for (const std::string base : {"nf4", "nf4 peft.double_quant=false", "int8", "fp8"}) {
    if (!fs::exists(scratch / "r.yaml")) write_case(scratch, "nf4");
    CAPTURE(base);
    const std::string set = "peft.init_from=start peft.base=" + base + " ",
                      of = base.substr(0, base.find(' ')) + (has(base, "double") ? "d" : "");
    done(scratch, "r.yaml -q run.dir=one" + of + " " + set);
    const std::vector<double> want = column(scratch / ("one" + of), "loss");
    done(scratch, "-q export one" + of + " one-out" + of);
    int number = 0;
    for (const std::string layout :
         {"dist.tp=2", "dist.tp=2 dist.sp=true comm_overlap.tp=true", "dist.pp=2", "dist.cp=2"}) {
      if (base != "nf4" && layout != "dist.tp=2") continue;
      CAPTURE(layout);
      const std::string run = cat("r", of, number++);
      done(scratch, "r.yaml -q dist.nproc=2 run.dir=" + run + " " + set + layout);
      const std::vector<double> got = column(scratch / run, "loss");
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(got[i] == doctest::Approx(want[i]).epsilon(3e-6));
      done(scratch, "-q export " + run + " out" + run);
      CHECK(adapters_apart(scratch / ("one-out" + of), scratch / ("out" + run)) < 1e-5);
    }
  }
  // Data-parallel ranks share 6 samples: each record twice.
  write_at(scratch / "x.jsonl", slurp(scratch / "x.jsonl") + slurp(scratch / "x.jsonl"));
  const std::string set = "train.global_batch_size=6 peft.init_from=start ";
  done(scratch, "r.yaml -q run.dir=six " + set);
  const std::vector<double> six = column(scratch / "six", "loss");
  for (const char* zero : {"0", "1", "3"}) {
    CAPTURE(zero);
    done(scratch,
         "r.yaml -q dist.nproc=2 run.dir=z" + std::string(zero) + " dist.zero=" + zero + " " + set);
    const std::vector<double> got = column(scratch / ("z" + std::string(zero)), "loss");
    REQUIRE(got.size() == six.size());
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(six[i]).epsilon(3e-6));
  }
}

TEST_CASE("a run of quantized weights continues to the bit, and keeps its codes") {
  const Scratch scratch("mtrain-qlora-resume");
  write_case(scratch, "nf4");
  const std::string set = "mixed_precision.dtype=bf16 peft.dropout=0.1 ";
  done(scratch, "r.yaml -q run.dir=whole train.steps=6 " + set);
  done(scratch, "r.yaml -q run.dir=halves train.steps=3 " + set);
  const Outcome other =
      cli_in(scratch.path(), "r.yaml -q run.dir=halves train.steps=6 peft.base=same " + set);
  CHECK(other.status != 0);
  CHECK_MESSAGE(has(other.err, "peft.base"), other.err);
  done(scratch, "r.yaml -q run.dir=halves train.steps=6 " + set);
  CHECK(column(scratch / "whole", "loss") == column(scratch / "halves", "loss"));
  // The same weights from a run of mtrain.
  done(scratch, "import there start-run -q");
  done(scratch, "r.yaml -q run.dir=of-run train.steps=6 model.init_from=start-run " + set);
  CHECK(column(scratch / "whole", "loss") == column(scratch / "of-run", "loss"));
}

TEST_CASE("merged weights are those of the codes, with the adapters") {
  const Scratch scratch("mtrain-qlora-merge");
  write_case(scratch, "nf4");
  done(scratch, "r.yaml -q run.dir=run optimizer.lr=1e-2 'peft.targets=[mlp.*, q_proj]'");
  done(scratch, "-q merge run --into merged --dtype fp32");
  auto loss = [&](const std::string& from) {
    return nlohmann::json::parse(
               done(scratch, "eval --from " + from +
                                 " -q --batches all --json dataset=sft dataset.path=x.jsonl "
                                 "dataset.split='0,1' mixed_precision.dtype=fp32")
                   .out)
        .at("loss")
        .get<double>();
  };
  CHECK(loss("merged") == doctest::Approx(loss("run")).epsilon(2e-6));
  // Into the folder's values, by way of a folder of adapters.
  done(scratch, "-q export run adapters");
  done(scratch, "-q merge adapters --base there --into onto-values --dtype fp32");
  CHECK(std::fabs(loss("onto-values") - loss("run")) > 1e-5);
  // A weight without adapters has the values of its codes, and what has no codes its own.
  const mtrain::SafetensorsFile base(scratch / "there/model.safetensors"),
      merged(scratch / "merged/model.safetensors");
  auto same = [&](const std::string& name) {
    return mtrain::file_values(base, base.at(name)) == mtrain::file_values(merged, merged.at(name));
  };
  CHECK_FALSE(same("model.layers.1.self_attn.k_proj.weight"));
  CHECK(same("lm_head.weight"));
  CHECK(same("model.embed_tokens.weight"));
  CHECK(same("model.layers.0.input_layernorm.weight"));
  const Outcome added = cli_in(scratch.path(), "eval --from run --adapter adapters --batches 1");
  CHECK(added.status != 0);
  CHECK_MESSAGE(has(added.err, "stored as codes"), added.err);
}

TEST_CASE("a Llama of 1.2 billion parameters in NF4 takes less than 1.5 GB besides activations") {
  mtrain::PluginHost plugins = built_plugins();
  auto plan = [&](std::vector<std::string> overrides) {
    for (const char* text :
         {"tokenizer=byte", "model.vocab_size=128256", "dataset=mock", "train.micro_batch_size=1",
          "train.global_batch_size=1", "model.seq_length=512", "dist.backend=cpu"})
      overrides.emplace_back(text);
    mtrain::RecipeRequest request{.recipe = (source_root() / "recipes/llama32_1b.yaml").string(),
                                  .text = {},
                                  .directory = {},
                                  .overrides = {},
                                  .cluster = {}};
    for (const std::string& text : overrides)
      request.overrides.push_back({text, static_cast<int>(request.overrides.size()) + 2});
    const mtrain::Recipe recipe = mtrain::read_recipe(request, plugins);
    recipe.report.throw_if_errors();
    const mtrain::MemoryPlan out = mtrain::plan_memory(recipe, plugins);
    CHECK(out.parameters > 1235'000'000);
    using enum mtrain::MemoryUse;
    return static_cast<double>(out.at_peak[parameters] + out.at_peak[gradients] +
                               out.at_peak[optimizer]);
  };
  const double nf4 = plan({"peft=qlora"}), floats = plan({"peft=qlora", "peft.double_quant=false"}),
               plain = plan({"peft=lora"});
  CHECK(nf4 < 1.5e9);
  CHECK(nf4 > 0.9e9);
  // 973 million elements of blocks: a byte for each block of 64 in place of four; 1.5 bytes of an
  // element less than bf16.
  CHECK(floats - nf4 == doctest::Approx(973e6 / 64 * 3).epsilon(0.05));
  CHECK(plain - nf4 == doctest::Approx(973e6 * 1.5).epsilon(0.03));
}

TEST_CASE("settings of quantized weights that cannot work are refused by name") {
  const Scratch scratch("mtrain-qlora-refused");
  write_case(scratch, "nf4");
  auto refuses = [&](const std::string& words, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), words);
    const std::string details = words + "\n" + outcome.err + outcome.out;
    CHECK_MESSAGE(outcome.status != 0, details);
    CHECK_MESSAGE(has(outcome.err + outcome.out, part), details);
  };
  refuses("check r.yaml mixed_precision.fp8=hybrid mixed_precision.dtype=bf16", "a second time");
  refuses("r.yaml -q run.dir=a dist.nproc=4 dist.tp=4", "whole blocks of 64");
  refuses("check r.yaml load_in_4bit=true", "peft.base");
  refuses("check r.yaml peft.type=qlora", "none, lora");
}
