// mtrain adapters: lists, compares and combines adapters of folders and runs.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "done.h"
#include "golden_case.h"
#include "mtrain/base/text.h"
#include "mtrain/train/peft_adapter.h"
#include "roots.h"
#include "small_tokenizer.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using Json = nlohmann::json;
using mtrain::cat;

namespace {

void copy_adapters(const Scratch& scratch) {
  for (const char* name : {"start", "end"})
    fs::copy(source_root() / "tests/golden/adapters/qv" / name, scratch / name,
             fs::copy_options::recursive);
  fs::copy(source_root() / "tests/golden/adapters/all/end", scratch / "other",
           fs::copy_options::recursive);
}

}  // namespace

TEST_CASE("adapters ls and diff describe adapters") {
  const Scratch scratch("mtrain-adapters-diff");
  copy_adapters(scratch);
  const Json listed = Json::parse(done(scratch, "adapters ls start other --json").out);
  REQUIRE(listed.size() == 2);
  CHECK(listed[0].at("rank") == 4);
  CHECK(listed[1].at("rank") == 3);
  CHECK(listed[0].at("weights").get<int>() < listed[1].at("weights").get<int>());
  CHECK(has(done(scratch, "adapters ls start other").out, "start"));
  CHECK(done(scratch, "adapters diff start start").out == "no difference\n");
  const Json diff = Json::parse(done(scratch, "adapters diff start end --json").out);
  CHECK(diff.at("differing") == listed[0].at("weights"));
  CHECK(diff.at("relative").get<double>() > 0);
  CHECK(diff.at("relative").get<double>() < 1);
  CHECK(has(done(scratch, "adapters diff start other").out, "model.layers.0.mlp.down_proj"));
}

TEST_CASE("adapters merge: the result is the weighted sum, and a folder like any other") {
  const Scratch scratch("mtrain-adapters-blend");
  copy_adapters(scratch);
  fs::create_directories(scratch / "there");
  auto name_base = [&](const std::string& folder, const std::string& base) {
    Json config = Json::parse(slurp(scratch / folder / "adapter_config.json"));
    config["base_model_name_or_path"] = base;
    write_at(scratch / folder / "adapter_config.json", config.dump());
  };
  name_base("start", "there"), name_base("other", "elsewhere");
  const std::string words = "-q adapters merge start other --weights 0.5,2 --into ";
  CHECK(has(done(scratch, words + "apart").err, "different weights"));
  name_base("other", (scratch / "there").string());  // the same folder
  CHECK(!has(done(scratch, words + "both").err, "different weights"));
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy(source_root() / "tests/golden/llama_tiny" / file, scratch / "there" / file);
  write_at(scratch / "there/tokenizer.json", small_tokenizer(200));
  done(scratch, "-q merge both --base there --into merged");
  // The same changes one after the other: 0.5 of the first, then twice the second.
  done(scratch, "-q adapters merge start --weights 0.5 --into half");
  done(scratch, "-q adapters merge other --weights 2 --into twice");
  done(scratch, "-q merge half --base there --into step");
  done(scratch, "-q merge twice --base step --into again");
  auto loss = [&](const std::string& folder) {
    return Json::parse(done(scratch, "eval --from " + folder +
                                         " dataset=mock --batches 2 model.seq_length=16 --json")
                           .out)
        .at("loss")
        .get<double>();
  };
  CHECK(std::fabs(loss("merged") / loss("again") - 1) < 1e-6);
  CHECK(std::fabs(loss("merged") / loss("there") - 1) > 1e-4);
  done(scratch, "-q adapters merge start end --method ties --density 0.5 --into ties");
  CHECK(Json::parse(done(scratch, "adapters ls ties --json").out)[0].at("rank") == 4);
}

