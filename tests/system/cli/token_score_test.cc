// Models of scores of tokens: classes of words learn as in transformers, with seqeval's figures of
// entities, in every layout, and are folders of transformers in both directions.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "built_plugins.h"
#include "done.h"
#include "golden_case.h"
#include "mtrain/config/tree.h"
#include "mtrain/optim/objective.h"
#include "python_check.h"
#include "roots.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;
using mtrain::cat;
using nlohmann::json;

namespace {

fs::path labels_folder(const std::string& name) {
  return source_root() / "tests/golden/token_scores" / name;
}

const json& labels_golden() {
  static const json kGolden = json::parse(slurp(labels_folder("golden.json")));
  return kGolden;
}

std::string plugin_of(const std::string& model) {
  return model == "gpt2" || model == "bert" ? model : "llama";
}

/// A folder of scores of tokens as `there`, the golden records as w.jsonl, and a recipe for all of
/// them in each step. Words are joined without a space, since each id is a character.
void write_words(const Scratch& scratch, const std::string& model) {
  copy_model(scratch, labels_folder(model));
  std::string lines;
  for (const json& record : labels_golden().at("records")) {
    json line{{"tokens", json::array()}, {"ner_tags", record.at("labels")}};
    for (const json& word : record.at("tokens")) line["tokens"].push_back(text_of(word));
    lines += line.dump() + "\n";
  }
  scratch.write("w.jsonl", lines);
  scratch.write("w.yaml", cat("model: {type: ", plugin_of(model),
                              ", init_from: there, seq_length: 48}\n", kGoldenTraining,
                              "train: {steps: 5, global_batch_size: 4, micro_batch_size: 2}\n",
                              "dataset: {type: token_classification, path: w.jsonl, split: '1', "
                              "separator: '', labels: [O, B-PER, I-PER]}\n"
                              "objective: {type: token_classification}\n"));
}

void check_columns(const fs::path& run, const json& steps, double epsilon) {
  for (const auto& [key, value] : steps.at(0).items()) {
    CAPTURE(key);
    const std::vector<double> got = column(run, key);
    REQUIRE(got.size() == steps.size());
    for (size_t i = 0; i < got.size(); ++i)
      CHECK(got[i] == doctest::Approx(steps.at(i).at(key).get<double>()).epsilon(epsilon).scale(1));
  }
}

void refuses_words(const Scratch& scratch, const std::string& words, int status,
                   const std::string& part, const std::string& remedy = "") {
  const Outcome outcome = cli_in(scratch.path(), words);
  const std::string details = words + "\n" + outcome.err + outcome.out;
  CHECK_MESSAGE(outcome.status == status, details);
  CHECK_MESSAGE(has(outcome.err + outcome.out, part), details);
  CHECK_MESSAGE(has(outcome.err + outcome.out, remedy), details);
}

}  // namespace

TEST_CASE("classes of tokens learn as in transformers, causal and bidirectional, packed or not") {
  for (const auto& [name, wanted] : labels_golden().at("cases").items()) {
    CAPTURE(name);
    const Scratch scratch("mtrain-token-scores");
    write_words(scratch, wanted.at("model").get<std::string>());
    const std::string labeled = cat(" dataset.labeled=", wanted.at("labeled").get<std::string>());
    done(scratch, "w.yaml -q run.dir=run" + labeled);
    check_columns(scratch / "run", wanted.at("steps"), 2e-5);
    done(scratch, "-q export run out");
    const mtrain::SafetensorsFile file(scratch / "out/model.safetensors");
    for (const auto& [tensor, values] : wanted.at("weights").items()) {
      CAPTURE(tensor);
      const std::vector<float> got = mtrain::file_values(file, file.at(tensor));
      for (size_t i = 0; i < values.size(); ++i)
        CHECK(std::fabs(static_cast<double>(got[i]) - values[i].get<double>()) < 1e-5);
    }
    // Two samples of 48 positions hold all four records.
    done(scratch,
         "w.yaml -q run.dir=packed dataset.packing=offline train.global_batch_size=2 "
         "train.micro_batch_size=1 model.seq_length=28" +
             labeled);
    check_columns(scratch / "packed", wanted.at("steps"), 2e-5);
  }
}

