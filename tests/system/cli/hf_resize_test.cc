// model.init_vocab=resize: a Hugging Face folder whose embedding has other rows than the model's.
// Added rows have the mean of the folder's rows, in every layout.
#include <doctest/doctest.h>

#include <cstring>
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

struct Values {
  mtrain::Shape shape;
  std::vector<float> values;
  bool operator==(const Values&) const = default;
};
using Tensors = std::map<std::string, Values>;

Tensors table_tensors(const fs::path& folder) {
  Tensors out;
  const mtrain::HfDir source(folder);
  const mtrain::HfWeights weights(source);
  for (const mtrain::TensorInfo* t : weights.tensors())
    out[t->name] = {t->shape, weights.floats(*t, 0, t->shape.numel())};
  return out;
}

/// The rows of a folder's table for a model with `rows` rows.
Values resized(const Values& theirs, int64_t rows) {
  Values out = theirs;
  const int64_t known = theirs.shape[0], width = theirs.shape.numel() / known;
  out.shape[0] = rows;
  out.values.resize(static_cast<size_t>(rows * width));
  for (int64_t c = 0; rows > known && c < width; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < known; ++r)
      sum += double{theirs.values[static_cast<size_t>(r * width + c)]};
    for (int64_t r = known; r < rows; ++r)
      out.values[static_cast<size_t>(r * width + c)] =
          static_cast<float>(sum / static_cast<double>(known));
  }
  return out;
}

/// The folder's tensors, with tables of tokens of `rows` rows.
Tensors resized(Tensors all, const std::vector<std::string>& tables, int64_t rows) {
  for (const std::string& table : tables) all.at(table) = resized(all.at(table), rows);
  return all;
}

/// A golden folder `there` with a tokenizer for its table, and a folder `more` with a larger one.
void copy_two_sizes(const Scratch& scratch, const std::string& set, size_t more) {
  fs::create_directories(scratch / "there");
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy(source_root() / "tests/golden" / set / file, scratch / "there" / file);
  for (const auto& [folder, ids] : {std::pair{"there", size_t{190}}, {"more", more}}) {
    write_at(scratch / folder / "tokenizer.json", small_tokenizer(ids));
    write_at(scratch / folder / "tokenizer_config.json", "{}\n");
  }
}

constexpr const char* kLlamaTables[] = {"model.embed_tokens.weight", "lm_head.weight"};
const std::vector<std::string> kLlama(std::begin(kLlamaTables), std::end(kLlamaTables));

/// A recipe that starts from the folder `there`, with the larger tokenizer.
void write_recipe(const Scratch& scratch, const std::string& dtype = "fp32") {
  scratch.write("r.yaml",
                "model: {type: llama, init_from: there, init_vocab: resize, seq_length: 16}\n"
                "tokenizer: {type: hf, path: more}\ndataset: mock\nrun: {threads: 1}\n"
                "mixed_precision: {dtype: " +
                    dtype +
                    "}\nlogger: {tensorboard: false}\nscheduler: {type: constant}\n"
                    "optimizer: {type: adamw, lr: 1e-2}\nvalidation: {steps: 0}\n"
                    "train: {steps: 0, global_batch_size: 4}\n");
}

double last_loss(const fs::path& run) { return rows(run, "loss").back().at("loss"); }

}  // namespace

