// Models of scores: rewards and classes learn as in PyPI's trl and transformers, in every layout,
// continue to the bit, and are folders of transformers in both directions.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "built_plugins.h"
#include "done.h"
#include "golden_case.h"
#include "letter_pairs.h"
#include "mtrain/config/tree.h"
#include "mtrain/optim/objective.h"
#include "python_check.h"
#include "roots.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using mtrain::cat;
using nlohmann::json;

namespace {

fs::path golden_folder(const std::string& name) {
  return source_root() / "tests/golden/scores" / name;
}

const json& golden() {
  static const json kGolden = json::parse(slurp(golden_folder("golden.json")));
  return kGolden;
}

/// A folder of scores as `there`, the golden records as p.jsonl and t.jsonl, and recipes for all
/// records in each step.
void write_case(const Scratch& scratch, const std::string& model) {
  copy_model(scratch, golden_folder(model));
  json pairs = golden().at("pairs");
  scratch.write("margins.jsonl", lines_of(pairs));
  for (json& record : pairs) record.erase("margin");
  scratch.write("p.jsonl", lines_of(pairs));
  scratch.write("t.jsonl", lines_of(golden().at("texts")));
  const std::string head = cat("model: {type: ", model == "gpt2" ? "gpt2" : "llama",
                               ", init_from: there, seq_length: 48}\n", kGoldenTraining,
                               "train: {steps: 5, global_batch_size: 4, micro_batch_size: 2}\n");
  scratch.write("r.yaml", head +
                              "dataset: {type: preference, path: p.jsonl, split: '1'}\n"
                              "objective: {type: reward}\n");
  scratch.write("c.yaml", head +
                              "dataset: {type: classification, path: t.jsonl, split: '1'}\n"
                              "objective: {type: classification}\n");
}

void check_close(const std::vector<double>& got, const std::vector<double>& want, double epsilon) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(want[i]).epsilon(epsilon).scale(1));
}

double difference(const fs::path& folder, const fs::path& other) {
  return largest_difference(folder / "model.safetensors", other / "model.safetensors");
}

/// Exits with this status and says so.
void refuses(const Scratch& scratch, const std::string& words, int status, const std::string& part,
             const std::string& remedy = "") {
  const Outcome outcome = cli_in(scratch.path(), words);
  const std::string details = words + "\n" + outcome.err + outcome.out;
  CHECK_MESSAGE(outcome.status == status, details);
  CHECK_MESSAGE(has(outcome.err + outcome.out, part), details);
  CHECK_MESSAGE(has(outcome.err + outcome.out, remedy), details);
}

}  // namespace

TEST_CASE("rewards learn as in trl, and classes as in transformers") {
  for (const auto& [name, wanted] : golden().at("cases").items()) {
    CAPTURE(name);
    const Scratch scratch("mtrain-scores");
    write_case(scratch, wanted.at("model").get<std::string>());
    const bool classes = wanted.at("settings").at("type") == "classification";
    std::string set;
    for (const auto& [key, value] : wanted.at("settings").items())
      if (key != "type") set += cat(" objective.", key, "=", value.dump());
    if (name == "reward_margins") set += " dataset.path=margins.jsonl";
    done(scratch, (classes ? "c.yaml" : "r.yaml") + (" -q run.dir=run" + set));
    const json& steps = wanted.at("steps");
    for (const auto& [key, value] : steps.at(0).items()) {
      CAPTURE(key);
      std::vector<double> want;
      for (const json& step : steps) want.push_back(step.at(key).get<double>());
      check_close(column(scratch / "run", key), want, key == "grad_norm" ? 2e-5 : 1e-5);
    }
    done(scratch, "-q export run out");
    const mtrain::SafetensorsFile file(scratch / "out/model.safetensors");
    for (const auto& [tensor, values] : wanted.at("weights").items()) {
      CAPTURE(tensor);
      const std::vector<float> got = mtrain::file_values(file, file.at(tensor));
      for (size_t i = 0; i < values.size(); ++i)
        CHECK(std::fabs(static_cast<double>(got[i]) - values[i].get<double>()) < 5e-6);
    }
  }
}

