// objective=distillation: a student learns a teacher's distribution, in every layout, from a run or
// a Hugging Face folder, on texts and on answers; it continues to the bit, and a teacher that does
// not fit is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "distillation_case.h"
#include "golden_case.h"
#include "small_tokenizer.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using mtrain::cat;
using nlohmann::json;

TEST_CASE("a student learns from a larger teacher: every kind of divergence falls") {
  const Scratch scratch("mtrain-distill-learns");
  make_teacher(scratch);
  for (const std::string set :
       {"objective.kind=forward_kl", "objective.kind=reverse_kl",
        "objective.kind=jsd objective.beta=0.3", "objective.temperature=2 objective.alpha=0.25"}) {
    CAPTURE(set);
    fs::remove_all(scratch / "run");
    done(scratch, "s.yaml -q run.dir=run " + set);
    const std::vector<double> loss = figure(scratch / "run", "loss"),
                              kl = figure(scratch / "run", "kl"),
                              ce = figure(scratch / "run", "ce_loss");
    REQUIRE(kl.size() == 40);
    CHECK(kl.back() < 0.6 * kl.front());
    const double alpha = has(set, "alpha=0.25") ? 0.25 : 0;
    for (size_t i = 0; i < loss.size(); ++i)
      CHECK(loss[i] == doctest::Approx(alpha * ce[i] + (1 - alpha) * kl[i]).epsilon(1e-6));
    const std::vector<double> valid = figure(scratch / "run", "val_kl");
    REQUIRE(valid.size() == 2);
    CHECK(valid.back() < valid.front());
    CHECK(figure(scratch / "run", "val_ce_loss").size() == 2);
    const json eval = json::parse(done(scratch, "eval --json --from run").out);
    CHECK(eval.at("loss").get<double>() ==
          doctest::Approx(figure(scratch / "run", "val_ce_loss").back()).epsilon(1e-5));
  }
}

TEST_CASE("distillation with alpha=1 is training on the targets") {
  const Scratch scratch("mtrain-distill-alpha");
  make_teacher(scratch);
  done(scratch, "s.yaml -q run.dir=all objective.alpha=1");
  done(scratch, "s.yaml -q run.dir=plain ~objective.teacher objective.type=tokens");
  check_close(figure(scratch / "all", "loss"), figure(scratch / "plain", "loss"), 1e-6);
  check_close(figure(scratch / "all", "grad_norm"), figure(scratch / "plain", "grad_norm"), 1e-5);
}

TEST_CASE("the teacher may be a run, one of its checkpoints, or its export to a folder") {
  const Scratch scratch("mtrain-distill-folder");
  make_teacher(scratch);
  done(scratch, "-q export teacher folder");
  done(scratch, "s.yaml -q run.dir=one");
  for (const char* teacher : {"folder", "teacher/checkpoints/step-60"}) {
    const std::string run = cat("r", std::string(teacher).size());
    done(scratch, cat("s.yaml -q run.dir=", run, " objective.teacher=", teacher));
    for (const char* key : {"loss", "kl", "grad_norm"})
      CHECK(figure(scratch / run, key) == figure(scratch / "one", key));
  }
  // A student that is its teacher has nothing to learn.
  done(scratch,
       "t.yaml -q run.dir=same train.steps=1 model.init_from=teacher objective.type=distillation "
       "objective.teacher=teacher");
  CHECK(std::fabs(figure(scratch / "same", "kl").front()) < 1e-6);
}

