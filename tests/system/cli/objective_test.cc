// Objectives over answers: they learn as PyPI's trl does, in every layout, continue to the bit, and
// refuse what they cannot learn from.
#include "mtrain/optim/objective.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "built_plugins.h"
#include "letter_pairs.h"
#include "mtrain/base/text.h"
#include "mtrain/config/tree.h"
#include "objective_case.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using mtrain::cat;
using nlohmann::json;

namespace {

mtrain::Node node_of(const json& value) {
  if (value.is_string()) return mtrain::Node::string(value.get<std::string>());
  if (!value.is_array()) return mtrain::Node::number(value.get<double>());
  mtrain::Node list = mtrain::Node::list();
  for (const json& item : value) list.push(node_of(item));
  return list;
}

}  // namespace

TEST_CASE("objectives learn as in trl") {
  const Scratch scratch("mtrain-objectives");
  write_objective_case(scratch);
  for (const auto& [name, wanted] : golden_objectives().at("cases").items()) {
    CAPTURE(name);
    if (wanted.contains("records")) continue;  // kto_test.cc
    done(scratch, "r.yaml -q run.dir=" + name + settings_of(wanted.at("settings")));
    check_learned(scratch, name, wanted);
  }
}

TEST_CASE("the derivatives of objectives are those of their losses") {
  mtrain::PluginHost plugins = built_plugins();
  mtrain::ObjectiveContext context;
  const double kStep = 1e-5;
  for (const auto& [name, wanted] : golden_objectives().at("cases").items()) {
    CAPTURE(name);
    const json& settings = wanted.at("settings");
    mtrain::Node node = mtrain::Node::map();
    for (const auto& [key, value] : settings.items())
      if (key != "type") node.set(key, node_of(value));
    const auto objective =
        plugins.make<mtrain::Objective>(settings.at("type").get<std::string>(), node, context);
    for (const auto& [chosen, rejected] : {std::pair{-12.5, -17.25}, std::pair{-21.0, -9.5}}) {
      mtrain::Answer c{.logp = chosen, .reference = -14, .tokens = 5, .divergence = 1.75},
          r{.logp = rejected, .reference = -13, .tokens = 7};
      const bool pairs = objective->records() == mtrain::Objective::Records::pairs;
      for (const bool good : {true, false}) {
        auto value = [&] {
          return pairs ? objective->of_pair(c, r) : objective->of_label(c, good);
        };
        auto slope = [&](mtrain::Answer& answer) {
          const double at = answer.logp;
          answer.logp = at + kStep;
          const double high = value().loss;
          answer.logp = at - kStep;
          const double low = value().loss;
          answer.logp = at;
          return (high - low) / (2 * kStep);
        };
        CHECK(value().d_chosen == doctest::Approx(slope(c)).epsilon(1e-6).scale(1));
        if (pairs) CHECK(value().d_rejected == doctest::Approx(slope(r)).epsilon(1e-6).scale(1));
        CHECK(value().figures.size() == objective->figures().size());
      }
    }
    // A short answer may be so certain that its log-probability is rounded to 0.
    const mtrain::Answer sure{.logp = 0, .reference = 0, .tokens = 2};
    const bool pairs = objective->records() == mtrain::Objective::Records::pairs;
    const auto value = pairs ? objective->of_pair(sure, sure) : objective->of_label(sure, true);
    CHECK(std::isfinite(value.loss));
    CHECK(std::isfinite(value.d_chosen));
    CHECK(std::isfinite(value.d_rejected));
  }
}

