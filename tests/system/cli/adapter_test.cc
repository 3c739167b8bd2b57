// peft=lora: adapters train as with PyPI's peft, in every layout, continue, are exported, imported
// and merged.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "adapter_case.h"
#include "done.h"
#include "golden_case.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/train/file_values.h"
#include "mtrain/train/peft_adapter.h"
#include "python_check.h"
#include "roots.h"
#include "small_tokenizer.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using mtrain::cat;

namespace {

void copy_base(const Scratch& scratch, const std::string& set = "llama_tiny", size_t ids = 200) {
  copy_model(scratch, source_root() / "tests/golden" / set, ids);
}

/// All records in each step.
void write_recipe(const Scratch& scratch) {
  scratch.write("r.yaml", "model: {type: llama, init_from: there, seq_length: 32}\n" +
                              kGoldenTraining +
                              "dataset: {type: sft, path: x.jsonl, split: '1'}\n"
                              "train: {steps: 5, global_batch_size: 3, micro_batch_size: 1}\n"
                              "peft: {type: lora}\n");
}

const std::map<std::string, std::string> kSettings = {
    {"qv", "peft.rank=4 peft.alpha=8 'peft.targets=[q_proj, attn.qkv.v]' "},
    {"all", "peft.rank=3 peft.alpha=6 peft.rslora=true "},
    {"dora",
     "peft.type=dora peft.rank=4 peft.alpha=6 "
     "'peft.targets=[q_proj, v_proj, o_proj, up_proj, down_proj]' "},
    {"plus",
     "peft.type=dora peft.rank=4 peft.alpha=8 'peft.targets=[q_proj, down_proj]' peft.lr_ratio=8 "
     "'peft.train=[embed.weight, head.weight]' "},
    {"sizes",
     "peft.type=dora peft.rank=4 peft.alpha=8 'peft.targets=[q_proj, v_proj, o_proj, down_proj]' "
     "'peft.ranks=[v_proj:2, mlp.down:6]' 'peft.alphas=[attn.qkv.v:10, o_proj:3]' "}};

/// A scratch folder with the base, the records of a golden case, and its adapters as `start`.
void write_case(const Scratch& scratch, const std::string& name) {
  copy_base(scratch);
  scratch.write("x.jsonl", lines_of(golden_values(name).at("records")));
  write_recipe(scratch);
  fs::copy(adapter_golden(name) / "start", scratch / "start", fs::copy_options::recursive);
}

double adapters_differ(const fs::path& folder, const fs::path& other) {
  return largest_difference(folder / "adapter_model.safetensors",
                            other / "adapter_model.safetensors");
}

}  // namespace

TEST_CASE("adapters of peft train as in peft, and are exported to its format") {
  for (const auto& [name, settings] : kSettings) {
    CAPTURE(name);
    const Scratch scratch("mtrain-adapters");
    write_case(scratch, name);
    const nlohmann::json steps = golden_values(name).at("steps");
    done(scratch, "r.yaml -q run.dir=run peft.init_from=start " + settings);
    const std::vector<double> losses = column(scratch / "run", "loss"),
                              norms = column(scratch / "run", "grad_norm");
    REQUIRE(losses.size() == steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      CHECK(losses[i] == doctest::Approx(steps[i].at("loss").get<double>()).epsilon(2e-6));
      CHECK(norms[i] == doctest::Approx(steps[i].at("grad_norm").get<double>()).epsilon(1e-5));
    }
    done(scratch, "-q export run out");
    CHECK(adapters_differ(adapter_golden(name) / "end", scratch / "out") < 5e-6);
    const Outcome twice = done(scratch, "eval --from run --adapter out --batches 1 --split train");
    CHECK_MESSAGE(has(twice.err, "the run has adapters of its own"), twice.err);
    // What was imported is exported again, to the bit.
    done(scratch, "r.yaml -q run.dir=zero train.steps=0 peft.init_from=start " + settings);
    done(scratch, "-q export zero same");
    CHECK(adapters_differ(adapter_golden(name) / "start", scratch / "same") == 0);
  }
}