TEST_CASE("distillation is the same in every layout and division") {
  const Scratch scratch("mtrain-distill-layouts");
  make_teacher(scratch);
  const std::string set =
      " train.steps=6 objective.kind=jsd objective.temperature=1.5 objective.alpha=0.2 ";
  done(scratch, "s.yaml -q run.dir=one" + set);
  int number = 0;
  for (const std::string layout :
       {"train.micro_batch_size=1", "train.micro_batch_size=8", "dist.nproc=2",
        "dist.nproc=2 dist.zero=1", "dist.nproc=2 dist.zero=2", "dist.nproc=2 dist.zero=3",
        "dist.nproc=2 dist.tp=2", "dist.nproc=2 dist.tp=2 dist.sp=true", "dist.nproc=2 dist.cp=2",
        "dist.nproc=2 dist.pp=2", "dist.nproc=2 dist.pp=2 dist.schedule=zb_h1",
        "dist.nproc=4 dist.pp=2 dist.tp=2 train.micro_batch_size=2",
        "dist.nproc=4 dist.tp=2 dist.zero=1 ddp.overlap_grad_reduce=true",
        "model.recompute=full"}) {
    CAPTURE(layout);
    const std::string run = cat("r", number++);
    done(scratch, cat("s.yaml -q run.dir=", run, set, layout));
    for (const char* key : {"loss", "kl", "ce_loss", "grad_norm"})
      check_close(figure(scratch / run, key), figure(scratch / "one", key), 2e-5);
  }
  // Adapters learn from the teacher, too.
  done(scratch,
       "s.yaml -q run.dir=lora train.steps=60 model.init_from=one peft.type=lora "
       "optimizer.lr=1e-2 dist.nproc=2 dist.tp=2");
  const std::vector<double> kl = figure(scratch / "lora", "kl");
  REQUIRE(kl.size() == 60);
  auto mean = [](auto begin) { return std::accumulate(begin, begin + 10, 0.0) / 10; };
  CHECK(mean(kl.end() - 10) < mean(kl.begin()));
}

TEST_CASE("distillation continues to the bit, and only with the same teacher") {
  const Scratch scratch("mtrain-distill-resume");
  make_teacher(scratch);
  done(scratch, "s.yaml -q run.dir=whole train.steps=8 objective.alpha=0.5");
  done(scratch, "s.yaml -q run.dir=halves train.steps=4 objective.alpha=0.5");
  done(scratch, "s.yaml -q run.dir=halves train.steps=8 objective.alpha=0.5");
  for (const char* key : {"loss", "kl", "ce_loss", "grad_norm"})
    CHECK(figure(scratch / "whole", key) == figure(scratch / "halves", key));
  done(scratch, "t.yaml -q run.dir=teacher train.steps=61");
  refuses(scratch, "s.yaml -q run.dir=halves train.steps=9 objective.alpha=0.5", 12,
          "objective.teacher: the weights are not those with which", "start a new run");
}

TEST_CASE("distillation learns answers only, and its memory is planned") {
  const Scratch scratch("mtrain-distill-answers");
  copy_model(scratch, source_root() / "tests/golden/llama_tiny");
  std::string lines;
  for (const char* answer : {"abc", "ab", "cab", "bbc"})
    lines += json{{"prompt", "cab abc bca"}, {"completion", answer}}.dump() + "\n";
  scratch.write("x.jsonl", lines);
  scratch.write("s.yaml",
                "model: {type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 32, "
                "seq_length: 32, vocab_size: 200}\n" +
                    kGoldenTraining +
                    "dataset: {type: sft, path: x.jsonl, split: '1'}\n"
                    "train: {steps: 12, global_batch_size: 2, micro_batch_size: 1}\n"
                    "objective: {type: distillation, teacher: there}\n");
  done(scratch, "s.yaml -q run.dir=run optimizer.lr=1e-2");
  const std::vector<double> kl = figure(scratch / "run", "kl");
  CHECK(kl.back() < kl.front());
  // The plan has the teacher: its weights, and the logits of a micro-batch.
  auto bench = [&](const std::string& set) {
    return json::parse(
        done(scratch, "bench s.yaml --steps 2 --warmup 1 --json --plain " + set).out);
  };
  const json with = bench(""), without = bench("~objective.teacher objective.type=tokens");
  CHECK(with.at("planned_memory") == with.at("tensor_memory"));
  auto parameters = [](const json& seen) {
    return seen.at("planned_memory").at("uses").at("parameters").get<int64_t>();
  };
  CHECK(parameters(with) - parameters(without) >=
        static_cast<int64_t>(fs::file_size(scratch / "there/model.safetensors")) - 8192);
  CHECK(with.at("planned_memory").at("uses").at("optimizer") ==
        without.at("planned_memory").at("uses").at("optimizer"));
  // Another tokenizer; a vocabulary of another size.
  fs::create_directories(scratch / "other");
  write_at(scratch / "other/tokenizer.json", small_tokenizer(200, {"<s>", "<unk>", "</s>"}));
  refuses(scratch, "s.yaml -q run.dir=a 'tokenizer={type: hf, path: other}'", 10,
          "another tokenizer", "the student's tokenizer");
  refuses(scratch, "s.yaml -q run.dir=a tokenizer=byte ~tokenizer.path ~model.vocab_size", 10,
          "objective.teacher: ", "the student's tokenizer");
}