TEST_CASE("an objective learns the same in every layout and division") {
  const Scratch scratch("mtrain-objectives-layouts");
  write_objective_case(scratch);
  const std::string set = " objective.beta=0.5 objective.sft_weight=0.1 ";
  done(scratch, "r.yaml -q run.dir=one" + set);
  done(scratch, "-q export one of-one");
  int number = 0;
  for (const std::string layout :
       {"train.micro_batch_size=1", "train.micro_batch_size=4", "dist.nproc=2",
        "dist.nproc=2 dist.zero=1", "dist.nproc=2 dist.zero=2", "dist.nproc=2 dist.zero=3",
        "dist.nproc=2 dist.tp=2", "dist.nproc=2 dist.tp=2 dist.sp=true", "dist.nproc=2 dist.cp=2",
        "dist.nproc=2 dist.pp=2", "dist.nproc=2 dist.pp=2 dist.schedule=zb_h1",
        "dist.nproc=4 dist.pp=2 dist.cp=2 train.micro_batch_size=1", "model.recompute=full"}) {
    CAPTURE(layout);
    const std::string run = cat("r", number++);
    done(scratch, cat("r.yaml -q run.dir=", run, set, layout));
    for (const char* key : {"loss", "grad_norm", "rewards/margins", "rewards/accuracies"})
      check_close(column(scratch / run, key), column(scratch / "one", key), 2e-5);
    done(scratch, "-q export " + run + " out" + run);
    CHECK(weights_difference(scratch / "of-one", scratch / ("out" + run)) < 1e-5);
  }
}

TEST_CASE("the reference is the model without its adapters, or the one before the first step") {
  const Scratch scratch("mtrain-objectives-reference");
  write_objective_case(scratch);
  const std::string set =
      " peft.type=lora peft.rank=4 peft.alpha=16 optimizer.lr=1e-2 train.steps=4 ";
  done(scratch, "r.yaml -q run.dir=off objective.reference=adapters" + set);
  CHECK_FALSE(fs::exists(scratch / "off/reference.safetensors"));
  const Outcome none = done(
      scratch, "r.yaml -q run.dir=none objective.type=simpo objective.reference=precomputed" + set);
  CHECK_MESSAGE(has(none.err, "objective.reference=precomputed has no effect"), none.err);
  done(scratch, "r.yaml -q run.dir=file objective.reference=precomputed" + set);
  CHECK(fs::exists(scratch / "file/reference.safetensors"));
  for (const char* key : {"loss", "rewards/chosen", "rewards/rejected"})
    check_close(column(scratch / "file", key), column(scratch / "off", key), 1e-7);
  CHECK(column(scratch / "off", "loss").front() == doctest::Approx(std::log(2.0)));
  CHECK(column(scratch / "off", "loss").back() < 0.6);
  int number = 0;
  for (const std::string layout : {"dist.nproc=2 dist.tp=2", "dist.nproc=2 dist.pp=2",
                                   "dist.nproc=2 dist.cp=2", "dist.nproc=2 dist.zero=3"}) {
    CAPTURE(layout);
    const std::string run = cat("r", number++);
    done(scratch, cat("r.yaml -q run.dir=", run, set, layout));
    check_close(column(scratch / run, "loss"), column(scratch / "off", "loss"), 2e-5);
  }
}

TEST_CASE("bench needs the reference of its own steps only") {
  const Scratch scratch("mtrain-objectives-bench");
  write_objective_case(scratch);
  const std::string set =
      " objective.reference=precomputed train.steps=8 validation.steps=1 "
      "dataset.valid_path=p.jsonl ";
  done(scratch, "r.yaml -q run.dir=run" + set);
  const json bench =
      json::parse(done(scratch, "bench r.yaml --plain --json --warmup 1 --steps 2" + set).out);
  const std::vector<double> losses = column(scratch / "run", "loss");
  CHECK(bench.at("losses").at(0).get<double>() == losses.at(1));
  CHECK(bench.at("losses").at(1).get<double>() == losses.at(2));
}