TEST_CASE("a new adapter changes nothing at first; only adapters are trained and saved") {
  const Scratch scratch("mtrain-adapters-new");
  write_case(scratch, "qv");
  const Outcome said = done(scratch, "r.yaml run.dir=lora peft.rank=2 logger.interval=1");
  CHECK_MESSAGE(has(said.out + said.err, " trained)"), said.out);
  done(scratch, "r.yaml -q run.dir=full peft.type=none");
  CHECK(column(scratch / "lora", "loss")[0] ==
        doctest::Approx(column(scratch / "full", "loss")[0]).epsilon(1e-6));
  CHECK(column(scratch / "lora", "loss")[4] < column(scratch / "lora", "loss")[0]);
  const Outcome tensors = done(scratch, "checkpoint ls lora --json");
  for (const auto& entry : fs::recursive_directory_iterator(scratch / "lora/checkpoints/step-5")) {
    if (entry.path().extension() != ".safetensors") continue;
    const mtrain::SafetensorsFile file(entry.path());
    for (const mtrain::TensorInfo& t : file.tensors()) CHECK_MESSAGE(has(t.name, ".lora_"), t.name);
  }
}

TEST_CASE("a run of adapters continues to the bit, and refuses other weights") {
  const Scratch scratch("mtrain-adapters-resume");
  write_case(scratch, "all");
  const std::string set = kSettings.at("all") + "peft.dropout=0.1 mixed_precision.dtype=bf16 ";
  done(scratch, "r.yaml -q run.dir=whole train.steps=6 " + set);
  done(scratch, "r.yaml -q run.dir=halves train.steps=3 " + set);
  // The weights may be in another place.
  fs::rename(scratch / "there", scratch / "moved");
  done(scratch, "-q merge halves --base moved --into merged");
  done(scratch, "-q export halves exported --base moved");
  done(scratch, "-q merge exported --base moved --into again");
  CHECK(slurp(scratch / "merged/model.safetensors") == slurp(scratch / "again/model.safetensors"));
  const std::string moved = set + "model.init_from=moved tokenizer.path=moved ";
  done(scratch, "r.yaml -q run.dir=halves train.steps=6 " + moved);
  CHECK(column(scratch / "whole", "loss") == column(scratch / "halves", "loss"));
  std::string bytes = slurp(scratch / "moved/model.safetensors");
  bytes[bytes.size() - 2] ^= 1;
  write_at(scratch / "moved/model.safetensors", bytes);
  for (const std::string& words :
       {"r.yaml -q run.dir=halves train.steps=7 " + moved,
        std::string("eval --from halves --batches 1 model.init_from=moved tokenizer.path=moved")}) {
    const Outcome refused = cli_in(scratch.path(), words);
    CHECK_MESSAGE(refused.status == 12, refused.err);
    CHECK_MESSAGE(has(refused.err, "adapters of other weights"), refused.err);
  }
}

namespace {

/// Trains a golden case in several layouts, and compares with one rank.
void check_layouts(const std::string& name) {
  CAPTURE(name);
  const Scratch scratch("mtrain-adapters-layouts");
  write_case(scratch, name);
  const std::string set = "peft.init_from=start " + kSettings.at(name);
  done(scratch, "r.yaml -q run.dir=one " + set);
  const std::vector<double> want = column(scratch / "one", "loss"),
                            norms = column(scratch / "one", "grad_norm");
  done(scratch, "-q export one of-one");
  int number = 0;
  for (const std::string layout :
       {"dist.tp=2", "dist.tp=2 dist.sp=true", "dist.tp=2 dist.sp=true comm_overlap.tp=true",
        "dist.pp=2", "dist.cp=2", "dist.tp=4 --nproc 4", "model.recompute=full",
        "model.recompute=selective 'model.recompute_modules=[layernorm]'"}) {
    CAPTURE(layout);
    const std::string run = cat("r", number++),
                      ranks = has(layout, "nproc") || has(layout, "recompute") ? "" : " --nproc 2";
    done(scratch, "r.yaml -q run.dir=" + run + " " + set + layout + ranks);
    const std::vector<double> got = column(scratch / run, "loss");
    const std::vector<double> got_norms = column(scratch / run, "grad_norm");
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i] == doctest::Approx(want[i]).epsilon(3e-6));
      CHECK(got_norms[i] == doctest::Approx(norms[i]).epsilon(1e-5));
    }
    done(scratch, "-q export " + run + " out" + run);
    CHECK(adapters_differ(scratch / "of-one", scratch / ("out" + run)) < 1e-5);
  }
  // Data-parallel ranks share 6 samples: each record twice.
  write_at(scratch / "x.jsonl", slurp(scratch / "x.jsonl") + slurp(scratch / "x.jsonl"));
  done(scratch, "r.yaml -q run.dir=six train.global_batch_size=6 " + set);
  const std::vector<double> six = column(scratch / "six", "loss");
  for (const char* zero : {"0", "1", "2", "3"}) {
    CAPTURE(zero);
    const std::string run = std::string("z") + zero;
    done(scratch, "r.yaml -q --nproc 2 train.global_batch_size=6 run.dir=" + run +
                      " dist.zero=" + zero + " " + set);
    const std::vector<double> got = column(scratch / run, "loss");
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(six[i]).epsilon(3e-6));
  }
}

}  // namespace

