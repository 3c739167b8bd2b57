// objective.top_k: a teacher's most likely ids, computed once and stored. Losses and gradients are
// those of PyTorch, and those of the teacher in each step where all ids are stored; every layout
// computes and reads the same; runs share a store, which continues after a kill; what does not fit
// is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "distillation_case.h"
#include "golden_case.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using mtrain::cat;
using nlohmann::json;

namespace {

/// Small samples of the texts, without validation: 6 steps of 8.
const std::string kStored =
    "s.yaml -q train.steps=6 validation.steps=0 optimizer.lr=1e-3 objective.top_k=12 ";

size_t num_files(const fs::path& folder) {
  size_t count = 0;
  for (const auto& one : fs::directory_iterator(folder))
    count += one.path().extension() == ".safetensors";
  return count;
}

/// The samples of all files of a store, by their digests.
std::map<int64_t, std::vector<int32_t>> stored_ids(const fs::path& folder) {
  std::map<int64_t, std::vector<int32_t>> out;
  for (const auto& one : fs::directory_iterator(folder)) {
    if (one.path().extension() != ".safetensors") continue;
    const mtrain::SafetensorsFile file(one.path());
    auto all = [&]<class T>(const char* name, T) {
      const mtrain::TensorInfo& tensor = file.at(name);
      std::vector<T> values(tensor.data.size() / sizeof(T));
      file.read(tensor, std::as_writable_bytes(std::span(values)));
      return values;
    };
    const auto keys = all("keys", int64_t{}), ends = all("ends", int64_t{});
    const auto ids = all("ids", int32_t{});
    const int64_t k = file.at("ids").shape[1];
    for (size_t i = 0; i < keys.size(); ++i)
      out[keys[i]] = std::vector<int32_t>(ids.begin() + (i > 0 ? ends[i - 1] : 0) * k,
                                          ids.begin() + ends[i] * k);
  }
  return out;
}

}  // namespace

TEST_CASE("the loss over stored ids, its gradients and the weights that it gives are PyTorch's") {
  const Scratch scratch("mtrain-stored-golden");
  copy_model(scratch, source_root() / "tests/golden/llama31_tiny");
  fs::rename(scratch / "there", scratch / "teacher");
  copy_model(scratch, source_root() / "tests/golden/llama_tiny");
  const json golden =
      json::parse(slurp(source_root() / "tests/golden/top_k_distillation/golden.json"));
  scratch.write("x.jsonl", lines_of(golden.at("records")));
  scratch.write("s.yaml", "model: {type: llama, init_from: there, seq_length: 32}\n" +
                              kGoldenTraining +
                              "dataset: {type: sft, path: x.jsonl, split: '1'}\n"
                              "objective: {type: distillation, teacher: teacher}\n"
                              "train: {steps: 3, global_batch_size: 4, micro_batch_size: 2}\n");
  for (const auto& [name, wanted] : golden.at("cases").items()) {
    CAPTURE(name);
    std::string set;
    for (const auto& [key, value] : wanted.at("settings").items())
      set +=
          cat(" objective.", key, "=", value.is_string() ? value.get<std::string>() : value.dump());
    done(scratch, "s.yaml -q run.dir=" + name + set);
    for (const char* key : {"loss", "kl", "ce_loss", "grad_norm"}) {
      CAPTURE(key);
      const std::vector<double> got = column(scratch / name, key);
      REQUIRE(got.size() == wanted.at("steps").size());
      for (size_t i = 0; i < got.size(); ++i)
        CHECK(std::fabs(got[i] - wanted.at("steps")[i].at(key).get<double>()) < 2e-5);
    }
    done(scratch, "-q export " + name + " out-" + name);
    const mtrain::SafetensorsFile file(scratch / ("out-" + name) / "model.safetensors");
    for (const auto& [tensor, values] : wanted.at("weights").items()) {
      CAPTURE(tensor);
      const std::vector<float> got = mtrain::file_values(file, file.at(tensor));
      for (size_t i = 0; i < values.size(); ++i)
        CHECK(std::fabs(static_cast<double>(got[i]) - values[i].get<double>()) < 2e-5);
    }
  }
}