TEST_CASE(
    "a folder of scores of tokens is the same after import and export, for transformers too") {
  bool python = true;
  for (const std::string model : {"llama", "qwen2", "gpt2", "bert"}) {
    CAPTURE(model);
    const Scratch scratch("mtrain-token-scores-folder");
    write_words(scratch, model);
    done(scratch, "-q import there run");
    done(scratch, "-q export run out");
    CHECK(largest_difference(scratch / "there/model.safetensors",
                             scratch / "out/model.safetensors") == 0);
    const json theirs = json::parse(slurp(scratch / "there/config.json")),
               ours = json::parse(slurp(scratch / "out/config.json"));
    for (const char* key : {"architectures", "model_type", "id2label", "label2id"})
      CHECK(ours.value(key, json()) == theirs.value(key, json()));
    python =
        python &&
        python_agrees("hf_export_check.py",
                      {(scratch / "out").string(),
                       (labels_folder(model) / "expected_logits.safetensors").string(), "1e-6"});
  }
}

TEST_CASE("classes of tokens learn the same in every layout and division") {
  for (const std::string model : {"llama", "bert"}) {
    CAPTURE(model);
    const Scratch scratch("mtrain-token-scores-layouts");
    write_words(scratch, model);
    const json& steps = labels_golden().at("cases").at(model).at("steps");
    int number = 0;
    for (const std::string layout :
         {"train.micro_batch_size=1", "dist.nproc=2 dist.zero=1", "dist.nproc=2 dist.zero=3",
          "dist.nproc=2 dist.tp=2", "dist.nproc=2 dist.tp=2 dist.sp=true", "dist.nproc=2 dist.cp=2",
          "dist.nproc=2 dist.pp=2", "dist.nproc=4 dist.pp=2 dist.cp=2 train.micro_batch_size=1",
          "model.recompute=full"}) {
      CAPTURE(layout);
      const std::string run = cat("r", number++);
      done(scratch, cat("w.yaml -q run.dir=", run, " ", layout));
      check_columns(scratch / run, steps, 2e-5);
    }
  }
}

TEST_CASE("a language model becomes one of scores of tokens, also with adapters") {
  const Scratch scratch("mtrain-token-scores-new");
  write_words(scratch, "llama");
  fs::remove_all(scratch / "there");
  copy_model(scratch, source_root() / "tests/golden/llama_tiny");
  const std::string labels = " model.labels=3 model.labels_of=token ";
  done(scratch, "-q import there run" + labels);
  done(scratch, "-q export run out");
  const mtrain::SafetensorsFile file(scratch / "out/model.safetensors");
  CHECK(file.find("lm_head.weight") == nullptr);
  CHECK(mtrain::file_values(file, file.at("score.bias")) == std::vector<float>(3));
  CHECK(json::parse(slurp(scratch / "out/config.json")).at("architectures") ==
        json{"LlamaForTokenClassification"});

  const std::string from = "w.yaml -q model.init_std=0.05" + labels + "model.init_from=";
  done(scratch, "-q import there tokens");
  done(scratch, from + "tokens run.dir=t");
  done(scratch, from + "there run.dir=f");
  CHECK(column(scratch / "t", "loss") == column(scratch / "f", "loss"));
  const std::string lora = from + "there peft.type=lora peft.rank=2 run.dir=";
  refuses_words(scratch, lora + "n peft.train=[score.weight]", 10, "score.bias starts from random",
                "[score.weight, score.bias]");
  done(scratch, lora + "a peft.train=[score.weight,score.bias]");
  CHECK(column(scratch / "a", "loss").back() < column(scratch / "a", "loss").front());
  done(scratch, "-q export a adapters");
  const json adapters = json::parse(slurp(scratch / "adapters/adapter_config.json"));
  CHECK(adapters.at("task_type") == "TOKEN_CLS");
  CHECK(adapters.at("modules_to_save") == json{"score"});
  done(scratch, from + "out run.dir=b peft.type=lora peft.rank=2");
  done(scratch, "-q merge b --into merged");
  const json merged = json::parse(slurp(scratch / "merged/config.json"));
  CHECK(merged.at("architectures") == json{"LlamaForTokenClassification"});
  CHECK(merged.at("id2label") == json{{"0", "O"}, {"1", "B-PER"}, {"2", "I-PER"}});

  // Of an encoder of masked tokens, too.
  fs::remove_all(scratch / "there");
  copy_model(scratch, source_root() / "tests/golden/bert_tiny", 192);
  done(scratch, "w.yaml -q model.type=bert model.labels=3 run.dir=m");
  done(scratch, "-q export m encoder");
  CHECK(json::parse(slurp(scratch / "encoder/config.json")).at("architectures") ==
        json{"BertForTokenClassification"});
}