TEST_CASE("a run of an objective continues to the bit, with the reference that it began with") {
  const Scratch scratch("mtrain-objectives-resume");
  write_objective_case(scratch);
  const std::string set =
      " mixed_precision.dtype=bf16 validation.steps=1 validation.interval=2 "
      "dataset.valid_path=p.jsonl ";
  done(scratch, "r.yaml -q run.dir=whole train.steps=6" + set);
  done(scratch, "r.yaml -q run.dir=halves train.steps=3" + set);
  done(scratch, "r.yaml -q run.dir=halves train.steps=6" + set);
  for (const char* key : {"loss", "grad_norm", "rewards/margins"})
    CHECK(column(scratch / "whole", key) == column(scratch / "halves", key));
  // The run's own evaluation reads the same reference.
  const json eval = json::parse(
      done(scratch, "eval --from whole --json --split valid mixed_precision.dtype=fp32").out);
  CHECK(eval.contains("rewards/accuracies"));
  CHECK(eval.at("loss").get<double>() < std::log(2.0));

  // Of other records, eval computes it with the initial model.
  scratch.write("q.jsonl",
                mtrain::replace_all(slurp(scratch / "p.jsonl"), "\"chosen\":\"", "\"chosen\":\"x"));
  REQUIRE(slurp(scratch / "q.jsonl") != slurp(scratch / "p.jsonl"));
  done(scratch,
       "r.yaml -q run.dir=stored train.steps=6" + mtrain::replace_all(set, "=p.jsonl", "=q.jsonl"));
  const auto loss_of = [&](const std::string& run) {
    return json::parse(done(scratch, cat("eval --from ", run,
                                         " --json --split valid dataset.valid_path=q.jsonl"))
                           .out)
        .at("loss")
        .get<double>();
  };
  CHECK(loss_of("whole") == loss_of("stored"));

  auto refuses = [&](const std::string& words, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), words);
    const std::string details = words + "\n" + outcome.err;
    CHECK_MESSAGE(outcome.status == 12, details);
    CHECK_MESSAGE(has(outcome.err, part), details);
  };
  const fs::path file = scratch / "halves/reference.safetensors";
  const std::string bytes = slurp(file);
  const size_t digit = bytes.find("\"train_samples\":\"") + 17;
  REQUIRE(digit < bytes.size());
  for (const size_t byte : {digit, bytes.size() - 2}) {
    std::string changed = bytes;
    changed[byte] ^= 1;
    write_at(file, changed);
    refuses("r.yaml -q run.dir=halves train.steps=8" + set, "is damaged");
  }
  write_at(file, bytes.substr(0, bytes.size() / 2));
  refuses("r.yaml -q run.dir=halves train.steps=8" + set,
          "help: the reference is the model before");
  fs::remove(file);
  refuses("r.yaml -q run.dir=halves train.steps=8" + set, "log-probabilities are missing");
  // A run that never had one.
  done(scratch, "r.yaml -q run.dir=free train.steps=2 objective.reference_free=true" + set);
  refuses("r.yaml -q run.dir=free train.steps=4" + set, "began without a reference");
}

TEST_CASE(
    "a run keeps the source of its reference, although it no longer reads its first adapters") {
  const Scratch scratch("mtrain-objectives-source");
  write_objective_case(scratch);
  const std::string adapters = " peft.type=lora peft.rank=2 dataset.valid_path=p.jsonl ";
  done(scratch, "r.yaml -q run.dir=first" + adapters);
  done(scratch, "-q export first start");
  done(scratch, "r.yaml -q run.dir=whole train.steps=4 peft.init_from=start" + adapters);
  done(scratch, "r.yaml -q run.dir=halves train.steps=2 peft.init_from=start" + adapters);
  CHECK(fs::exists(scratch / "halves/reference.safetensors"));
  done(scratch, "r.yaml -q run.dir=halves train.steps=4" + adapters);
  for (const char* key : {"loss", "grad_norm", "rewards/margins"})
    CHECK(column(scratch / "whole", key) == column(scratch / "halves", key));
  auto eval = [&](const std::string& run) {
    return done(scratch, "eval --json --split train --batches 1 --from " + run).out;
  };
  const json whole = json::parse(eval("whole")), halves = json::parse(eval("halves"));
  CHECK(whole.at("rewards/margins") == halves.at("rewards/margins"));
  // More samples than then are refused before the first step.
  const Outcome more = cli_in(
      scratch.path(), "r.yaml -q run.dir=halves train.steps=6 validation.steps=1" + adapters);
  CHECK(more.status == 12);
  CHECK_MESSAGE(has(more.err, "are those of 0 samples of the valid split"), more.err);
  // Answers of the mock dataset repeat after an epoch.
  scratch.write("m.yaml",
                "model: {type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 32, "
                "seq_length: 16}\ntokenizer: byte\nobjective: {type: dpo}\n"
                "dataset: {type: mock, answers: 2, epoch_samples: 4}\nrun: {threads: 1}\n"
                "validation: {steps: 0}\ntrain: {steps: 8}\n");
  done(scratch, "m.yaml -q run.dir=mock");
}

