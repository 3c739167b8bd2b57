// peft.init=pissa and peft.type=ia3: they train as with PyPI's peft, in every layout, continue, are
// exported, imported and merged.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "adapter_case.h"
#include "done.h"
#include "golden_case.h"
#include "mtrain/train/peft_adapter.h"
#include "python_check.h"
#include "roots.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using mtrain::cat;

namespace {

const std::map<std::string, std::string> kKindSettings = {
    {"pissa",
     "peft.type=lora peft.init=pissa peft.rank=4 peft.alpha=6 "
     "'peft.targets=[q_proj, k_proj, v_proj, o_proj, up_proj, down_proj]' "},
    {"ia3", "peft.type=ia3 optimizer.weight_decay=0 "}};

/// The base, the records of a golden case, and a recipe for all records in each step.
void write_kind_case(const Scratch& scratch, const std::string& name,
                     const std::string& model = "llama") {
  copy_model(scratch, source_root() / ("tests/golden/" + model + "_tiny"),
             model == "gpt2" ? 190 : 200);
  scratch.write("x.jsonl", lines_of(golden_values(name).at("records")));
  scratch.write("r.yaml", "model: {type: " + model + ", init_from: there, seq_length: 32}\n" +
                              kGoldenTraining +
                              "dataset: {type: sft, path: x.jsonl, split: '1'}\n"
                              "train: {steps: 5, global_batch_size: 3, micro_batch_size: 1}\n");
}

/// The largest difference of an element of the changes s · b · a.
double changes_differ(const fs::path& folder, const fs::path& other) {
  const mtrain::PeftAdapter a = mtrain::read_peft_folder(folder),
                            b = mtrain::read_peft_folder(other);
  REQUIRE(a.modules.size() == b.modules.size());
  double worst = 0;
  for (size_t i = 0; i < a.modules.size(); ++i) {
    REQUIRE(a.modules[i].weight == b.modules[i].weight);
    const auto count = static_cast<size_t>(a.modules[i].out * a.modules[i].in);
    std::vector<float> x(count), y(count);
    mtrain::add_product(a.modules[i], x), mtrain::add_product(b.modules[i], y);
    for (size_t k = 0; k < count; ++k)
      worst = std::max(worst, std::fabs(static_cast<double>(x[k]) - static_cast<double>(y[k])));
  }
  return worst;
}

double files_differ(const fs::path& folder, const fs::path& other) {
  return largest_difference(folder / "adapter_model.safetensors",
                            other / "adapter_model.safetensors");
}

void check_losses(const std::vector<double>& got, const std::vector<double>& want, double epsilon) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i)
    CHECK(got[i] == doctest::Approx(want[i]).epsilon(epsilon));
}

std::vector<double> golden_losses(const std::string& name) {
  const nlohmann::json steps = golden_values(name).at("steps");
  std::vector<double> out;
  for (const auto& step : steps) out.push_back(step.at("loss").get<double>());
  return out;
}

}  // namespace

TEST_CASE("adapters that start from singular vectors train and are exported as in peft") {
  const Scratch scratch("mtrain-pissa");
  write_kind_case(scratch, "pissa");
  done(scratch, "r.yaml -q run.dir=run " + kKindSettings.at("pissa"));
  check_losses(column(scratch / "run", "loss"), golden_losses("pissa"), 1e-5);
  done(scratch, "-q export run out");
  CHECK(changes_differ(adapter_golden("pissa") / "end", scratch / "out") < 1e-5);
  CHECK(mtrain::read_peft_folder(scratch / "out").rank == 8);
  // Without a step nothing has changed, and the model is the folder's.
  done(scratch, "r.yaml -q run.dir=zero train.steps=0 " + kKindSettings.at("pissa"));
  CHECK(eval_loss(scratch, "zero") == doctest::Approx(eval_loss(scratch, "there")).epsilon(1e-6));
  const std::string ranks = kKindSettings.at("pissa") + "'peft.ranks=[v_proj:2, mlp.down:6]' ";
  done(scratch, "r.yaml -q run.dir=ranks train.steps=0 'peft.alphas=[k_proj:3]' " + ranks);
  CHECK(eval_loss(scratch, "ranks") == doctest::Approx(eval_loss(scratch, "there")).epsilon(1e-6));
  done(scratch, "r.yaml -q run.dir=rs peft.rslora=true " + kKindSettings.at("pissa"));
  done(scratch, "-q merge rs --into merged");
  CHECK(eval_loss(scratch, "merged") == doctest::Approx(eval_loss(scratch, "rs")).epsilon(2e-6));
}