TEST_CASE("adapters learn the same in every layout") { check_layouts("all"); }

TEST_CASE("adapters with magnitudes learn the same in every layout") { check_layouts("dora"); }

TEST_CASE("adapters and whole modules learn the same in every layout") { check_layouts("plus"); }

TEST_CASE("adapters of several ranks learn the same in every layout") { check_layouts("sizes"); }

namespace {

/// Golden models and settings of adapters.
const std::vector<std::pair<std::string, std::string>> kBases = {
    {"llama_tiny", "lora"},
    {"gpt2_tiny", "lora"},
    {"llama_tiny", "dora"},
    {"gpt2_tiny", "dora"},
    {"llama_tiny", "lora 'peft.train=[embed.weight, head.weight, *norm*]'"},
    {"gpt2_tiny", "dora 'peft.train=[*.bias]'"}};
}  // namespace

TEST_CASE("merged weights compute what weights and adapters compute") {
  for (const auto& [set, type] : kBases) {
    CAPTURE(set);
    CAPTURE(type);
    const Scratch scratch("mtrain-adapters-merge");
    write_case(scratch, "all");
    if (set == "gpt2_tiny") fs::remove_all(scratch / "there"), copy_base(scratch, set, 190);
    done(scratch, "r.yaml -q run.dir=run optimizer.lr=1e-2 peft.rank=2 peft.type=" + type +
                      " model.type=" + set.substr(0, set.find('_')));
    done(scratch, "-q merge run --into merged");
    auto loss = [&](const std::string& from) { return eval_loss(scratch, from); };
    CHECK(loss("merged") == doctest::Approx(loss("run")).epsilon(2e-6));
    CHECK(std::fabs(loss("merged") - loss("there")) > 1e-4);
    // By way of a folder of peft: the same bytes, and the same loss without merging.
    done(scratch, "-q export run adapters");
    CHECK(loss("there --adapter adapters") == doctest::Approx(loss("run")).epsilon(2e-6));
    done(scratch, "-q merge adapters --base there --into again");
    CHECK(slurp(scratch / "merged/model.safetensors") ==
          slurp(scratch / "again/model.safetensors"));
    const Outcome there = cli_in(scratch.path(), "merge run --into merged");
    CHECK(there.status != 0);
    CHECK_MESSAGE(has(there.err, "exists already"), there.err);
  }
}

TEST_CASE("an embedding that is the output head, too, is merged and not exported to peft") {
  const Scratch scratch("mtrain-adapters-tied");
  write_case(scratch, "all");
  fs::remove_all(scratch / "there"), copy_base(scratch, "gpt2_tiny", 190);
  done(scratch, "r.yaml -q run.dir=run model.type=gpt2 'peft.train=[embed.weight]'");
  const Outcome refused = cli_in(scratch.path(), "export run out");
  CHECK(refused.status != 0);
  CHECK_MESSAGE(has(refused.err, "which is also the output head"), refused.err);
  done(scratch, "-q merge run --into merged");
  CHECK(eval_loss(scratch, "merged") == doctest::Approx(eval_loss(scratch, "run")).epsilon(2e-6));
}

TEST_CASE("peft loads exported adapters without a warning and computes the merged model's logits") {
  for (const auto& [set, type] : kBases) {
    CAPTURE(set);
    CAPTURE(type);
    const Scratch scratch("mtrain-adapters-peft");
    write_case(scratch, "all");
    if (set == "gpt2_tiny") fs::remove_all(scratch / "there"), copy_base(scratch, set, 190);
    done(scratch,
         "r.yaml -q run.dir=run optimizer.lr=3e-2 peft.rank=3 peft.alpha=5 peft.rslora=true "
         "peft.type=" +
             type + " model.type=" + set.substr(0, set.find('_')));
    done(scratch, "-q export run adapters");
    done(scratch, "-q merge run --into merged");
    if (!peft_agrees(scratch)) return;
  }
}