TEST_CASE("added rows of every table have the mean of the folder's rows, and other tensors stay") {
  const std::map<std::string, std::vector<std::string>> sets = {
      {"llama_tiny", kLlama},
      {"gpt2_tiny", {"transformer.wte.weight"}},
      {"bert_tiny", {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias"}},
      {"fp8_tiny", kLlama}};
  for (const auto& [set, tables] : sets) {
    CAPTURE(set);
    const Scratch scratch("mtrain-resize");
    copy_two_sizes(scratch, set, 260);
    const std::string how = " -q model.init_vocab=resize tokenizer.path=more ";
    const Tensors theirs = table_tensors(scratch / "there");
    done(scratch, "import there grown model.vocab_size=261" + how);
    done(scratch, "-q export grown out --dtype fp32");
    CHECK(table_tensors(scratch / "out") == resized(theirs, tables, 261));
    const auto config = nlohmann::json::parse(slurp(scratch / "out/config.json"));
    CHECK(config.at("vocab_size") == 261);
    // The tokenizer's ids, padded to a multiple of 64; padding is not exported.
    done(scratch, "import there padded" + how);
    done(scratch, "-q export padded padded-out --dtype fp32");
    CHECK(table_tensors(scratch / "padded-out") == resized(theirs, tables, 260));
    done(scratch, "import out again -q");
    // Fewer rows are the first ones.
    write_at(scratch / "more/tokenizer.json", small_tokenizer(150));
    done(scratch, "import there shrunk model.vocab_size=151" + how);
    done(scratch, "-q export shrunk less --dtype fp32");
    CHECK(table_tensors(scratch / "less") == resized(theirs, tables, 151));
  }
}

TEST_CASE("ids of generation_config.json that have no row become those of config.json") {
  const Scratch scratch("mtrain-resize-generation");
  copy_two_sizes(scratch, "llama_tiny", 260);
  const std::string theirs =
      R"({"bos_token_id": 5, "eos_token_id": [7, 180], "pad_token_id": 190, "temperature": 0.5})";
  write_at(scratch / "there/generation_config.json", theirs);
  auto exported = [&](const std::string& rows) {
    done(scratch, "import there run-" + rows + " -q model.init_vocab=resize tokenizer.path=more " +
                      "model.vocab_size=" + rows);
    done(scratch, "-q export run-" + rows + " out-" + rows);
    return slurp(scratch / ("out-" + rows) / "generation_config.json");
  };
  CHECK(exported("261") == theirs);
  write_at(scratch / "more/tokenizer.json", small_tokenizer(150));
  const auto ours = nlohmann::json::parse(exported("151"));
  const auto config = nlohmann::json::parse(slurp(scratch / "out-151/config.json"));
  CHECK(ours.at("bos_token_id") == 5);
  CHECK(ours.at("temperature") == 0.5);
  for (const char* key : {"eos_token_id", "pad_token_id"}) {
    const auto own = config.value(key, nlohmann::json());
    CHECK((own.is_null() ? !ours.contains(key) : ours.at(key) == own));
  }
}

TEST_CASE("a resized model trains, continues, and is exported in the folder's type") {
  const Scratch scratch("mtrain-resize-trains");
  copy_two_sizes(scratch, "llama_tiny", 230);
  done(scratch, "-q convert there bf16 --dtype bf16");
  const Tensors theirs = table_tensors(scratch / "bf16");
  write_recipe(scratch, "bf16");
  done(scratch, "r.yaml -q model.init_from=bf16 run.dir=start");
  done(scratch, "-q export start start-out");
  Tensors wanted = resized(theirs, kLlama, 230);
  for (auto& [name, tensor] : wanted)
    for (float& value : tensor.values) value = mtrain::to_float(static_cast<mtrain::bf16>(value));
  CHECK(table_tensors(scratch / "start-out") == wanted);
  done(scratch, "r.yaml -q model.init_from=bf16 run.dir=whole train.steps=4");
  done(scratch, "r.yaml -q model.init_from=bf16 run.dir=halves train.steps=2");
  done(scratch, "r.yaml -q model.init_from=bf16 run.dir=halves train.steps=4");
  CHECK(last_loss(scratch / "whole") == last_loss(scratch / "halves"));
  done(scratch, "eval --from whole --batches 1");
  done(scratch, "-q export whole out");
  done(scratch, "eval --from out --batches 1 dataset=mock");
  CHECK(table_tensors(scratch / "out").at("lm_head.weight").shape == mtrain::Shape{230, 32});
}

TEST_CASE("the rows are the same on ranks that share the table, of one stage or of several") {
  const Scratch scratch("mtrain-resize-ranks");
  copy_two_sizes(scratch, "llama_tiny", 230);
  write_recipe(scratch);
  const Tensors wanted = resized(table_tensors(scratch / "there"), kLlama, 230);
  double loss = 0;
  for (const std::string layout :
       {"", "dist.nproc=2 dist.tp=2", "dist.nproc=2 dist.pp=2", "dist.nproc=2 dist.zero=3"}) {
    CAPTURE(layout);
    const std::string run = mtrain::cat("run-", layout.substr(layout.rfind('=') + 1),
                                        layout.empty() ? "one" : layout.substr(18, 2));
    done(scratch, mtrain::cat("r.yaml -q run.dir=", run, " ", layout));
    done(scratch, mtrain::cat("-q export ", run, " ", run, "-out"));
    CHECK(table_tensors(scratch / (run + "-out")) == wanted);
    done(scratch, mtrain::cat("r.yaml -q train.steps=3 run.dir=", run, "-trained ", layout));
    const double now = last_loss(scratch / (run + "-trained"));
    if (layout.empty()) loss = now;
    CHECK(now == doctest::Approx(loss).epsilon(1e-5));
  }
}

TEST_CASE("a suggested fix changes no setting that config.json decides") {
  const Scratch scratch("mtrain-resize-fix");
  copy_two_sizes(scratch, "gpt2_tiny", 260);
  write_recipe(scratch);
  const Outcome outcome =
      cli_in(scratch.path(), "check r.yaml model.type=gpt2 model.seq_length=100");
  CHECK(outcome.status == 10);
  CHECK_MESSAGE(has(outcome.err, "help: model.seq_length=64\n"), outcome.err);
}

TEST_CASE("check says how many rows are added or dropped, and what does not fit is refused") {
  const Scratch scratch("mtrain-resize-check");
  copy_two_sizes(scratch, "llama_tiny", 230);
  write_recipe(scratch);
  auto says = [&](const std::string& words, int status, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), words);
    const std::string details = words + "\n" + outcome.out + outcome.err;
    CHECK_MESSAGE(outcome.status == status, details);
    CHECK_MESSAGE(has(outcome.out + outcome.err, part), details);
  };
  says("check r.yaml model.vocab_size=256", 0, "adds 56 rows to the 200 of ");
  says("check r.yaml --data", 0, "adds 56 rows to the 200 of ");
  says("check r.yaml --data model.vocab_multiple=1", 0, "adds 30 rows to the 200 of ");
  says("check r.yaml", 0, "the folder has 200; --data says how many");
  says("check r.yaml --data model.vocab_multiple=1", 0, "the mean of these\n");
  says("check r.yaml --data", 0, "the last 26 rows without a token become padding");
  says("check r.yaml model.vocab_size=190", 0, "drops the last 10 of 200 rows of ");
  says("check r.yaml model.vocab_size=200", 0, "changes nothing");
  says("check r.yaml --data model.vocab_size=200", 10, "leave model.vocab_size out");
  // Without the setting, all of this is refused, and the help names it.
  says("check r.yaml model.init_vocab=exact model.vocab_size=256", 10, "model.init_vocab=resize");
  says("check r.yaml --data model.init_vocab=exact", 10, "model.init_vocab=resize");
  says("r.yaml -q run.dir=exact model.init_vocab=exact", 10, "model.init_vocab=resize");
  // A folder whose tensors are not what its config.json says.
  auto config = nlohmann::json::parse(slurp(scratch / "there/config.json"));
  config["vocab_size"] = 210;
  write_at(scratch / "there/config.json", config.dump());
  says("r.yaml -q run.dir=wrong", 12,
       "tensor model.embed_tokens.weight is [200, 32], and config.json says [210, 32]");
  config["vocab_size"] = 200;
  write_at(scratch / "there/config.json", config.dump());
  // Other initial weights have no rows to resize.
  done(scratch, "r.yaml -q run.dir=run");
  says("r.yaml -q run.dir=next model.init_from=run", 10, "mtrain export RUN DIR");
  scratch.write("random.yaml",
                "model: {type: llama, init_vocab: resize, seq_length: 16}\ndataset: mock\n"
                "train: {steps: 0}\n");
  says("check random.yaml", 0, "init-vocab-unused");
  says("eval --from there --batches 1 dataset=mock model.init_vocab=resize", 12,
       "model.init_vocab");
}