TEST_CASE("an objective refuses what it cannot learn from") {
  const Scratch scratch("mtrain-objectives-refused");
  write_objective_case(scratch);
  auto refuses = [&](const std::string& words, int status, const std::string& part,
                     const std::string& remedy = "") {
    const Outcome outcome = cli_in(scratch.path(), words);
    const std::string details = words + "\n" + outcome.err + outcome.out;
    CHECK_MESSAGE(outcome.status == status, details);
    CHECK_MESSAGE(has(outcome.err + outcome.out, part), details);
    CHECK_MESSAGE(has(outcome.err + outcome.out, remedy), details);
  };
  refuses("r.yaml -q run.dir=a dataset.path=l.jsonl", 11,
          "one answer, and the objective learns from pairs", "objective=kto");
  refuses("check r.yaml objective.type=tokens", 10,
          "preference has samples for the objective 'preferences between answers'",
          "objective=dpo");
  scratch.write("sft.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  refuses("check r.yaml dataset=sft dataset.path=sft.jsonl", 10,
          "but dpo learns the objective 'preferences between answers'");
  refuses("check r.yaml objective.reference=adapters", 10,
          "needs adapters that initially change nothing");
  refuses("check r.yaml dataset=mock", 10, "dpo learns from answers", "dataset.answers=2");
  refuses("check r.yaml objective=dop", 10, "dpo");
  refuses("check r.yaml cuda_graph.type=full_iteration", 10, "cannot be recorded");
  for (const char* command : {"check r.yaml", "r.yaml -q run.dir=b"}) {
    refuses(cat(command, " objective.loss=exo_pair"), 10, "label_smoothing > 0");
    for (const char* losses : {"sigmoid", "sigmoid:0", "sigmoid:x", "tanh:1", ":1", "ipo:1e999"})
      refuses(cat(command, " 'objective.losses=[\"", losses, "\"]'"), 10,
              cat("'", losses, "' is no loss with a weight above 0"), "such as sigmoid:0.8");
    refuses(cat(command, " objective.losses=[ipo:1,ipo:2]"), 10, "ipo is given twice");
    refuses(cat(command, " objective.losses=[ipo:1,hinge:2] objective.label_smoothing=0.1"), 10,
            "objective.label_smoothing has no effect");
    for (const char* loss : {"hinge", "ipo"})
      refuses(cat(command, " objective.label_smoothing=0.1 objective.loss=", loss), 10,
              "objective.label_smoothing has no effect", "choose the loss sigmoid");
  }
  refuses("check --data r.yaml objective.label_smoothing=0.1 objective.loss=ipo", 10,
          "error[config] objective.label_smoothing: objective.label_smoothing has no effect");
  for (const char* command : {"check --data r.yaml", "r.yaml -q run.dir=b"})
    refuses(cat(command, " dataset.path=l.jsonl"), 11, "l.jsonl:1: has one answer",
            "objective=kto");
  refuses("check r.yaml ++dpo_beta=0.2", 10, "objective.beta");
}