TEST_CASE("adapters of experts learn the same in every layout, and are merged") {
  const Scratch scratch("mtrain-adapters-experts");
  write_case(scratch, "all");
  write_at(scratch / "x.jsonl", slurp(scratch / "x.jsonl") + slurp(scratch / "x.jsonl"));
  std::string text = slurp(scratch / "r.yaml");
  text.replace(text.find("type: llama"), 11, "type: moe");
  scratch.write("sparse.yaml", text);
  done(scratch,
       "sparse.yaml -q run.dir=sparse train.steps=1 peft.type=none model.init_upcycle=true "
       "model.moe.experts=4 model.moe.top_k=2");
  done(scratch, "-q export sparse base");
  for (const std::string shared : {"true", "false"}) {
    CAPTURE(shared);
    const std::string set =
        "sparse.yaml -q model.init_from=base peft.rank=3 optimizer.lr=1e-2 "
        "'peft.targets=[attn.*, mlp.experts.*]' train.global_batch_size=6 "
        "peft.share_expert_adapters=" +
        shared + " run.dir=" + shared;
    done(scratch, set);
    const std::vector<double> want = column(scratch / shared, "loss"),
                              norms = column(scratch / shared, "grad_norm");
    CHECK(want.back() < want.front() - 0.01);
    int number = 0;
    for (const std::string layout :
         {"dist.ep=2", "dist.zero=3", "dist.pp=2", "dist.tp=2 dist.sp=true dist.etp=1",
          "dist.tp=2 dist.sp=true dist.etp=2"}) {
      if (shared == "true" && has(layout, "etp=2")) continue;
      CAPTURE(layout);
      const std::string run = shared + std::to_string(number++);
      done(scratch, set + std::to_string(number - 1) + " --nproc 2 " + layout);
      const std::vector<double> got = column(scratch / run, "loss"),
                                got_norms = column(scratch / run, "grad_norm");
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-5));
        CHECK(got_norms[i] == doctest::Approx(norms[i]).epsilon(1e-4));
      }
    }
    done(scratch, "-q merge " + shared + " --into merged" + shared);
    CHECK(eval_loss(scratch, "merged" + shared) ==
          doctest::Approx(eval_loss(scratch, shared)).epsilon(3e-6));
    CHECK(std::fabs(eval_loss(scratch, shared) - eval_loss(scratch, "base")) > 1e-2);
    const Outcome refused = cli_in(scratch.path(), "export " + shared + " out");
    CHECK_MESSAGE(has(refused.err, "adapters of experts"), refused.err);
  }
  const Outcome etp = cli_in(scratch.path(),
                             "sparse.yaml run.dir=e model.init_from=base "
                             "'peft.targets=[mlp.experts.*]' --nproc 2 dist.tp=2 dist.sp=true "
                             "dist.etp=2 train.global_batch_size=6");
  CHECK_MESSAGE(has(etp.err, "peft.share_expert_adapters"), etp.err);
}

namespace {

/// The names of all tensors in the checkpoints of a run.
std::string saved_names(const fs::path& run) {
  std::string names;
  for (const auto& entry : fs::recursive_directory_iterator(run / "checkpoints")) {
    if (entry.path().extension() != ".safetensors") continue;
    const mtrain::SafetensorsFile file(entry.path());
    for (const mtrain::TensorInfo& t : file.tensors()) names += t.name + "\n";
  }
  return names;
}

}  // namespace

TEST_CASE("the default targets include T5's cross-attention, and patterns may name blocks") {
  const Scratch scratch("mtrain-adapters-t5");
  std::string text;
  for (int i = 0; i < 200; ++i) text += cat("{\"text\": \"words of a text, number ", i, "\"}\n");
  scratch.write("x.jsonl", text);
  done(scratch, "data prepare -q -i x.jsonl -o x -t byte --append-eod");
  scratch.write("r.yaml",
                "model: {type: t5, layers: 2, encoder_layers: 1, hidden_size: 16, heads: 2, "
                "head_dim: 8, ffn_hidden_size: 32, seq_length: 48, decoder_seq_length: 16}\n"
                "tokenizer: {type: byte, extra_ids: 8}\n"
                "dataset: {type: t5_seq2seq, path: x, split: '100,0,0', sentinels: 8, "
                "decoder_seq_length: 16, start_token: <extra_id_7>}\n"
                "train: {steps: 2, micro_batch_size: 2, global_batch_size: 2}\n"
                "validation: {steps: 0}\nrun: {threads: 1}\noptimizer: {type: adamw, lr: 1e-3}\n"
                "mixed_precision: {dtype: fp32}\n");
  done(scratch, "r.yaml -q run.dir=base");
  for (const std::string type : {"lora", "dora"}) {
    done(scratch,
         "r.yaml -q model.init_from=base peft.rank=2 run.dir=" + type + " peft.type=" + type);
    CHECK(has(saved_names(scratch / type), "cross."));
  }
  const Scratch llama("mtrain-adapters-blocks");
  write_case(llama, "qv");
  done(llama, "r.yaml -q run.dir=some peft.rank=2 'peft.targets=[layers.1.attn.*]'");
  const std::string names = saved_names(llama / "some");
  CHECK_MESSAGE(has(names, "layers.1.attn.qkv.lora_a"), names);
  CHECK_FALSE(has(names, "layers.0."));
  CHECK_FALSE(has(names, "mlp"));
}