TEST_CASE("a folder of scores is the same after import and export") {
  for (const std::string model : {"llama", "qwen3", "gpt2"}) {
    CAPTURE(model);
    const Scratch scratch("mtrain-scores-folder");
    write_case(scratch, model);
    done(scratch, "-q import there run");
    done(scratch, "-q export run out");
    CHECK(difference(scratch / "there", scratch / "out") == 0);
    const json theirs = json::parse(slurp(scratch / "there/config.json")),
               ours = json::parse(slurp(scratch / "out/config.json"));
    for (const char* key :
         {"architectures", "model_type", "pad_token_id", "problem_type", "id2label", "label2id"})
      CHECK(ours.value(key, json()) == theirs.value(key, json()));
  }
}

TEST_CASE("transformers loads an exported folder of scores without a warning, with equal scores") {
  for (const std::string model : {"llama", "qwen3", "gpt2"}) {
    CAPTURE(model);
    const Scratch scratch("mtrain-scores-transformers");
    write_case(scratch, model);
    done(scratch, "-q import there run");
    done(scratch, "-q export run out");
    if (!python_agrees("hf_export_check.py",
                       {(scratch / "out").string(),
                        (golden_folder(model) / "expected_logits.safetensors").string(), "1e-6"}))
      return;
  }
}

TEST_CASE("the derivatives of objectives over scores are those of their losses") {
  mtrain::PluginHost plugins = built_plugins();
  mtrain::ObjectiveContext context;
  constexpr double kStep = 1e-5;
  mtrain::Node settings = mtrain::Node::map();
  settings.set("center_rewards_coefficient", mtrain::Node::number(0.3));
  const auto reward = plugins.make<mtrain::Objective>("reward", settings, context);
  for (const auto& [chosen, rejected] : {std::pair{0.5, -1.25}, std::pair{-3.0, 2.0}}) {
    auto loss = [&](double c, double r) {
      return reward->of_pair({.tokens = 1, .score = c}, {.tokens = 1, .score = r});
    };
    const auto slope = [&](double c, double r) {
      return (loss(chosen + c, rejected + r).loss - loss(chosen - c, rejected - r).loss) /
             (2 * kStep);
    };
    CHECK(loss(chosen, rejected).d_chosen == doctest::Approx(slope(kStep, 0)).epsilon(1e-6));
    CHECK(loss(chosen, rejected).d_rejected == doctest::Approx(slope(0, kStep)).epsilon(1e-6));
  }
  settings = mtrain::Node::map();
  settings.set("label_smoothing", mtrain::Node::number(0.2));
  const auto classes = plugins.make<mtrain::Objective>("classification", settings, context);
  std::vector<double> scores = {0.5, -2, 700, 699.5};  // exp(700) is near the largest double
  for (int64_t number = 0; number < 4; ++number) {
    const mtrain::ClassValue value = classes->of_class(scores, number);
    for (size_t i = 0; i < scores.size(); ++i) {
      std::vector<double> high = scores, low = scores;
      high[i] += kStep, low[i] -= kStep;
      const double slope =
          (classes->of_class(high, number).loss - classes->of_class(low, number).loss) /
          (2 * kStep);
      CHECK(value.d_scores[i] == doctest::Approx(slope).epsilon(1e-5).scale(1));
    }
    CHECK(value.figures == std::vector<double>{number == 2 ? 1.0 : 0.0});
  }
}

TEST_CASE("scores learn the same in every layout and division") {
  const Scratch scratch("mtrain-scores-layouts");
  write_case(scratch, "llama");
  const std::string set = " objective.center_rewards_coefficient=0.1 ";
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
    for (const char* key :
         {"loss", "grad_norm", "accuracy", "margin", "mean_reward", "min_reward", "max_reward"})
      check_close(column(scratch / run, key), column(scratch / "one", key), 2e-5);
    done(scratch, "-q export " + run + " out" + run);
    CHECK(difference(scratch / "of-one", scratch / ("out" + run)) < 1e-5);
  }
}