TEST_CASE("adapters refuses what it cannot combine, by name") {
  const Scratch scratch("mtrain-adapters-refused");
  copy_adapters(scratch);
  auto refuses = [&](const std::string& words, const char* text) {
    const Outcome out = cli_in(scratch.path(), "adapters " + words);
    CHECK(out.status != 0);
    CHECK_MESSAGE(has(out.err, text), out.err);
    CHECK_FALSE(fs::exists(scratch / "out"));
  };
  refuses("merge start other --method linear --into out", "with rank 4, adapter 2 of");
  refuses("merge start end --weights 1 --into out", "--weights has 1 number for 2 adapters");
  refuses("merge start end --weights 1,x --into out", "'x' is not a number");
  refuses("merge start end --method ties --into out", "needs --density");
  refuses("merge start end --density 0.5 --into out", "--density has no effect");
  refuses("diff start absent", "is neither a run, nor a checkpoint");
  refuses("merge start end --into start", "start");
}

TEST_CASE("adapters that name another model than the one they are added to are warned of") {
  const Scratch scratch("mtrain-adapters-base");
  copy_adapters(scratch);
  for (const char* folder : {"models/right", "moved/right", "models/wrong"}) {
    fs::create_directories(scratch / folder);
    for (const char* file : {"config.json", "model.safetensors"})
      fs::copy(source_root() / "tests/golden/llama_tiny" / file, scratch / folder / file);
    write_at(scratch / folder / "tokenizer.json", small_tokenizer(200));
  }
  scratch.write(
      "t.yaml",
      "model: {type: llama, init_from: x, seq_length: 16}\ntokenizer: {type: hf, path: x}\n"
      "dataset: mock\ntrain: {steps: 1}\npeft: {type: lora, rank: 3, alpha: 6}\n");
  const auto name_base = [&](const std::string& base) {
    Json config = Json::parse(slurp(scratch / "start/adapter_config.json"));
    config["base_model_name_or_path"] = base;
    write_at(scratch / "start/adapter_config.json", config.dump());
  };
  int number = 0;
  const auto warned = [&](const std::string& folder) {
    const std::string part = "were trained on";
    const bool merge =
        has(done(scratch, cat("merge start --base ", folder, " --into new", ++number)).err, part);
    for (const char* words :
         {"generate --prompt a --max-tokens 1", "eval dataset=mock --batches 1"})
      CHECK(has(done(scratch, cat(words, " --adapter start --from ", folder)).err, part) == merge);
    const std::string train = cat("check t.yaml peft.init_from=start model.init_from=", folder,
                                  " tokenizer.path=", folder);
    CHECK(has(cli_in(scratch.path(), train).err, part) == merge);
    return merge;
  };
  name_base((scratch / "models/right").string());
  CHECK_FALSE(warned("models/right"));
  CHECK_FALSE(warned("moved/right"));
  CHECK(warned("models/wrong"));
  name_base("someone/right");
  CHECK_FALSE(warned("moved/right"));
  CHECK(warned("models/wrong"));
}

TEST_CASE(
    "an embedding that peft trained with the output head is merged, and alone it is refused") {
  const Scratch scratch("mtrain-adapters-tying");
  const fs::path golden = source_root() / "tests/golden";
  auto write = [&](const std::string& name, const mtrain::PeftAdapter& adapter, bool tied) {
    mtrain::write_peft_folder(adapter, mtrain::DType::f32, scratch / name);
    Json config = Json::parse(slurp(scratch / name / "adapter_config.json"));
    config["ensure_weight_tying"] = tied;
    if (tied) config["modules_to_save"] = {"embed_tokens"};  // as peft, which saves both
    write_at(scratch / name / "adapter_config.json", config.dump());
  };
  auto refused = [&](const std::string& words) {
    const Outcome outcome = cli_in(scratch.path(), words);
    CHECK_MESSAGE(outcome.status != 0, words);
    return outcome.err;
  };
  const mtrain::PeftAdapter start = mtrain::read_peft_folder(golden / "adapters/qv/start");
  const std::vector<float> values(200 * 32, 0.5f);
  mtrain::PeftAdapter both = start;
  both.whole = {{"lm_head.weight", {200, 32}, values},
                {"model.embed_tokens.weight", {200, 32}, values}};
  write("both", both, true);
  const mtrain::PeftAdapter read = mtrain::read_peft_folder(scratch / "both");
  REQUIRE(read.whole.size() == 1);
  CHECK(read.whole[0].tensor == "model.embed_tokens.weight");
  CHECK(read.whole[0].copies == std::vector<std::string>{"lm_head.weight"});
  copy_model(scratch, golden / "llama_tiny", 200);
  done(scratch, "-q merge both --base there --into merged");
  both.whole[0].values[7] = 1;
  write("differ", both, true);
  CHECK(has(refused("merge differ --base there --into out"), "has tensors that are not supported"));

  mtrain::PeftAdapter head = start;
  head.modules.clear();
  head.whole = {{"lm_head.weight", {192, 32}, std::vector<float>(192 * 32, 0.5f)}};
  write("head", head, false);
  fs::remove_all(scratch / "there");
  copy_model(scratch, golden / "gpt2_tiny", 190);
  const std::string err = refused("merge head --base there --into out");
  CHECK_MESSAGE(has(err, "lm_head.weight is tied to the embedding in this model"), err);
  CHECK_MESSAGE(has(err, "set tie_word_embeddings to false"), err);
}