TEST_CASE("with all ids stored, a run is that with the teacher in each step") {
  const Scratch scratch("mtrain-stored-all");
  make_teacher(scratch);
  for (const std::string set :
       {"objective.kind=forward_kl", "objective.kind=reverse_kl",
        "objective.kind=jsd objective.beta=0.3 objective.temperature=2 objective.alpha=0.25"}) {
    CAPTURE(set);
    for (const char* run : {"live", "all", "some"}) fs::remove_all(scratch / run);
    done(scratch, "s.yaml -q run.dir=live train.steps=20 optimizer.lr=1e-3 " + set);
    done(scratch,
         "s.yaml -q run.dir=all train.steps=20 optimizer.lr=1e-3 objective.top_k=257 " + set);
    for (const char* key : {"loss", "kl", "ce_loss", "grad_norm", "val_kl", "val_loss"})
      check_close(figure(scratch / "all", key), figure(scratch / "live", key), 2e-3);
    // With fewer, the divergence is smaller, and learning it lowers that of all ids.
    done(scratch,
         "s.yaml -q run.dir=some train.steps=20 optimizer.lr=1e-3 objective.top_k=8 " + set);
    const std::vector<double> some = figure(scratch / "some", "kl"),
                              all = figure(scratch / "all", "kl");
    CHECK(some.front() < all.front());
    CHECK(some.back() < some.front());
    CHECK(fs::is_directory(scratch / "some/teacher"));
  }
}

TEST_CASE("stored distributions are computed and learnt the same in every layout") {
  const Scratch scratch("mtrain-stored-layouts");
  make_teacher(scratch);
  const std::string set = kStored +
                          "objective.kind=jsd objective.temperature=1.5 "
                          "objective.alpha=0.2 ";
  done(scratch, set + "run.dir=one objective.store=first");
  const auto ids = stored_ids(scratch / "first");
  CHECK(ids.size() == 48);
  int number = 0;
  for (const std::string layout :
       {"train.micro_batch_size=1", "train.micro_batch_size=8", "dist.nproc=2",
        "dist.nproc=2 dist.zero=3", "dist.nproc=2 dist.tp=2", "dist.nproc=2 dist.tp=2 dist.sp=true",
        "dist.nproc=2 dist.cp=2", "dist.nproc=2 dist.pp=2",
        "dist.nproc=4 dist.pp=2 dist.tp=2 train.micro_batch_size=2",
        "dist.nproc=4 dist.tp=2 dist.cp=2 dist.zero=1", "model.recompute=full"}) {
    CAPTURE(layout);
    const std::string run = cat("r", number++);
    done(scratch, cat(set, "run.dir=", run, " ", layout));
    for (const char* key : {"loss", "kl", "ce_loss", "grad_norm"})
      check_close(figure(scratch / run, key), figure(scratch / "one", key), 3e-5);
    CHECK(stored_ids(scratch / run / "teacher") == ids);
    done(scratch, cat(set, "run.dir=", run, "b objective.store=first ", layout));
    check_close(figure(scratch / (run + "b"), "loss"), figure(scratch / "one", "loss"), 3e-5);
  }
  CHECK(num_files(scratch / "first") == 1);
}

TEST_CASE("runs share a store, which needs the teacher only for what it lacks") {
  const Scratch scratch("mtrain-stored-shared");
  make_teacher(scratch);
  done(scratch, kStored + "run.dir=one objective.store=kept");
  CHECK_FALSE(fs::exists(scratch / "one/teacher"));
  const size_t files = num_files(scratch / "kept");
  fs::rename(scratch / "teacher", scratch / "elsewhere");
  // Another student, batch and division, without the teacher.
  const std::string alone = kStored + "objective.store=kept objective.teacher='' ";
  done(scratch, alone + "run.dir=two");
  CHECK(figure(scratch / "two", "loss") == figure(scratch / "one", "loss"));
  done(scratch, alone +
                    "run.dir=three model.layers=1 train.steps=3 train.global_batch_size=16 "
                    "objective.kind=reverse_kl");
  CHECK(num_files(scratch / "kept") == files);
  refuses(scratch, alone + "run.dir=four train.steps=8", 10,
          "lacks distributions of the data, first of sample 48 of the train split",
          "objective.teacher=FOLDER-OR-RUN");
  refuses(scratch, alone + "run.dir=four rng.seed=7", 10, "lacks distributions of the data",
          "rng.seed");
  CHECK_FALSE(fs::exists(scratch / "four"));
  fs::rename(scratch / "elsewhere", scratch / "teacher");
  done(scratch, kStored + "run.dir=four train.steps=8 objective.store=kept");
  CHECK(num_files(scratch / "kept") == files + 1);
  CHECK(stored_ids(scratch / "kept").size() == 64);
  // The first run goes on to the bit.
  done(scratch, kStored + "run.dir=one train.steps=8 objective.store=kept");
  CHECK(figure(scratch / "one", "loss") == figure(scratch / "four", "loss"));
}

