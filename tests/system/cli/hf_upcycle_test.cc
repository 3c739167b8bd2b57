// model.init_upcycle: a mixture of experts that starts from a dense Hugging Face folder computes,
// at its start, what the dense model computes, and its experts are copies or parts of the MLP.
#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "done.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/checkpoint/hf_weights.h"
#include "roots.h"
#include "shell.h"
#include "small_tokenizer.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

using Floats = std::vector<float>;
using FloatTensors = std::map<std::string, Floats>;

FloatTensors float_tensors(const fs::path& folder) {
  FloatTensors out;
  const mtrain::HfDir source(folder);
  const mtrain::HfWeights weights(source);
  for (const mtrain::TensorInfo* t : weights.tensors())
    out[t->name] = weights.floats(*t, 0, t->shape.numel());
  return out;
}

/// A golden folder `there` (`mistral`: Llama's weights as a Mistral with a window) with a
/// tokenizer, and recipes of its model and of one with experts.
void prepare(const Scratch& scratch, const std::string& set) {
  fs::create_directories(scratch / "there");
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy(source_root() / "tests/golden" / (set == "mistral" ? "llama_tiny" : set) / file,
             scratch / "there" / file);
  auto config = nlohmann::json::parse(slurp(scratch / "there/config.json"));
  if (set == "mistral") {
    config["model_type"] = set;
    config["architectures"] = {"MistralForCausalLM"};
    config["sliding_window"] = 8;
    write_at(scratch / "there/config.json", config.dump());
  }
  const auto ids = std::min<size_t>(190, config.at("vocab_size"));
  write_at(scratch / "there/tokenizer.json", small_tokenizer(ids));
  write_at(scratch / "there/tokenizer_config.json", "{}\n");
  const std::string more =
      "tokenizer: {type: hf, path: there}\ndataset: mock\nrun: {threads: 1}\n"
      "mixed_precision: {dtype: fp32}\nlogger: {tensorboard: false}\n"
      "scheduler: {type: constant}\noptimizer: {type: adamw, lr: 1e-2}\nvalidation: {steps: 0}\n"
      "train: {steps: 1, global_batch_size: 4}\n";
  scratch.write("dense.yaml", "model: {type: llama, init_from: there, seq_length: 16}\n" + more);
  scratch.write("moe.yaml",
                "model: {type: moe, init_from: there, init_upcycle: true, seq_length: 16, "
                "moe: {experts: 4, top_k: 2}}\n" +
                    more);
}

double final_loss(const fs::path& run) { return rows(run, "loss").back().at("loss"); }

/// The loss of the first step of a recipe.
double first_loss(const Scratch& scratch, const std::string& words) {
  fs::remove_all(scratch / "first");
  done(scratch, words + " -q run.dir=first");
  return rows(scratch / "first", "loss").front().at("loss");
}

/// A part of a matrix [rows, columns]: of its rows or of its columns.
Floats part_of(const Floats& matrix, size_t rows, size_t part, size_t parts, bool of_columns) {
  const size_t columns = matrix.size() / rows;
  Floats out;
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c) {
      const bool mine = of_columns ? c / (columns / parts) == part : r / (rows / parts) == part;
      if (mine) out.push_back(matrix[r * columns + c]);
    }
  return out;
}

}  // namespace

TEST_CASE("an upcycled model starts with the loss of the dense one") {
  for (const std::string set : {"llama_tiny", "mistral", "qwen2_tiny", "qwen3_tiny"}) {
    CAPTURE(set);
    const Scratch scratch("mtrain-upcycle");
    prepare(scratch, set);
    const double dense = first_loss(scratch, "dense.yaml");
    const bool large = set == "llama_tiny" || set == "mistral";
    auto parts = [&](int count) {  // experts of a part of the MLP's width
      return mtrain::cat(" model.moe.ffn_hidden_size=", (large ? 80 : 24) / count);
    };
    const int several = large ? 5 : 3;  // no power of two: the factor is rounded
    for (const std::string& words : std::vector<std::string>{
             "", " model.moe.top_k=4", " model.moe.router.scaling=2.5",
             " model.moe.router.score=sigmoid",
             " model.moe.router.pre_softmax=true model.moe.router.normalize=always",
             " model.moe.first_dense_layers=1", parts(2) + " model.moe.experts=8 model.moe.top_k=4",
             parts(2) + " model.moe.experts=8 model.moe.top_k=8",
             parts(2) + " model.moe.experts=8 model.moe.router.score=sigmoid "
                        "model.moe.router.scaling=1.5 model.moe.layer_freq=2",
             mtrain::cat(parts(several), " model.moe.experts=", 4 * several,
                         " model.moe.top_k=", 2 * several)}) {
      CAPTURE(words);
      CHECK(first_loss(scratch, "moe.yaml" + words) == doctest::Approx(dense).epsilon(2e-6));
    }
  }
}