TEST_CASE("vectors of peft train as in peft, and are imported and exported") {
  const Scratch scratch("mtrain-ia3");
  write_kind_case(scratch, "ia3");
  fs::copy(adapter_golden("ia3") / "start", scratch / "start", fs::copy_options::recursive);
  done(scratch, "r.yaml -q run.dir=run peft.init_from=start " + kKindSettings.at("ia3"));
  check_losses(column(scratch / "run", "loss"), golden_losses("ia3"), 2e-6);
  done(scratch, "-q export run out");
  CHECK(files_differ(adapter_golden("ia3") / "end", scratch / "out") < 5e-6);
  done(scratch,
       "r.yaml -q run.dir=zero train.steps=0 peft.init_from=start " + kKindSettings.at("ia3"));
  done(scratch, "-q export zero same");
  CHECK(files_differ(adapter_golden("ia3") / "start", scratch / "same") < 1.5e-7);  // l - 1 + 1
  const Outcome listed = done(scratch, "adapters ls out --json");
  CHECK_MESSAGE(has(listed.out, "\"ia3\""), listed.out);
  auto refuses = [&](const std::string& words, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), words);
    const std::string details = words + "\n" + outcome.err;
    CHECK_MESSAGE(outcome.status != 0, details);
    CHECK_MESSAGE(has(outcome.err, part), details);
  };
  const std::string new_run = "r.yaml -q run.dir=other peft.init_from=start ";
  refuses(new_run + "peft.type=lora 'peft.targets=[k_proj, v_proj, down_proj]'",
          "they are adapters of ia3, and peft.type is lora");
  refuses(new_run + "peft.feedforward=[] " + kKindSettings.at("ia3"),
          "multiplies its inputs, and by peft.feedforward its results");
  refuses(new_run + "peft.type=ia3 'peft.targets=[k_proj, down_proj]'", "v_proj");
  refuses(
      "r.yaml -q run.dir=other peft.type=ia3 'peft.targets=[q_proj, k_proj]' "
      "'peft.feedforward=[attn.qkv]'",
      "share their inputs");
  refuses("r.yaml -q run.dir=other 'peft.feedforward=[mlp.sideways]' " + kKindSettings.at("ia3"),
          "peft.feedforward: 'mlp.sideways' matches no weight of peft.targets");
  refuses(
      "r.yaml -q run.dir=other peft.type=ia3 'peft.targets=[attn.qkv]' "
      "'peft.feedforward=[k_proj]'",
      "share their inputs, and only some of them are in peft.feedforward");

  // peft has one vector for each of the weights that share inputs.
  const std::string shared =
      "r.yaml -q peft.type=ia3 'peft.targets=[attn.qkv]' 'peft.feedforward=[attn.qkv]' "
      "optimizer.weight_decay=0 ";
  done(scratch, shared + "run.dir=inputs");
  done(scratch, "-q export inputs vectors");
  done(scratch, shared + "run.dir=again train.steps=0 peft.init_from=vectors");
  done(scratch, "-q export again same-vectors");
  CHECK(files_differ(scratch / "vectors", scratch / "same-vectors") < 1.5e-7);
  spoil_tensor(scratch / "vectors/adapter_model.safetensors", "layers.1.self_attn.k_proj.ia3_l");
  refuses(shared + "run.dir=other peft.init_from=vectors",
          "multiply the inputs that they share by different vectors");
  refuses("adapters diff out same", "vectors that multiply results");
}