TEST_CASE("what a killed job has stored is not computed again") {
  const Scratch scratch("mtrain-stored-killed");
  make_teacher(scratch);
  done(scratch, kStored + "run.dir=whole");
  // Two ranks write a file each, and the job dies while the second one is named.
  const std::string set = kStored + "run.dir=killed dist.nproc=2 ";
  const Outcome killed = cli_in(scratch.path(), set, "/nowhere", {"MTRAIN_FAULT=teacher.rename:2"});
  CHECK(killed.status != 0);
  const fs::path store = scratch / "killed/teacher";
  REQUIRE(num_files(store) == 1);
  CHECK(stored_ids(store).size() == 24);
  done(scratch, set);
  CHECK(stored_ids(store) == stored_ids(scratch / "whole/teacher"));
  CHECK(num_files(store) == 2);
  for (const auto& one : fs::directory_iterator(store)) CHECK(one.path().extension() != ".tmp");
  check_close(figure(scratch / "killed", "loss"), figure(scratch / "whole", "loss"), 2e-5);
  // A run that dies later has the distributions.
  const Outcome later =
      cli_in(scratch.path(), kStored + "run.dir=later", "/nowhere", {"MTRAIN_FAULT=train.step:2"});
  CHECK(later.status != 0);
  CHECK(stored_ids(scratch / "later/teacher").size() == 48);
}

TEST_CASE("a store and ids that do not fit are refused, with what to do") {
  const Scratch scratch("mtrain-stored-refused");
  make_teacher(scratch);
  done(scratch, kStored + "run.dir=one objective.store=kept");
  const std::string set = kStored + "run.dir=a objective.store=kept ";
  auto says = [&](const std::string& with, int status, const std::string& part,
                  const std::string& remedy) {
    refuses(scratch, set + with, status, part, remedy);
    CHECK_FALSE(fs::exists(scratch / "a"));
  };
  says("objective.top_k=8", 10, "another objective.top_k: there 12, now 8",
       "set objective.top_k=12");
  says("objective.temperature=2", 10, "another objective.temperature", "objective.store=DIR");
  says("model.seq_length=16", 10, "another model.seq_length", "set model.seq_length=32");
  says("objective.top_k=300 objective.store=new", 10,
       "objective.top_k=300, but student and teacher have", "at most");
  says("objective.teacher='' objective.store=new", 10, "there is no objective.teacher",
       "objective.teacher=FOLDER-OR-RUN");
  says("objective.store=x.txt", 10, "is not a folder", "give a folder");
  says("objective.top_k=-1", 10, "objective.top_k", "");
  done(scratch, "t.yaml -q run.dir=teacher train.steps=61");
  says("", 10, "a teacher of other weights", "restore the weights");
  // A byte of a stored value.
  for (const auto& one : fs::directory_iterator(scratch / "kept"))
    if (one.path().extension() == ".safetensors") {
      std::fstream file(one.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-100, std::ios::end);
      file.put('x');
    }
  refuses(scratch, set + "objective.teacher=''", 11, "is damaged", "delete this file");
}

TEST_CASE("a run with stored distributions has no teacher in memory") {
  const Scratch scratch("mtrain-stored-memory");
  make_teacher(scratch);
  auto bench = [&](const std::string& set) {
    return json::parse(
        done(scratch, "bench s.yaml --steps 2 --warmup 1 --json --plain validation.steps=0 " + set)
            .out);
  };
  const json with = bench("objective.top_k=12"),
             without = bench("~objective.teacher objective.type=tokens");
  CHECK(with.at("planned_memory") == with.at("tensor_memory"));
  for (const char* use : {"parameters", "optimizer"})
    CHECK(with.at("planned_memory").at("uses").at(use) ==
          without.at("planned_memory").at("uses").at(use));
}