TEST_CASE("experts are the dense model's MLP, and the rest of the model is the folder's") {
  const Scratch scratch("mtrain-upcycle-values");
  prepare(scratch, "qwen3_tiny");
  const FloatTensors dense = float_tensors(scratch / "there");
  const std::string granular =
      " model.moe.ffn_hidden_size=12 model.moe.experts=8 model.moe.top_k=4";
  for (const size_t parts : {size_t{1}, size_t{2}}) {
    CAPTURE(parts);
    const std::string run = mtrain::cat("run", parts);
    done(scratch,
         mtrain::cat("moe.yaml -q train.steps=0 run.dir=", run, parts == 2 ? granular : ""));
    done(scratch, mtrain::cat("-q export ", run, " ", run, "-out"));
    FloatTensors made = float_tensors(scratch / (run + "-out"));
    const auto config = nlohmann::json::parse(slurp(scratch / (run + "-out/config.json")));
    CHECK(config.at("model_type") == "qwen3_moe");
    CHECK(config.at("moe_intermediate_size") == 24 / parts);
    for (const auto& [name, values] : dense) {
      const size_t at = name.find(".mlp.");
      CAPTURE(name);
      if (at == std::string::npos) {
        CHECK(made.at(name) == values);
        continue;
      }
      const std::string rest = name.substr(at + 5);
      const bool down = rest == "down_proj.weight";
      for (size_t e = 0; e < 4 * parts; ++e) {
        Floats want = part_of(values, down ? 16 : 24, e % parts, parts, down);
        if (down)
          for (float& value : want) value *= static_cast<float>(parts);
        CHECK(made.at(mtrain::cat(name.substr(0, at), ".mlp.experts.", e, ".", rest)) == want);
      }
    }
    // The experts of a copy have one row of the router; those of others have others.
    const Floats& router = made.at("model.layers.0.mlp.gate.weight");
    auto row = [&](size_t e) { return part_of(router, 4 * parts, e, 4 * parts, false); };
    for (size_t e = 0; e < 4 * parts; ++e) CHECK(row(e) == row(e / parts * parts));
    CHECK(row(0) != row(parts));
  }
  done(scratch, "moe.yaml -q train.steps=0 run.dir=seed rng.seed=7");
  done(scratch, "-q export seed seed-out");
  CHECK(float_tensors(scratch / "seed-out").at("model.layers.0.mlp.gate.weight") !=
        float_tensors(scratch / "run1-out").at("model.layers.0.mlp.gate.weight"));
  // A folder that was exported is one with experts, and trains on.
  done(scratch,
       "moe.yaml -q run.dir=next model.init_from=run2-out model.init_upcycle=false" + granular);
}

TEST_CASE("a dense Llama becomes a Mixtral, also with experts of a part of the width") {
  const Scratch scratch("mtrain-upcycle-mixtral");
  prepare(scratch, "llama_tiny");
  const double dense = first_loss(scratch, "dense.yaml");
  for (const std::string words : {"", " model.ffn_hidden_size=40"}) {
    CAPTURE(words);
    const std::string run = words.empty() ? "copies" : "parts";
    CHECK(first_loss(scratch, "moe.yaml" + words) == doctest::Approx(dense).epsilon(2e-6));
    done(scratch, mtrain::cat("moe.yaml -q train.steps=0 run.dir=", run, words));
    done(scratch, mtrain::cat("-q export ", run, " ", run, "-out"));
    const auto config = nlohmann::json::parse(slurp(scratch / (run + "-out/config.json")));
    CHECK(config.at("model_type") == "mixtral");
    CHECK(config.at("intermediate_size") == (words.empty() ? 80 : 40));
    done(scratch, mtrain::cat("import ", run, "-out ", run, "-again -q"));
    done(scratch, mtrain::cat("import there ", run,
                              "-imported -q model.type=moe "
                              "model.init_upcycle=true model.moe.experts=4 model.moe.top_k=2",
                              words));
  }
}