TEST_CASE("both kinds of adapters continue to the bit") {
  for (const auto& [name, settings] : kKindSettings) {
    CAPTURE(name);
    const Scratch scratch("mtrain-kinds-resume");
    write_kind_case(scratch, name);
    const std::string set = settings + "mixed_precision.dtype=bf16 optimizer.lr=1e-2 ";
    done(scratch, "r.yaml -q run.dir=whole train.steps=6 " + set);
    done(scratch, "r.yaml -q run.dir=halves train.steps=3 " + set);
    done(scratch, "r.yaml -q run.dir=halves train.steps=6 " + set);
    CHECK(column(scratch / "whole", "loss") == column(scratch / "halves", "loss"));
    done(scratch, "-q export whole a");
    done(scratch, "-q export halves b");
    CHECK(files_differ(scratch / "a", scratch / "b") == 0);
    if (name != "pissa") continue;
    // Another factor leaves another frozen weight.
    const Outcome refused =
        cli_in(scratch.path(), "r.yaml -q run.dir=halves train.steps=7 " + set + "peft.alpha=7");
    CHECK_MESSAGE(refused.status == 12, refused.err);
    CHECK_MESSAGE(has(refused.err, "peft.alpha and peft.rslora must be the same"), refused.err);
  }
}

TEST_CASE("both kinds of adapters learn the same in every layout") {
  std::map<std::string, std::string> all = kKindSettings;
  // Vectors of results that ranks sum, and of inputs that all ranks have.
  all["ia3 elsewhere"] =
      "peft.type=ia3 'peft.targets=[attn.*, mlp.*]' 'peft.feedforward=[mlp.up, attn.out]' "
      "optimizer.weight_decay=0 ";
  for (const auto& [name, settings] : all) {
    CAPTURE(name);
    const Scratch scratch("mtrain-kinds-layouts");
    write_kind_case(scratch, name.substr(0, name.find(' ')));
    write_at(scratch / "x.jsonl", slurp(scratch / "x.jsonl") + slurp(scratch / "x.jsonl"));
    const std::string set = settings + "optimizer.lr=1e-2 train.global_batch_size=6 ";
    done(scratch, "r.yaml -q run.dir=one " + set);
    const std::vector<double> losses = column(scratch / "one", "loss"),
                              norms = column(scratch / "one", "grad_norm");
    CHECK(losses.back() < losses.front() - 5e-3);
    done(scratch, "-q export one of-one");
    int number = 0;
    for (const std::string layout :
         {"--nproc 2 dist.tp=2", "--nproc 2 dist.tp=2 dist.sp=true", "--nproc 2 dist.pp=2",
          "--nproc 2 dist.cp=2", "--nproc 4 dist.tp=4", "--nproc 2 dist.zero=1",
          "--nproc 2 dist.zero=3", "model.recompute=full", "train.micro_batch_size=2"}) {
      CAPTURE(layout);
      const std::string run = cat("r", number++);
      done(scratch, "r.yaml -q run.dir=" + run + " " + set + layout);
      check_losses(column(scratch / run, "loss"), losses, 3e-6);
      check_losses(column(scratch / run, "grad_norm"), norms, 2e-5);
      done(scratch, "-q export " + run + " out" + run);
      CHECK(files_differ(scratch / "of-one", scratch / ("out" + run)) < 2e-5);
    }
  }
}

TEST_CASE("singular vectors have the same bits in every layout") {
  const Scratch scratch("mtrain-pissa-bits");
  write_kind_case(scratch, "pissa");
  const std::string set = kKindSettings.at("pissa") + "train.steps=0 ";
  done(scratch, "r.yaml -q run.dir=one " + set);
  done(scratch, "-q export one of-one");
  int number = 0;
  for (const std::string layout :
       {"--nproc 2 dist.tp=2", "--nproc 4 dist.tp=4", "--nproc 2 dist.pp=2", "run.threads=3"}) {
    CAPTURE(layout);
    const std::string run = cat("r", number++);
    done(scratch, "r.yaml -q run.dir=" + run + " " + set + layout);
    done(scratch, "-q export " + run + " out" + run);
    CHECK(slurp(scratch / "of-one/adapter_model.safetensors") ==
          slurp(scratch / ("out" + run) / "adapter_model.safetensors"));
  }
}