TEST_CASE("a run of scores of tokens continues to the bit, and is evaluated") {
  const Scratch scratch("mtrain-token-scores-resume");
  write_words(scratch, "llama");
  const std::string set =
      " mixed_precision.dtype=bf16 validation.steps=1 validation.interval=2 "
      "dataset.valid_path=w.jsonl ";
  done(scratch, "w.yaml -q run.dir=whole train.steps=6" + set);
  done(scratch, "w.yaml -q run.dir=halves train.steps=3" + set);
  done(scratch, "w.yaml -q run.dir=halves train.steps=6" + set);
  for (const char* key : {"loss", "grad_norm", "accuracy", "f1"})
    CHECK(column(scratch / "whole", key) == column(scratch / "halves", key));
  CHECK(column(scratch / "whole", "val_f1").size() == 3);
  const json eval = json::parse(
      done(scratch, "eval --from whole --json --split valid mixed_precision.dtype=fp32").out);
  CHECK(has(done(scratch, "eval --from whole --split valid").out, "per token with a class"));
  CHECK(eval.at("accuracy").get<double>() > 0.3);
  CHECK(eval.contains("f1"));
}

TEST_CASE("records and settings that cannot be classes of tokens are refused by name") {
  const Scratch scratch("mtrain-token-scores-refused");
  write_words(scratch, "llama");
  refuses_words(scratch, "check w.yaml objective.type=classification", 10, "classes of sequences");
  refuses_words(scratch, "check w.yaml model.labels_of=sequence", 10, "model.labels_of", "token");
  refuses_words(scratch, "check w.yaml model.init_from='' model.layers=1", 10, "model.labels=0");
  const auto record = [&](const std::string& line, const std::string& part,
                          const std::string& set = "") {
    scratch.write("n.jsonl", "{\"tokens\": [\"a\"], \"tags\": [\"O\"]}\n" + line + "\n");
    refuses_words(scratch, "w.yaml -q run.dir=a dataset.path=n.jsonl" + set, 11,
                  "n.jsonl:2: " + part);
  };
  record(R"({"tokens": ["a", "b"], "tags": ["O"]})", "has 2 words in 'tokens' and 1 in 'tags'");
  record(R"({"tokens": ["a"], "tags": ["B-ORG"]})", "has the label 'B-ORG', which is not in");
  record(R"({"tokens": ["a"], "tags": [3]})", "has the label 3, wanted a name or a whole number");
  record(R"({"tokens": [], "tags": []})", "has no words");
  record(R"({"tokens": "a", "tags": ["O"]})", "has string as 'tokens'");
  record(R"({"tokens": ["a", 3], "tags": ["O", "O"]})", "has number as a word");
  record(R"({"tokens": ["a"], "tags": ["O"], "labels": [1]})", "has the fields labels and tags");
  record(R"({"tokens": ["a"]})", "has no field 'labels'");
  record(R"({"tokens": ["a", "b", "c"], "tags": [0, 0, 0]})", "has 3 tokens; a sample takes 2",
         " dataset.too_long=fail model.seq_length=2");
  const Outcome outcome = cli_in(
      scratch.path(), "w.yaml run.dir=s train.steps=0 dataset.path=n.jsonl model.seq_length=2");
  const std::string said = outcome.err + outcome.out;
  CHECK_MESSAGE(has(said, "2 of 2 records, 4 words with a class; tokens of class O 3"), said);
  CHECK_MESSAGE(
      has(said,
          "1 truncated to 2 tokens, without 1 of the tokens that have a class\n  help: raise"),
      said);
}