TEST_CASE("preference data that teaches nothing is named, by check --data and by the run") {
  const Scratch scratch("mtrain-objectives-useless");
  write_objective_case(scratch);
  const auto line = [](const json& record) { return record.dump() + "\n"; };
  const std::string pair = line({{"prompt", "a"}, {"chosen", "b"}, {"rejected", "c"}}),
                    twice = line({{"prompt", "a"}, {"chosen", "b"}, {"rejected", "b"}}),
                    empty = line({{"prompt", "a"}, {"chosen", "b"}, {"rejected", ""}}),
                    good = line({{"prompt", "a"}, {"completion", "b"}, {"label", true}}),
                    bad = line({{"prompt", "a"}, {"completion", "b"}, {"label", false}});
  scratch.write("some.jsonl", pair + twice + empty + twice);
  scratch.write("all.jsonl", twice + twice);
  scratch.write("good.jsonl", good + good);
  scratch.write("bad.jsonl", bad + bad);
  scratch.write("both.jsonl", bad + good);
  scratch.write("pairs.jsonl", pair + pair);
  scratch.write("chats.jsonl",
                R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":""}]})"
                "\n"
                R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})"
                "\n");
  const auto says = [&](const std::string& data, int status, const std::string& part) {
    for (const std::string command : {"check --data r.yaml ", "r.yaml run.dir=a train.steps=1 "}) {
      fs::remove_all(scratch / "a");
      const Outcome outcome = cli_in(scratch.path(), command + "dataset.path=" + data);
      const std::string details = command + data + "\n" + outcome.err;
      CHECK_MESSAGE(outcome.status == status, details);
      CHECK_MESSAGE(has(outcome.err, part), details);
      CHECK_MESSAGE(outcome.err.find(part) == outcome.err.rfind(part), details);
    }
  };
  says("some.jsonl", 0, "2 of 4 pairs have the same answer twice and teach no preference");
  says("some.jsonl", 0, "some.jsonl:3), from which the model can only learn to stop at once");
  says("all.jsonl", 11, "2 of 2 pairs have the same answer twice");
  const json question = {{"role", "user"}, {"content", "a"}};
  const auto chat = [&](const char* answer) {
    return json{question, {{"role", "assistant"}, {"content", answer}}};
  };
  const std::string chats = line({{"chosen", chat("b")}, {"rejected", chat("c")}}),
                    template_of_chats = " dataset.chat_template=chatml model.seq_length=256";
  scratch.write("same.jsonl", chats + line({{"chosen", chat("b")}, {"rejected", chat("b")}}));
  says("same.jsonl" + template_of_chats, 0, "1 of 2 pairs has the same answer twice");
  scratch.write("mixed.jsonl", chats + pair + chats);
  says("mixed.jsonl" + template_of_chats, 0,
       "/mixed.jsonl:2) are texts, which are trained on without the chat "
       "template");
  scratch.write(
      "long.jsonl",
      pair + line({{"prompt", "a"}, {"chosen", std::string(60, 'b')}, {"rejected", "c"}}));
  says("long.jsonl", 0, "raise model.seq_length: the longest record needs");
  says("good.jsonl objective=kto", 0, "all 2 answers are labeled good");
  says("bad.jsonl objective=kto", 0, "all 2 answers are labeled bad");
  for (const std::string data :
       {"both.jsonl objective=kto", "pairs.jsonl", "pairs.jsonl objective=kto"})
    CHECK_FALSE(has(done(scratch, "check --data r.yaml dataset.path=" + data).err, "warning"));
  for (const char* columns : {"'{chosen: rejected}'", "'{rejected: chosen}'"})
    says(cat("pairs.jsonl dataset.columns=", columns), 10, "is both chosen and rejected");
  says("pairs.jsonl dataset.columns='{chosen: good}'", 10, "hides their field 'chosen'");
  says(
      "chats.jsonl dataset.type=sft objective=tokens dataset.chat_template=chatml "
      "model.seq_length=128",
      0, "chats.jsonl:1), from which the model can only learn to stop at once");
}

