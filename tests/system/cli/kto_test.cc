// KTO: it learns as PyPI's trl does, its estimate of the divergence depends on the global batch
// only, and references of mismatched answers are kept or named.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "letter_pairs.h"
#include "mtrain/base/rng.h"
#include "mtrain/data/permutation.h"
#include "objective_case.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using mtrain::cat;
using nlohmann::json;

namespace {

constexpr uint64_t kOrderSeed = 11;

/// A file of records that a run of one epoch with the seed kOrderSeed reads in this order.
std::string in_order(const std::vector<json>& records) {
  const auto count = std::ssize(records);
  const mtrain::Permutation order(count, kOrderSeed, mtrain::name_key("finetune.order"), 0);
  json lines = json::array();
  for (const json& record : records) lines.push_back(record);
  for (int64_t i = 0; i < count; ++i)
    lines[static_cast<size_t>(order(i))] = records[static_cast<size_t>(i)];
  return lines_of(lines);
}

/// The records of a golden case, once for each of three steps.
std::vector<json> records_of(const std::string& kind) {
  std::vector<json> out;
  for (int step = 0; step < 3; ++step)
    for (const json& record : golden_objectives().at(kind == "pairs" ? "pairs" : "labels"))
      if (kind != "good" || record.at("label") == true) out.push_back(record);
  return out;
}

constexpr const char* kKtoFigures[] = {"loss", "grad_norm", "kl", "rewards/margins"};

}  // namespace

TEST_CASE("kto learns as in trl, from labels, from good answers alone and from pairs") {
  const Scratch scratch("mtrain-kto");
  write_objective_case(scratch);
  int cases = 0;
  for (const auto& [name, wanted] : golden_objectives().at("cases").items()) {
    if (!wanted.contains("records")) continue;
    CAPTURE(name);
    const std::vector<json> records = records_of(wanted.at("records"));
    scratch.write(name + ".jsonl", in_order(records));
    done(scratch, cat("r.yaml -q run.dir=", name, settings_of(wanted.at("settings")),
                      " dataset.path=", name, ".jsonl rng.seed=", kOrderSeed,
                      " train.micro_batch_size=1 train.global_batch_size=", records.size() / 3));
    check_learned(scratch, name, wanted);
    ++cases;
  }
  CHECK(cases == 5);
}

TEST_CASE("kto learns the same in every layout and division, from labels and from pairs") {
  const Scratch scratch("mtrain-kto-layouts");
  write_objective_case(scratch);
  for (const std::string data : {"l", "p"}) {
    const std::string set =
        cat(" objective=kto objective.beta=0.5 dataset.path=", data, ".jsonl optimizer.lr=3e-3 ");
    done(scratch, "r.yaml -q run.dir=one" + data + set);
    done(scratch, "-q export one" + data + " of-one" + data);
    const std::vector<double> kl = column(scratch / ("one" + data), "kl");
    CHECK(kl.front() == doctest::Approx(0).epsilon(1e-5).scale(1));
    CHECK(*std::ranges::max_element(kl) > 0.05);
    int number = 0;
    for (const std::string layout :
         {"train.micro_batch_size=1", "train.micro_batch_size=4", "dist.nproc=2",
          "dist.nproc=2 dist.zero=1", "dist.nproc=2 dist.zero=2", "dist.nproc=2 dist.zero=3",
          "dist.nproc=4 train.micro_batch_size=1", "dist.nproc=2 dist.tp=2",
          "dist.nproc=2 dist.tp=2 dist.sp=true", "dist.nproc=2 dist.cp=2", "dist.nproc=2 dist.pp=2",
          "dist.nproc=4 dist.pp=2 train.micro_batch_size=1 dist.zero=1",
          "dist.nproc=2 dist.pp=2 dist.schedule=zb_h1"}) {
      CAPTURE(data);
      CAPTURE(layout);
      const std::string run = cat(data, number++);
      done(scratch, cat("r.yaml -q run.dir=", run, set, layout));
      for (const char* key : kKtoFigures)
        check_close(column(scratch / run, key), column(scratch / ("one" + data), key), 3e-5);
      done(scratch, "-q export " + run + " out" + run);
      CHECK(weights_difference(scratch / ("of-one" + data), scratch / ("out" + run)) < 2e-5);
    }
  }
}