TEST_CASE("the recipe quickstart_tags learns which words are names") {
  const Scratch scratch("mtrain-quickstart-tags");
  std::istringstream text(slurp(source_root() / "docs/data.md"));
  std::string lines;
  json words = json::array(), tags = json::array();
  for (std::string word; text >> word;) {
    // Names are words in capitals, of which two in a row are one name.
    if (!std::ranges::all_of(word, [](unsigned char c) { return std::isalpha(c); })) continue;
    const bool name = words.size() % 5 < 2 && words.size() > 4;
    if (name)
      std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::toupper(c); });
    tags.push_back(!name ? "O" : words.size() % 5 == 0 ? "B-NAME" : "I-NAME");
    words.push_back(word);
    if (words.size() < 12) continue;
    lines += json{{"tokens", words}, {"labels", tags}}.dump() + "\n";
    words = json::array(), tags = json::array();
  }
  scratch.write("tags.jsonl", lines);
  done(scratch,
       "quickstart_tags -q run.dir=run dataset.path=tags.jsonl mixed_precision=fp32 run.threads=2 "
       "train.steps=60 model.layers=2 model.hidden_size=128 model.heads=2 "
       "model.ffn_hidden_size=256 optimizer.lr=1e-3 validation.interval=0 dataset.labeled=all");
  const std::vector<double> f1 = column(scratch / "run", "f1");
  REQUIRE(f1.size() >= 20);
  const double late = std::accumulate(f1.end() - 10, f1.end(), 0.0) / 10;
  CHECK_MESSAGE(late > 0.6, f1.front(), " to ", late);
}

TEST_CASE("entities are counted as by seqeval") {
  mtrain::PluginHost plugins = built_plugins();
  mtrain::ObjectiveContext context{.labels = {"O", "B-A", "I-A", "B-B", "I-B", "E-B", "S-A"}};
  const auto objective =
      plugins.make<mtrain::Objective>("token_classification", mtrain::Node::map(), context);
  using Classes = std::vector<int32_t>;
  // Counts of entities of seqeval 1.2.2: get_entities().
  for (const auto& [classes, count] : {std::pair{Classes{0, 0, 0}, 0},
                                       {{1, 2, 0}, 1},
                                       {{2, 2, 0}, 1},
                                       {{1, 1, 2}, 2},
                                       {{1, 4, 4}, 2},
                                       {{3, 4, 5, 5}, 2},
                                       {{6, 6, 2}, 3},
                                       {{2, 4, 0, 4}, 3}}) {
    CAPTURE(classes);
    const std::vector<mtrain::Share> shares = objective->of_sequence(classes, classes);
    REQUIRE(shares.size() == 3);
    CHECK(shares[0].sum == count);
    CHECK(shares[1].count == count);
    CHECK(shares[2].count == 2 * count);
  }
  // One of two entities has another end, so that it is neither precise nor found.
  const std::vector<mtrain::Share> shares =
      objective->of_sequence(Classes{1, 2, 0, 3}, Classes{1, 0, 0, 3});
  CHECK(shares[0].sum == 1);
  CHECK(shares[0].count == 2);
  context.labels = {"NOUN", "VERB"};  // no entities
  CHECK(plugins.make<mtrain::Objective>("token_classification", mtrain::Node::map(), context)
            ->sequence_figures()
            .empty());
}