TEST_CASE("a teacher that cannot be used is refused before the run, with what to do") {
  const Scratch scratch("mtrain-distill-refused");
  make_teacher(scratch);
  for (const char* command : {"check s.yaml ", "s.yaml -q run.dir=a "}) {
    auto says = [&](const std::string& set, const std::string& part,
                    const std::string& remedy = "") {
      refuses(scratch, command + set, 10, part, remedy);
    };
    says("objective.teacher=nowhere", "does not exist", "a Hugging Face folder or a run");
    fs::create_directories(scratch / "empty");
    says("objective.teacher=empty", "it has no config.json", "config.json");
    says("objective.teacher=''", "there is no teacher", "a run of mtrain");
    for (const char* other : {"bert_tiny", "t5_tiny"})
      says("objective.teacher=" + (source_root() / "tests/golden" / other).string(),
           "which learns the objective", "predicts the next token");
    says("objective.temperature=0", "objective.temperature");
    says("objective.temperature=-1", "objective.temperature");
    says("objective.alpha=1.5", "objective.alpha");
    says("objective.kind=kl", "forward_kl");
    says("objective.kind=jsd objective.beta=1", "objective.beta");
    says("dist.nproc=2 dist.pp=2 dist.vp=2 dist.schedule=interleaved model.layers=4",
         "one pipeline stage per rank", "objective.type=tokens");
    says("model.mtp.layers=1", "multi-token prediction", "model.mtp.layers=0");
    says("cuda_graph.type=full_iteration", "cannot be recorded");
    says(
        "dist.nproc=3 dist.tp=3 model.heads=6 model.kv_heads=6 model.hidden_size=48 "
        "model.ffn_hidden_size=96 "
        "train.global_batch_size=4",
        "the teacher cannot be built in this layout");
  }
  // One adapter is no model.
  done(scratch,
       "t.yaml -q run.dir=lora train.steps=1 peft.type=lora model.init_from=teacher "
       "validation.steps=0");
  refuses(scratch, "s.yaml -q run.dir=b objective.teacher=lora", 12, "has adapters only",
          "mtrain merge");
}

TEST_CASE("rerun refuses a teacher that has changed since the run began") {
  const Scratch scratch("mtrain-distill-rerun");
  make_teacher(scratch);
  done(scratch, "s.yaml -q run.dir=run train.steps=2");
  done(scratch, "rerun run -q run.dir=same");
  CHECK(figure(scratch / "same", "loss") == figure(scratch / "run", "loss"));
  done(scratch, "t.yaml -q run.dir=teacher train.steps=61");
  refuses(scratch, "rerun run -q run.dir=other", 12,
          "the weights of objective.teacher have changed since it began");
}

TEST_CASE("the recipe quickstart_distill learns from a larger model") {
  const Scratch scratch("mtrain-quickstart-distill");
  write_text(scratch);
  const std::string small =
      " dataset.path=x mixed_precision=fp32 run.threads=2 model.seq_length=64 "
      "validation.interval=0 ";
  done(scratch,
       "quickstart -q run.dir=large train.steps=40 model.layers=2 model.hidden_size=128 "
       "model.heads=2 model.ffn_hidden_size=256 optimizer.lr=2e-3" +
           small);
  done(scratch,
       "quickstart_distill -q run.dir=run objective.teacher=large train.steps=40 model.layers=1 "
       "model.hidden_size=64 model.heads=2 model.ffn_hidden_size=128" +
           small);
  const std::vector<double> kl = figure(scratch / "run", "kl");
  REQUIRE(kl.size() == 40);
  CHECK(kl.back() < 0.6 * kl.front());
}