TEST_CASE("adapters that were trained on a run are merged into its weights or into its export") {
  const Scratch scratch("mtrain-adapters-of-run");
  copy_model(scratch, source_root() / "tests/golden/llama_tiny", 200);
  scratch.write("r.yaml",
                "model: {type: llama, init_from: there, seq_length: 32}\n"
                "tokenizer: {type: hf, path: there}\ndataset: {type: mock}\n"
                "optimizer: {type: adamw, lr: 1e-2}\nmixed_precision: {dtype: fp32}\n"
                "train: {steps: 3, global_batch_size: 2}\n");
  done(scratch, "r.yaml -q run.dir=whole");
  write_at(scratch / "x.jsonl", R"({"prompt": "what", "completion": "a merged model"})"
                                "\n");
  auto loss = [&](const std::string& from) {
    const std::string eval =
        " -q --batches all --json dataset=sft dataset.path=x.jsonl dataset.split='0,1' "
        "mixed_precision.dtype=fp32";
    return Json::parse(done(scratch, "eval --from " + from + eval).out).at("loss").get<double>();
  };
  for (const char* type : {"lora", "dora"}) {
    CAPTURE(type);
    const std::string run = type;
    done(scratch, cat("r.yaml -q model.init_from=whole peft.type=", type, " run.dir=", run));
    done(scratch, cat("-q merge ", run, " --into ", run, "-merged"));
    CHECK(loss(run + "-merged") == doctest::Approx(loss(run)).epsilon(2e-6));
    CHECK(std::fabs(loss(run) - loss("whole")) > 1e-4);
  }
  // peft needs a folder of the weights: the export of the run, and no other.
  const Outcome none = cli_in(scratch.path(), "export lora adapters");
  CHECK(none.status != 0);
  CHECK_MESSAGE(has(none.err, "mtrain export lora ADAPTERS --base FOLDER"), none.err);
  CHECK(has(cli_in(scratch.path(), "adapters ls lora").err, "adapters of peft need a folder"));
  done(scratch, "-q export whole exported");
  done(scratch, "-q export lora adapters --base exported");
  CHECK(mtrain::read_peft_folder(scratch / "adapters").base == (scratch / "exported").string());
  done(scratch, "-q merge adapters --into again");
  CHECK(slurp(scratch / "again/model.safetensors") ==
        slurp(scratch / "lora-merged/model.safetensors"));
  const Outcome other = cli_in(scratch.path(), "merge lora --base there --into out");
  CHECK(other.status != 0);
  CHECK_MESSAGE(has(other.err, "--base there is not an export of"), other.err);
  for (const auto& entry : fs::directory_iterator(scratch.path()))  // nothing temporary is left
    CHECK_MESSAGE(!has(entry.path().filename().string(), "-base"), entry.path());
}