TEST_CASE("kto adds the likelihood of good answers as cpo adds that of chosen ones") {
  const Scratch scratch("mtrain-kto-sft");
  write_objective_case(scratch);
  done(scratch, "r.yaml -q run.dir=cpo objective=cpo train.steps=1");
  done(scratch, "r.yaml -q run.dir=kto objective=kto objective.sft_weight=0.4 train.steps=1");
  // Half of the records of pairs are good.
  CHECK(column(scratch / "kto", "loss").front() ==
        doctest::Approx(0.5 + 0.4 / 2 * column(scratch / "cpo", "nll_loss").front()));
  // Without KTO's own loss, its gradient is that of the tokens of good answers.
  done(scratch,
       "r.yaml -q run.dir=sft objective=kto objective.sft_weight=1 "
       "objective.desirable_weight=0 objective.undesirable_weight=0 train.steps=1");
  CHECK(column(scratch / "sft", "grad_norm").front() > 0.1);
}

TEST_CASE("kto's divergence is relative to the model without its adapters, or before training") {
  const Scratch scratch("mtrain-kto-reference");
  write_objective_case(scratch);
  const std::string set =
      " objective=kto dataset.path=l.jsonl dataset.valid_path=p.jsonl peft.type=lora peft.rank=4 "
      "peft.alpha=16 optimizer.lr=1e-2 train.steps=4 validation.steps=1 validation.interval=2 ";
  done(scratch, "r.yaml -q run.dir=off objective.reference=adapters" + set);
  CHECK_FALSE(fs::exists(scratch / "off/reference.safetensors"));
  done(scratch, "r.yaml -q run.dir=file objective.reference=precomputed" + set);
  CHECK(column(scratch / "off", "kl").back() > 0.01);
  CHECK(column(scratch / "off", "val_kl").size() == 2);
  for (const char* key : {"loss", "kl", "rewards/chosen", "val_loss", "val_kl"})
    check_close(column(scratch / "file", key), column(scratch / "off", key), 1e-6);
  // Batches that grow hold other neighbours.
  const std::string grows =
      "train.batch_schedule=[0:2,2:4] train.global_batch_size=0 train.steps=4 ";
  done(scratch, "r.yaml -q run.dir=grows objective.reference=adapters" + set + grows);
  done(scratch, "r.yaml -q run.dir=grown objective.reference=precomputed" + set + grows);
  for (const char* key : {"loss", "kl", "val_kl"})
    check_close(column(scratch / "grown", key), column(scratch / "grows", key), 1e-6);
  int number = 0;
  for (const std::string layout : {"dist.nproc=2 dist.tp=2", "dist.nproc=2 dist.pp=2",
                                   "dist.nproc=2 dist.cp=2", "dist.nproc=2 dist.zero=3"})
    for (const char* source : {"adapters", "precomputed"}) {
      CAPTURE(layout);
      CAPTURE(source);
      const std::string run = cat("r", number++);
      done(scratch, cat("r.yaml -q run.dir=", run, " objective.reference=", source, set, layout));
      for (const char* key : {"loss", "kl", "val_kl"})
        check_close(column(scratch / run, key), column(scratch / "off", key), 3e-5);
    }
}