TEST_CASE("merged weights compute what weights and adapters of both kinds compute") {
  for (const auto& [name, settings] : kKindSettings)
    for (const std::string model : {"llama", "gpt2"}) {
      CAPTURE(name);
      CAPTURE(model);
      const Scratch scratch("mtrain-kinds-merge");
      write_kind_case(scratch, name, model);
      std::string set = settings + "optimizer.lr=3e-2 ";
      if (model == "gpt2" && name == "pissa") set += "'peft.targets=[attn.*, mlp.*]' ";
      done(scratch, "r.yaml -q run.dir=run " + set);
      done(scratch, "-q merge run --into merged");
      const double trained = eval_loss(scratch, "run");
      CHECK(eval_loss(scratch, "merged") == doctest::Approx(trained).epsilon(2e-6));
      CHECK(std::fabs(trained - eval_loss(scratch, "there")) > 1e-3);
      done(scratch, "-q export run adapters");
      CHECK(eval_loss(scratch, "there --adapter adapters") ==
            doctest::Approx(trained).epsilon(2e-6));
      done(scratch, "-q merge adapters --base there --into again");
      CHECK(slurp(scratch / "merged/model.safetensors") ==
            slurp(scratch / "again/model.safetensors"));
      // With pissa, codes of what is left of the weight.
      done(scratch, "r.yaml -q run.dir=coded peft.base=int8 " + set);
      done(scratch, "-q merge coded --into decoded");
      CHECK(eval_loss(scratch, "decoded") ==
            doctest::Approx(eval_loss(scratch, "coded")).epsilon(2e-6));
    }
}

TEST_CASE("peft loads exported adapters of both kinds and computes the merged model's logits") {
  for (const auto& [name, settings] : kKindSettings)
    for (const std::string model : {"llama", "gpt2"}) {
      CAPTURE(name);
      CAPTURE(model);
      const Scratch scratch("mtrain-kinds-peft");
      write_kind_case(scratch, name, model);
      done(scratch,
           "r.yaml -q run.dir=run " + settings + "optimizer.lr=3e-2" +
               (model == "gpt2" && name == "pissa" ? " 'peft.targets=[attn.*, mlp.*]'" : ""));
      done(scratch, "-q export run adapters");
      done(scratch, "-q merge run --into merged");
      if (!peft_agrees(scratch)) return;
    }
}

TEST_CASE("what adapters of both kinds cannot have is refused before the run") {
  const Scratch scratch("mtrain-kinds-refused");
  write_kind_case(scratch, "pissa");
  auto refuses = [&](const std::string& set, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), "r.yaml -q run.dir=no " + set);
    const std::string details = set + "\n" + outcome.err;
    CHECK_MESSAGE(outcome.status == 10, details);
    CHECK_MESSAGE(has(outcome.err, part), details);
  };
  const std::string pissa = kKindSettings.at("pissa");
  refuses(pissa + "peft.rank=17", "has only 16 singular values, fewer than peft.rank=17");
  CHECK(has(cli_in(scratch.path(), "check r.yaml " + pissa + "peft.rank=17").err, "has only 16"));
  refuses(pissa + "peft.type=dora", "peft.init=pissa needs peft.type=lora");
  refuses(pissa + "'peft.train=[layers.0.attn.out.weight]'", "and peft.train trains it");
  scratch.write("p.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "c"})"
                           "\n");
  refuses(
      pissa +
          "objective=dpo objective.reference=adapters 'dataset={type: preference, path: p.jsonl}'",
      "needs adapters that initially change nothing");
}