TEST_CASE("an upcycled model trains, continues, and is the same in every layout") {
  const Scratch scratch("mtrain-upcycle-ranks");
  prepare(scratch, "qwen3_tiny");
  const std::string how =
      "moe.yaml -q model.moe.ffn_hidden_size=12 model.moe.experts=8 model.moe.top_k=4 run.dir=";
  done(scratch, how + "start train.steps=0");
  done(scratch, "-q export start start-out");
  const FloatTensors start = float_tensors(scratch / "start-out");
  done(scratch, how + "one train.steps=4");
  done(scratch, how + "halves train.steps=2");
  done(scratch, how + "halves train.steps=4");
  CHECK(final_loss(scratch / "halves") == final_loss(scratch / "one"));
  CHECK(final_loss(scratch / "one") < rows(scratch / "one", "loss").front().at("loss"));
  done(scratch, "eval --from one --batches 1");
  for (const auto& [name, layout] : std::map<std::string, std::string>{
           {"ep", "dist.ep=2"}, {"pp", "dist.pp=2"}, {"zero", "dist.zero=3"}}) {
    CAPTURE(layout);
    done(scratch, mtrain::cat(how, name, "-start train.steps=0 dist.nproc=2 ", layout));
    done(scratch, mtrain::cat("-q export ", name, "-start ", name, "-out"));
    CHECK(float_tensors(scratch / (name + "-out")) == start);
    done(scratch, mtrain::cat(how, name, " train.steps=4 dist.nproc=2 ", layout));
    CHECK(final_loss(scratch / name) == doctest::Approx(final_loss(scratch / "one")).epsilon(1e-4));
  }
  // Rows for further tokens at the same time.
  done(scratch, how + "grown model.init_vocab=resize model.vocab_size=64");
}

TEST_CASE("an upcycling that does not fit is refused by name") {
  const Scratch scratch("mtrain-upcycle-refused");
  prepare(scratch, "llama_tiny");
  auto refuses = [&](const std::string& words, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), "check moe.yaml " + words);
    const std::string details = words + "\n" + outcome.out + outcome.err;
    CHECK_MESSAGE(outcome.status == 10, details);
    CHECK_MESSAGE(has(outcome.err, part), details);
  };
  refuses("model.init_upcycle=false", "set model.type=llama");
  refuses("model.type=llama '~model.moe'", "have no experts");
  refuses("model.moe.ffn_hidden_size=48", "does not divide the width of the folder's MLP, 80");
  refuses("model.moe.ffn_hidden_size=20 model.moe.experts=6 model.moe.top_k=4",
          "4 experts of this width are one copy of the MLP");
  refuses("model.moe.ffn_hidden_size=40 model.moe.top_k=1", "model.moe.top_k: is 1, but 2 experts");
  refuses("model.moe.router.pre_softmax=true", "model.moe.router.normalize=always");
  refuses("model.moe.router.score=sigmoid model.moe.top_k=1", "no constant sum");
  refuses("model.moe.shared_ffn_hidden_size=80", "no values for a shared expert");
  refuses("model.moe.shared_experts=1", "no values for a shared expert");
  refuses("model.moe.latent_size=16", "no projections around its MLP");
  refuses("model.moe.expert_bias=true", "have no biases");
  refuses("model.moe.swish_factor=1.702", "changes what the MLP computes");
  refuses("model.moe.ffn_hidden_size=40 model.moe.router.balancing=[sinkhorn]",
          "sinkhorn does not select whole copies");
  refuses("model.moe.ffn_hidden_size=40 model.moe.router.groups=4 model.moe.router.group_top_k=2",
          "which gives groups of 1");
  refuses("model.ffn_hidden_size=96", "does not divide the width");
  refuses("model.ffn_hidden_size=40 model.moe.first_dense_layers=1",
          "whose intermediate_size means 80");
  // Other initial weights than a dense folder's.
  done(scratch, "dense.yaml -q run.dir=run");
  refuses("model.init_from=run", "differs from");
  done(scratch, "moe.yaml -q run.dir=experts");
  refuses("model.init_from=experts", "mtrain export RUN DIR");
  done(scratch, "-q export experts experts-out");
  refuses("model.init_from=experts-out", "it has experts already");
  fs::remove(scratch / "there/model.safetensors");
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy(source_root() / "tests/golden/gpt2_tiny" / file, scratch / "there" / file,
             fs::copy_options::overwrite_existing);
  refuses("", "the model plugin gpt2");
}