TEST_CASE("a run of kto continues to the bit, and names what its reference does not cover") {
  const Scratch scratch("mtrain-kto-resume");
  write_objective_case(scratch);
  // So many that other batches hold other neighbours.
  std::string lines;
  for (size_t i = 0; i < 16; ++i) {
    const char letter = static_cast<char>('a' + i);
    const json record = {{"prompt", std::string(1 + i % 3, letter)},
                         {"completion", std::string(2 + i % 5, letter) + "."},
                         {"label", i % 3 > 0}};
    lines += record.dump() + "\n";
  }
  scratch.write("many.jsonl", lines);
  const std::string data =
      " objective=kto dataset.path=many.jsonl validation.steps=1 validation.interval=2 "
      "dataset.valid_path=many.jsonl checkpoint.interval=3 ";
  const std::string set = data + "train.steps=6";
  done(scratch, "r.yaml -q run.dir=whole " + set);
  CHECK(cli_in(scratch.path(), "r.yaml -q run.dir=halves " + set, "/nowhere",
               {"MTRAIN_FAULT=train.step:4:throw"})
            .status != 0);
  fs::copy(scratch / "halves", scratch / "other", fs::copy_options::recursive);
  done(scratch, "r.yaml -q run.dir=halves " + set);
  for (const char* key : {"loss", "grad_norm", "kl", "rewards/margins"}) {
    const std::vector<double> whole = column(scratch / "whole", key),
                              halves = column(scratch / "halves", key);
    REQUIRE(halves.size() >= 3);
    CHECK(std::equal(whole.end() - 3, whole.end(), halves.end() - 3));
  }
  const json eval = json::parse(done(scratch, "eval --from whole --json --split valid").out);
  CHECK(eval.at("kl").get<double>() ==
        doctest::Approx(column(scratch / "whole", "val_kl").back()).epsilon(1e-6));

  auto refuses = [&](const std::string& words, int status, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), words);
    const std::string details = words + "\n" + outcome.err;
    CHECK_MESSAGE(outcome.status == status, details);
    CHECK_MESSAGE(has(outcome.err, part), details);
  };
  refuses("r.yaml -q run.dir=whole train.steps=8" + data, 12,
          "are those of 24 samples of the train split, and the run now reads 32");
  const std::vector<double> before = column(scratch / "other", "loss");
  const auto batches = [](const std::string& there, const std::string& split, int now) {
    return cat("were computed for global batches of ", there, " samples of the ", split,
               " split, and now they have ", now);
  };
  refuses("r.yaml -q run.dir=other train.steps=5 train.global_batch_size=2" + data, 12,
          batches("4", "train", 2));
  refuses("r.yaml -q run.dir=other validation.global_batch_size=2" + set, 12,
          batches("4", "valid", 2));
  CHECK(column(scratch / "other", "loss") == before);  // no step was made
  // eval computes the references of other neighbors with the initial model.
  const auto all = [&](const std::string& batches) {
    return json::parse(
        done(scratch, "eval --from whole --json --split valid --batches all " + batches).out);
  };
  const json same = all(""), others = all("validation.global_batch_size=2");
  CHECK(others.at("kl").get<double>() != same.at("kl").get<double>());
  CHECK(others.at("rewards/chosen").get<double>() ==
        doctest::Approx(same.at("rewards/chosen").get<double>()).epsilon(1e-6));
  // They would be those of other weights.
  const fs::path weights = scratch / "there/model.safetensors";
  std::string bytes = slurp(weights);
  bytes[bytes.size() - 2] ^= 1;
  write_at(weights, bytes);
  refuses("eval --from whole --split valid --batches all validation.global_batch_size=2", 12,
          "the weights of model.init_from have changed since the run began");
  done(scratch, "eval --from whole --split valid");  // has stored references
}

TEST_CASE("kto refuses batches in which no record is another one") {
  const Scratch scratch("mtrain-kto-refused");
  write_objective_case(scratch);
  scratch.write("one.jsonl", lines_of(json::array({golden_objectives().at("labels").at(0)})));
  auto refuses = [&](const std::string& words, int status, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), words + " objective=kto");
    const std::string details = words + "\n" + outcome.err + outcome.out;
    CHECK_MESSAGE(outcome.status == status, details);
    CHECK_MESSAGE(has(outcome.err + outcome.out, part), details);
  };
  for (const std::string command : {"check r.yaml ", "r.yaml -q run.dir=a "}) {
    refuses(command + "train.global_batch_size=1 train.micro_batch_size=1", 10,
            "a batch of 1 has none");
    refuses(command +
                "validation.steps=1 validation.global_batch_size=1 "
                "validation.micro_batch_size=1",
            10, "a batch of 1 of the validation has none");
  }
  refuses("r.yaml -q run.dir=a dataset.path=one.jsonl", 11, "the training data has one record");
  // Without the divergence, neither is needed.
  done(scratch,
       "r.yaml -q run.dir=b objective=kto objective.loss=apo_zero_unpaired "
       "dataset.path=one.jsonl train.global_batch_size=1 train.micro_batch_size=1");
  CHECK(column(scratch / "b", "loss").front() == doctest::Approx(0.5));
}

TEST_CASE("the recipe quickstart_dpo learns with kto from the same pairs") {
  const Scratch scratch("mtrain-quickstart-kto");
  write_letter_pairs(scratch);
  done(scratch, "quickstart_dpo objective=kto -q run.dir=run" + kLetterPairs);
  const std::vector<double> margins = column(scratch / "run", "rewards/margins"),
                            kl = column(scratch / "run", "kl");
  REQUIRE(margins.size() == 60);
  CHECK(margins.front() == doctest::Approx(0).epsilon(1e-4).scale(1));
  CHECK(std::accumulate(margins.end() - 20, margins.end(), 0.0) / 20 > 0.05);
  CHECK(*std::ranges::min_element(kl) >= 0);
}