TEST_CASE("errors of preference records say what was found and what is accepted") {
  const Scratch scratch("mtrain-objectives-faults");
  write_objective_case(scratch);
  const auto refuses = [&](const std::string& record, const std::string& part,
                           const std::string& remedy, const std::string& more = "") {
    scratch.write("x.jsonl", record + "\n");
    const Outcome outcome =
        cli_in(scratch.path(), "check --data r.yaml dataset.path=x.jsonl " + more);
    CHECK_MESSAGE(outcome.status == 11, outcome.err);
    CHECK_MESSAGE(has(outcome.err, part), outcome.err);
    CHECK_MESSAGE(has(outcome.err, remedy), outcome.err);
  };
  refuses(R"({"prompt": "a", "chosen": "b", "rejected": null})",
          "x.jsonl:1: the field 'rejected' is null", "dataset.columns");
  refuses(R"({"prompt": "a", "chosen": "b", "worse": "c"})",
          "x.jsonl:1: has no field 'rejected'; its fields are prompt, chosen, worse",
          "dataset.columns");
  refuses(R"({"question": "a", "answer_a": "b"})",
          "neither a label nor chosen and rejected; its fields are question, answer_a",
          "dataset.columns");
  for (const char* label : {"1", "\"good\""})
    refuses(cat(R"({"prompt": "a", "completion": "b", "label": )", label, "}"),
            cat("has the label ", label), "true for a good answer and false for a bad one",
            "objective=kto");
  const std::string words(60, 'b');
  refuses(json{{"prompt", "a"}, {"chosen", words}, {"rejected", words + "c"}}.dump(),
          "1 left out for having more than 48 tokens",
          "raise model.seq_length: the shortest of these records needs 123 tokens");
  scratch.write("x.csv", "prompt,chosen,rejected\n");
  CHECK(has(cli_in(scratch.path(), "check --data r.yaml dataset.path=x.csv").err,
            "x.csv is a table (CSV); JSON lines are required"));
  write_at(scratch / "x.jsonl",
           "\xFD"
           "7zXZ compressed");  // recognized by its first bytes
  const std::string err = cli_in(scratch.path(), "check --data r.yaml dataset.path=x.jsonl").err;
  CHECK_MESSAGE(has(err, "x.jsonl is compressed by xz; JSON lines are required"), err);
  CHECK_MESSAGE(has(err, "> records.jsonl, then dataset.path=records.jsonl"), err);
  refuses(R"({"prompt": "a", "completion": null})", "the field 'completion' is null",
          "dataset.columns", "dataset.type=sft objective=tokens dataset.format=prompt_completion");
}

TEST_CASE("mixtures of experts learn an objective with their routers' losses, and fp16 works") {
  const Scratch scratch("mtrain-objectives-moe");
  scratch.write("m.yaml",
                "model: {type: moe, layers: 2, hidden_size: 32, heads: 4, ffn_hidden_size: 64, "
                "seq_length: 48, moe: {experts: 4, ffn_hidden_size: 32}}\n"
                "dataset: {type: mock, answers: 2}\nobjective: dpo\nrun: {threads: 1}\n"
                "mixed_precision: {dtype: fp32}\nlogger: {tensorboard: false}\n"
                "scheduler: {type: constant}\noptimizer: {type: adamw, lr: 3e-3}\n"
                "validation: {steps: 0}\ntrain: {steps: 12, global_batch_size: 4, "
                "micro_batch_size: 2}\n");
  done(scratch, "m.yaml -q run.dir=one");
  CHECK(column(scratch / "one", "loss").front() == doctest::Approx(std::log(2.0)));
  CHECK(column(scratch / "one", "loss").back() < 0.4);
  done(scratch, "m.yaml -q run.dir=ep dist.nproc=2 dist.ep=2");
  check_close(column(scratch / "ep", "loss"), column(scratch / "one", "loss"), 1e-3);
  done(scratch, "m.yaml -q run.dir=fp16 mixed_precision.dtype=fp16");
  check_close(column(scratch / "fp16", "loss"), column(scratch / "one", "loss"), 5e-2);
}

TEST_CASE("the recipe quickstart_dpo learns to prefer small letters to capitals") {
  const Scratch scratch("mtrain-quickstart-dpo");
  write_letter_pairs(scratch);
  done(scratch, "quickstart_dpo -q run.dir=run" + kLetterPairs);
  const std::vector<double> right = column(scratch / "run", "rewards/accuracies");
  REQUIRE(right.size() == 60);
  CHECK(right.front() == 0);  // model and reference are the same
  const double late = std::accumulate(right.end() - 20, right.end(), 0.0) / 20;
  CHECK_MESSAGE(late > 0.65, late);
}