TEST_CASE("a language model becomes one of scores: its head is new, the rest is loaded") {
  const Scratch scratch("mtrain-scores-new");
  write_case(scratch, "llama");
  fs::remove_all(scratch / "there");
  copy_model(scratch, source_root() / "tests/golden/llama_tiny");
  const Outcome made = cli_in(scratch.path(), "import there run model.labels=3");
  CHECK_MESSAGE(made.status == 0, made.err);
  CHECK_MESSAGE(has(made.err + made.out, "score.weight is initialized randomly"), made.err);
  done(scratch, "-q export run out");
  const mtrain::SafetensorsFile file(scratch / "out/model.safetensors"),
      theirs(scratch / "there/model.safetensors");
  CHECK(file.find("lm_head.weight") == nullptr);
  CHECK(file.at("score.weight").shape == mtrain::Shape{3, 32});
  const std::vector<float> score = mtrain::file_values(file, file.at("score.weight"));
  const double square = std::inner_product(score.begin(), score.end(), score.begin(), 0.0);
  CHECK(std::sqrt(square / 96) == doctest::Approx(0.08).epsilon(0.25));  // initializer_range
  for (const auto& t : file.tensors())
    if (t.name != "score.weight")
      CHECK(mtrain::file_values(file, t) == mtrain::file_values(theirs, theirs.at(t.name)));
  const json config = json::parse(slurp(scratch / "out/config.json"));
  CHECK(config.at("architectures") == json{"LlamaForSequenceClassification"});
  CHECK(config.at("id2label") == json{{"0", "LABEL_0"}, {"1", "LABEL_1"}, {"2", "LABEL_2"}});

  // Likewise of a run, and with adapters; a frozen random head would learn nothing.
  const std::string from = "c.yaml -q model.labels=3 model.init_std=0.05 model.init_from=";
  done(scratch, "-q import there tokens");
  done(scratch, from + "tokens run.dir=t");
  done(scratch, from + "there run.dir=f");
  CHECK(column(scratch / "t", "loss") == column(scratch / "f", "loss"));
  done(scratch, from + "there run.dir=a peft.type=lora peft.rank=2 peft.train=[score.weight]");
  CHECK(column(scratch / "a", "loss").back() < column(scratch / "a", "loss").front());
  refuses(scratch, from + "there run.dir=c dataset.labels=[bad,fair,bad]", 10,
          "dataset.labels has 'bad' twice");
  refuses(scratch, from + "there run.dir=c peft.type=lora", 10, "peft does not train it",
          "peft.train=[score.weight]");
  done(scratch, "-q export a adapters");
  const json adapters = json::parse(slurp(scratch / "adapters/adapter_config.json"));
  CHECK(adapters.at("task_type") == "SEQ_CLS");
  CHECK(adapters.at("modules_to_save") == json{"score"});
  const Outcome measured =
      done(scratch,
           "eval --from there --adapter adapters model.labels=3 model.seq_length=48 "
           "dataset.type=classification dataset.path=t.jsonl dataset.split=0,0,1 --split test "
           "objective=classification");
  CHECK_FALSE_MESSAGE(has(measured.err + measured.out, "initialized randomly"), measured.err);
  const Outcome continued =
      done(scratch, from +
                        "there run.dir=e peft.type=lora peft.rank=2 peft.train=[score.weight] "
                        "peft.init_from=adapters");
  CHECK_FALSE_MESSAGE(has(continued.err + continued.out, "initialized randomly"), continued.err);
  refuses(scratch, "merge a --into merged", 12, "score.weight: to merge, train the adapters from");
  done(scratch, from + "out run.dir=b peft.type=lora peft.rank=2 peft.train=[score.weight]");
  done(scratch, "-q merge b --into merged");
  CHECK(json::parse(slurp(scratch / "merged/config.json")).at("architectures") ==
        json{"LlamaForSequenceClassification"});
  refuses(scratch, "check c.yaml model.labels=3 model.init_from=there peft.type=lora", 10,
          "peft does not train it");
}

TEST_CASE("peft loads adapters of a model whose head of scores is frozen") {
  const Scratch scratch("mtrain-scores-frozen");
  write_case(scratch, "qwen3");
  const std::string lora = "c.yaml -q peft.type=lora peft.rank=2 ";
  done(scratch, lora + "run.dir=run");
  done(scratch, "-q export run out");
  CHECK(json::parse(slurp(scratch / "out/adapter_config.json")).at("modules_to_save") ==
        json{"score"});
  done(scratch, lora + "run.dir=again train.steps=0 peft.init_from=out");
  done(scratch, "-q export again same");
  CHECK(largest_difference(scratch / "out/adapter_model.safetensors",
                           scratch / "same/adapter_model.safetensors") == 0);
  spoil_tensor(scratch / "out/adapter_model.safetensors", "score.weight");
  refuses(scratch, lora + "run.dir=other peft.init_from=out", 12, "not trained by peft.train");
  done(scratch, "-q merge run --into merged");
  peft_agrees(scratch, "same");
}