TEST_CASE("adapters that do not fit are refused by name") {
  const Scratch scratch("mtrain-adapters-refused");
  write_case(scratch, "qv");
  auto refuses = [&](const std::string& words, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), words);
    const std::string details = words + "\n" + outcome.err;
    CHECK_MESSAGE(outcome.status != 0, details);
    CHECK_MESSAGE(has(outcome.err, part), details);
  };
  const std::string run = "r.yaml -q run.dir=run ", set = kSettings.at("qv");
  refuses(run + "'peft.targets=[attn.query]'", "peft.targets: 'attn.query' matches no weight");
  refuses(run + "'peft.targets=[attn.query]'", "attn.qkv.q");
  for (const auto& [pattern, whole] : {std::pair{"lm_head", "lm_head"},
                                       {"embed_tokens", "embed_tokens"},
                                       {"norm", "norm.weight"},
                                       {"norm1", "*.norm1.weight"}})
    refuses(cat("check r.yaml 'peft.targets=[q_proj, ", pattern, "]'"),
            cat("help: peft.train=['", whole, "'] trains it whole, besides the adapters; weights"));
  refuses(run + "'peft.train=[no.such]'", "peft.train: 'no.such' matches no parameter");
  refuses("check r.yaml 'peft.targets=[attn.query]'", "'attn.query' matches no weight");
  refuses("check r.yaml 'peft.targets=[cross.*]'", "'cross.*' matches no weight");
  refuses("check r.yaml 'peft.ranks=[cross.*:2]'", "'cross.*' matches no weight with an adapter");
  refuses("check r.yaml 'peft.ranks=[q_proj:2.5]'", "'q_proj:2.5' is no pattern with a rank");
  refuses("check r.yaml 'peft.alphas=[q_proj]'", "'q_proj' is no pattern with a positive number");
  refuses("check r.yaml " + set + "peft.init_from=start peft.rank=8",
          "model.layers.0.self_attn.q_proj has rank 4, and peft.rank is 8");
  for (const char* dtype : {"fp32", "auto"})
    CHECK(cli_in(scratch.path(), cat("check r.yaml mixed_precision.dtype=", dtype, ' ', set,
                                     "peft.init_from=start"))
              .status == 0);
  refuses(run + "'peft.targets=[mlp.up]' peft.init_from=start",
          "mlp.up_proj.weight has an adapter by peft.targets");
  refuses(run + set + "peft.init_from=start peft.rank=8",
          "model.layers.0.self_attn.q_proj has rank 4, and peft.rank is 8");
  refuses(run + set + "peft.init_from=start peft.alpha=9", "is multiplied by 2, and peft.alpha");
  refuses(run + set + "peft.init_from=start peft.type=dora",
          "they are adapters of lora, and peft.type is dora");
  refuses("check r.yaml model.init_from='' model.type=llama", "lora needs model.init_from");
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {R"("use_qalora": false)", R"("use_qalora": true)"},
           {R"("peft_type": "LORA")", R"("peft_type": "LOHA")"},
           {R"("bias": "none")", R"("bias": "some")"},
           {R"("alpha_pattern": {})", R"("alpha_pattern": {"q_proj": 0})"},
           {R"("rank_pattern": {})", R"("rank_pattern": {".*": 4})"}}) {
    std::string config = slurp(adapter_golden("qv") / "start/adapter_config.json");
    const size_t at = config.find(from);
    REQUIRE(at != std::string::npos);
    write_at(scratch / "start/adapter_config.json", config.replace(at, from.size(), to));
    refuses(run + set + "peft.init_from=start", to.substr(1, to.find('"', 1) - 1));
  }
  done(scratch, "r.yaml -q run.dir=lora " + set);
  refuses(run + set + "peft.init_from=lora", "lora is a run, not a folder of peft");
  write_at(scratch / "start/adapter_config.json", "[1]");
  refuses("merge start --base there --into out", "is not a JSON object");
  refuses("merge there --into out", "is neither a run, nor a checkpoint, nor a folder");
  CHECK_FALSE(fs::exists(scratch / "out"));
}