TEST_CASE("a run of scores continues to the bit, and is evaluated") {
  const Scratch scratch("mtrain-scores-resume");
  write_case(scratch, "llama");
  const std::string set =
      " mixed_precision.dtype=bf16 validation.steps=1 validation.interval=2 "
      "dataset.valid_path=p.jsonl ";
  done(scratch, "r.yaml -q run.dir=whole train.steps=6" + set);
  done(scratch, "r.yaml -q run.dir=halves train.steps=3" + set);
  done(scratch, "r.yaml -q run.dir=halves train.steps=6" + set);
  for (const char* key : {"loss", "grad_norm", "margin", "min_reward"})
    CHECK(column(scratch / "whole", key) == column(scratch / "halves", key));
  const std::vector<double> valid = column(scratch / "whole", "val_accuracy");
  CHECK(valid.size() == 3);
  CHECK(valid.back() == 1);
  const json eval = json::parse(
      done(scratch, "eval --from whole --json --split valid mixed_precision.dtype=fp32").out);
  CHECK(eval.at("accuracy") == 1);
  CHECK(eval.at("max_reward").get<double>() > eval.at("min_reward").get<double>());
}

TEST_CASE("a folder without a padding token gets that of the tokenizer") {
  const Scratch scratch("mtrain-scores-padding");
  write_case(scratch, "qwen3");
  json config = json::parse(slurp(scratch / "there/config.json"));
  const auto padding = [&](const char* out) {
    return json::parse(slurp(scratch / out / "config.json")).at("pad_token_id");
  };
  write_at(scratch / "there/tokenizer_config.json",
           R"({"eos_token": "</s>", "pad_token": "<unk>"})");
  config.erase("pad_token_id");
  scratch.write("there/config.json", config.dump());
  done(scratch, "-q import there absent");
  done(scratch, "-q export absent absent_out");
  CHECK(padding("absent_out") == 0);  // <unk>
  config["pad_token_id"] = nullptr;   // as transformers writes it for Llama
  scratch.write("there/config.json", config.dump());
  done(scratch, "-q import there null");
  done(scratch, "-q export null null_out");
  CHECK(padding("null_out") == 0);
  done(scratch, "c.yaml -q run.dir=lora train.steps=1 peft=lora");
  done(scratch, "-q merge lora --into merged");
  CHECK(padding("merged") == 0);
}

TEST_CASE("a folder's task and the order of its labels are those of the recipe") {
  const Scratch scratch("mtrain-scores-task");
  write_case(scratch, "qwen3");
  json config = json::parse(slurp(scratch / "there/config.json"));
  config["id2label"] = {{"0", "bad"}, {"1", "fair"}, {"2", "good"}};
  config["label2id"] = {{"bad", 0}, {"fair", 1}, {"good", 2}};
  scratch.write("there/config.json", config.dump());
  for (const std::string command : {"check c.yaml", "c.yaml -q run.dir=a"})
    refuses(scratch, command + " dataset.labels=[good,fair,bad]", 10,
            "dataset.labels: is [good, fair, bad]", "is [bad, fair, good]");
  done(scratch, "c.yaml -q run.dir=b train.steps=1 dataset.labels=[bad,fair,good]");
  // The labels of a run are those of what starts from it.
  done(scratch, "c.yaml -q run.dir=c train.steps=1 model.init_from=b");
  done(scratch, "-q export c out");
  CHECK(json::parse(slurp(scratch / "out/config.json")).at("id2label") == config["id2label"]);
  const std::string other = " dataset.labels=[good,fair,bad]";
  refuses(scratch, "c.yaml -q run.dir=d model.init_from=b" + other, 10,
          "where dataset.labels is [bad, fair, good]");
  refuses(scratch, "eval --from b" + other, 10, "dataset.labels: is [good, fair, bad]");
  config["pad_token_id"] = 2;  // the end of text
  scratch.write("there/config.json", config.dump());
  const Outcome padded = cli_in(scratch.path(), "c.yaml run.dir=e train.steps=1");
  CHECK_MESSAGE(has(padded.err, "padding token is 2, the end-of-text token"), padded.err);
  config["problem_type"] = "multi_label_classification";
  scratch.write("there/config.json", config.dump());
  refuses(scratch, "check c.yaml", 10, "problem_type is \"multi_label_classification\"");
}

TEST_CASE("mixtures of experts and classes of names; what cannot be is refused by name") {
  const Scratch scratch("mtrain-scores-refused");
  write_case(scratch, "qwen3");
  refuses(scratch, "check r.yaml model.labels=3", 10, "needs one score per answer",
          "model.labels=1");
  refuses(scratch, "check c.yaml model.labels=2", 10, "whose id2label means 3");
  refuses(scratch, "check r.yaml objective.type=dpo", 10, "cannot learn the objective dpo",
          "reward, classification and token_classification");
  refuses(scratch, "check r.yaml objective.type=classification", 10, "classes of sequences");
  refuses(scratch, "check c.yaml objective.type=reward", 10, "preferences between answers");
  refuses(scratch, "check c.yaml model.init_from='' model.layers=1", 10, "model.labels=0",
          "model.labels=2");
  refuses(scratch, "c.yaml -q run.dir=a dataset.labels=[a,b]", 10, "dataset.labels has 2 names");
  scratch.write("n.jsonl",
                "{\"text\": \"ab\", \"label\": \"fair\"}\n"
                "{\"text\": \"c\", \"label\": \"poor\"}\n");
  refuses(scratch, "c.yaml -q run.dir=a dataset.path=n.jsonl dataset.labels=[bad,fair,good]", 11,
          "n.jsonl:2: has the label 'poor'");
  scratch.write("n.jsonl", "{\"text\": \"ab\", \"label\": null}\n");
  refuses(scratch, "c.yaml -q run.dir=a dataset.path=n.jsonl", 11, "has no value in the field");
  scratch.write("n.jsonl", "{\"text\": \"ab\", \"label\": 3}\n");
  refuses(scratch, "c.yaml -q run.dir=a dataset.path=n.jsonl", 11, "from 0 to 2");
  done(scratch, "-q import there scores");
  refuses(scratch, "generate --from scores --prompt a", 10, "predicts no tokens");
  refuses(scratch, "export scores out.gguf", 10, "one of scores");

  const std::string moe =
      "model: {type: moe, layers: 2, hidden_size: 32, heads: 4, ffn_hidden_size: 64, labels: 1, "
      "seq_length: 48, moe: {experts: 4, ffn_hidden_size: 32}}\n"
      "dataset: {type: mock, answers: 2, epoch_samples: 8}\nobjective: reward\nrun: {threads: 1}\n"
      "mixed_precision: {dtype: fp32}\nlogger: {tensorboard: false}\n"
      "scheduler: {type: constant}\noptimizer: {type: adamw, lr: 3e-3}\n"
      "validation: {steps: 0}\ntrain: {steps: 12, global_batch_size: 4, micro_batch_size: 2}\n";
  scratch.write("m.yaml", moe);
  done(scratch, "m.yaml -q run.dir=one");
  CHECK(column(scratch / "one", "loss").back() < 0.4);
  done(scratch, "m.yaml -q run.dir=ep dist.nproc=2 dist.ep=2");
  check_close(column(scratch / "ep", "loss"), column(scratch / "one", "loss"), 1e-3);
  done(scratch, "m.yaml -q run.dir=fp16 mixed_precision.dtype=fp16");
  check_close(column(scratch / "fp16", "loss"), column(scratch / "one", "loss"), 5e-2);
  refuses(scratch, "m.yaml -q run.dir=nan model.init_std=1e30 mixed_precision.dtype=fp16", 14,
          "the model's score 0 of sample");
}

TEST_CASE("the recipe quickstart_reward learns to score small letters above capitals") {
  const Scratch scratch("mtrain-quickstart-reward");
  write_letter_pairs(scratch);
  done(scratch, "quickstart_reward -q run.dir=run" + kLetterPairs);
  const std::vector<double> right = column(scratch / "run", "accuracy");
  REQUIRE(right.size() == 60);
  CHECK(std::accumulate(right.end() - 20, right.end(), 0.0) / 20 > 0.9);
  // Random scores may order all pairs rightly, but with a small margin.
  const std::vector<double> loss = column(scratch / "run", "loss");
  const double early = std::accumulate(loss.begin(), loss.begin() + 5, 0.0) / 5,
               late = std::accumulate(loss.end() - 20, loss.end(), 0.0) / 20;
  CHECK_MESSAGE(late < 0.5 * early, early, " to ", late);
}
