// Warnings and help for settings and arguments that have no effect, do not exist or do not fit:
// they name what to write instead.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "done.h"
#include "golden_case.h"
#include "roots.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

/// The weights of llama_tiny as `there`, and r.yaml, which trains them.
void write_start(const Scratch& scratch) {
  copy_model(scratch, source_root() / "tests/golden/llama_tiny");
  scratch.write("r.yaml", "model: {type: llama, init_from: there, seq_length: 16}\n" +
                              kGoldenTraining +
                              "dataset: mock\ntrain: {steps: 1, global_batch_size: 1}\n");
}

/// What `mtrain WORDS` writes to standard error.
std::string told(const Scratch& scratch, const std::string& words, int status) {
  const Outcome out = cli_in(scratch.path(), words);
  CAPTURE(words);
  CHECK_MESSAGE(out.status == status, out.err);
  return out.err;
}

}  // namespace

TEST_CASE("sequences longer than those of the folder are a warning, and the export has them") {
  const Scratch scratch("mtrain-advice-length");
  write_start(scratch);
  for (const char* words :
       {"check r.yaml model.seq_length=256", "r.yaml run.dir=run model.seq_length=256"}) {
    const std::string err = told(scratch, words, 0);
    CHECK_MESSAGE(has(err, "256 is longer than"), err);
    CHECK_MESSAGE(has(err, "config.json, where max_position_embeddings is 128"), err);
    CHECK(has(err, "not trained with rotary positions from 128 on"));
  }
  CHECK_FALSE(has(told(scratch, "check r.yaml model.seq_length=128", 0), "is longer"));
  // A run's weights know its own positions, or those of the folder from which it started.
  scratch.write("s.yaml", tiny_recipe());
  done(scratch, "s.yaml -q run.dir=own train.steps=1");
  const std::string longer =
      told(scratch, "check s.yaml model.init_from=own model.seq_length=64", 0);
  CHECK_MESSAGE(has(longer, "64 is longer than the sequences of "), longer);
  CHECK_MESSAGE(has(longer, "own, where model.seq_length is 32"), longer);
  CHECK_FALSE(has(told(scratch, "check s.yaml model.init_from=own", 0), "is longer"));
  auto length = [&](const std::string& folder) {
    return nlohmann::json::parse(slurp(scratch / folder / "config.json"))
        .at("max_position_embeddings")
        .get<int>();
  };
  CHECK_FALSE(
      has(told(scratch, "check r.yaml model.init_from=run model.seq_length=256", 0), "is longer"));
  CHECK(has(told(scratch, "check r.yaml model.init_from=run model.seq_length=512", 0),
            "where model.seq_length is 256"));
  done(scratch, "-q export run long");
  CHECK(length("long") == 256);
  done(scratch, "r.yaml -q run.dir=short");
  done(scratch, "-q export short kept");
  CHECK(length("kept") == 128);
  done(scratch, "r.yaml -q run.dir=adapted peft=lora model.seq_length=256");
  done(scratch, "-q merge adapted --into merged");
  CHECK(length("merged") == 256);
  // Nothing was trained yet.
  done(scratch, "-q import there imported model.seq_length=256");
  done(scratch, "-q export imported same");
  CHECK(length("same") == 128);
}

TEST_CASE("settings without an effect on weights of a folder, or on the CPU, are a warning") {
  const Scratch scratch("mtrain-advice-unused");
  write_start(scratch);
  CHECK(has(told(scratch, "check r.yaml model.init_std=1", 0), "model.init_std"));
  CHECK_FALSE(
      has(told(scratch, "check r.yaml model.init_std=1 model.init_vocab=resize", 0), "init_std"));
  CHECK(has(told(scratch, "check r.yaml offload.layers=1", 0), "offload.layers"));
  // Defaults and what config.json says are nobody's wish.
  CHECK(told(scratch, "check r.yaml", 0).empty());
  // Nor are a recipe's settings of what an option of the command line switches off.
  CHECK(told(scratch, "check quickstart_lora peft=none dataset.path=p.jsonl", 0).empty());
}

TEST_CASE("a full disk: the help names the option of the command, on a line of its own") {
  const Scratch scratch("mtrain-advice-full");
  write_start(scratch);
  done(scratch, "r.yaml -q run.dir=run peft=lora");
  scratch.write("x.txt", "some text");
  struct Row {
    const char *words, *site, *place;
  };
  for (const Row& row :
       {Row{"convert there new", "hf.write", "(another DIR|FILE.gguf)"},
        Row{"export run new", "hf.write", "(another DIR|FILE.gguf)"},
        Row{"merge run --into new", "hf.write", "(--into DIR)"},
        Row{"data prepare -i x.txt -o new -t byte", "data.bin.write", "(--output PREFIX)"}}) {
    CAPTURE(std::string(row.words));
    const Outcome out = cli_in(scratch.path(), row.words, "/nowhere",
                               {std::string("MTRAIN_FAULT=") + row.site + ":1:errno=ENOSPC"});
    CHECK(out.status == 18);
    CHECK_MESSAGE(has(out.err, row.place), out.err);
    CHECK_FALSE(has(out.err, "run.dir"));
  }
  const Outcome run =
      cli_in(scratch.path(), "r.yaml run.dir=full train.steps=2 checkpoint.interval=1", "/nowhere",
             {"MTRAIN_FAULT=ckpt.shard.write:1:errno=ENOSPC"});
  CHECK_MESSAGE(run.status == 0, run.err);
  const std::string all = run.out + run.err;
  CHECK_MESSAGE(has(all, "\n  help: free some space or write elsewhere (run.dir=PATH"), all);
  CHECK_FALSE(has(all, "\\x0a"));
}

TEST_CASE("qlora is no type of adapters: the help says how to write it") {
  const Scratch scratch("mtrain-advice-qlora");
  write_start(scratch);
  const std::string err = told(scratch, "check r.yaml peft.type=qlora", 10);
  for (const char* part : {"peft=qlora", "peft.base=nf4"}) CHECK_MESSAGE(has(err, part), err);
  CHECK(has(told(scratch, "check r.yaml peft.type=QDoRA", 10), "peft.type=dora"));
  done(scratch, "check r.yaml peft.type=lora peft.base=int8");
  done(scratch, "check r.yaml +peft=qlora peft.base=int8 peft.double_quant=false");
}

TEST_CASE("an option of adapters does not replace the recipe's rank silently") {
  const Scratch scratch("mtrain-advice-added");
  write_start(scratch);
  scratch.write("l.yaml", "defaults: [./r.yaml]\npeft: {type: lora, rank: 4, alpha: 8}\n");
  for (const auto& [words, help] :
       {std::pair{"+peft=lora",
                  "help: change single settings, peft.KEY=VALUE; or write '- peft: "
                  "lora' to the recipe's defaults list"},
        {"+peft=qlora",
         "help: write peft.base=nf4 peft.double_quant=true, in which qlora differs "
         "from lora; or write '- peft: qlora'"},
        {"peft=qlora", "help: write peft.base=nf4 peft.double_quant=true, in which qlora differs"},
        {"+peft=dora", "help: write peft=dora: it chooses peft.type=dora and keeps"}}) {
    const std::string err = told(scratch, std::string("check l.yaml ") + words, 10);
    CHECK_MESSAGE(has(err, help), err);
    CHECK_MESSAGE(has(err, "would replace settings of earlier files: peft.rank=4, peft.alpha=8"),
                  err);
  }
  for (const char* words : {"peft=dora", "peft.base=int8", "peft=none"})
    done(scratch, std::string("check l.yaml ") + words);
  CHECK(done(scratch, "config show peft.rank l.yaml peft=dora").out == "4\n");
}

TEST_CASE("an objective with a reference needs a run") {
  const Scratch scratch("mtrain-advice-reference");
  write_start(scratch);
  scratch.write("p.jsonl", R"({"prompt": "ab", "chosen": "cd", "rejected": "ef"})"
                           "\n");
  const std::string data =
      " dataset=preference dataset.path=p.jsonl dataset.split='1' --split train";
  done(scratch, "r.yaml -q run.dir=run");
  for (const std::string from : {"there", "run"}) {
    CAPTURE(from);
    const std::string err = told(scratch, "eval --from " + from + data + " objective=dpo", 2);
    CHECK_MESSAGE(has(err, "objective.reference_free=true"), err);
    CHECK(has(err, from == "run" ? "run is a run without such" : "there is a folder of weights"));
    CHECK_FALSE(has(err, "missing"));
    done(scratch, "eval --from " + from + data + " objective=dpo objective.reference_free=true");
    done(scratch, "eval --from " + from + data + " objective=orpo");
  }
  CHECK_FALSE(has(told(scratch, "eval --from there" + data + " objective=kto", 2), "free"));
}

TEST_CASE("a long document: the help leaves out the way of splitting that was given") {
  const Scratch scratch("mtrain-advice-split");
  scratch.write("x.txt", "ab\ncd\nef\n");
  const std::string words = "data prepare -i x.txt -o x -t byte --max-document-bytes 4";
  auto help = [&](const std::string& more) {
    const std::string err = told(scratch, words + more, 11);
    return err.substr(err.find("help:"));
  };
  CHECK(has(help(""), "--split-on blank-lines or --split-on lines or --document-bytes"));
  CHECK(has(help(" --split-on blank-lines"), "split it: --split-on lines or --document-bytes"));
  CHECK_FALSE(has(help(" --split-on blank-lines"), "blank-lines"));
}

TEST_CASE("peft.train takes Hugging Face's names, and else lists the parameters") {
  const Scratch scratch("mtrain-advice-train");
  write_start(scratch);
  done(scratch, "r.yaml -q run.dir=run peft=lora peft.modules_to_save=[lm_head,embed_tokens]");
  done(scratch, "r.yaml -q run.dir=own peft=lora peft.train=[head.weight,embed.weight]");
  CHECK(column(scratch / "run", "grad_norm") == column(scratch / "own", "grad_norm"));
  const std::string err = told(scratch, "check r.yaml peft=lora peft.train=[lm_heads]", 10);
  for (const char* part : {"'lm_heads' matches no parameter", "head.weight", "embed.weight",
                           "layers.*.attn.qkv.weight"})
    CHECK_MESSAGE(has(err, part), err);
}

TEST_CASE("a folder of adapters is no model, and the help says where it goes") {
  const Scratch scratch("mtrain-advice-adapters");
  write_start(scratch);
  fs::copy(source_root() / "tests/golden/adapters/qv/start", scratch / "a",
           fs::copy_options::recursive);
  CHECK(has(told(scratch, "check r.yaml model.init_from=a", 12), "peft.init_from="));
  CHECK(has(told(scratch, "generate --from a --prompt x", 12), "--adapter a"));
  auto config = nlohmann::json::parse(slurp(scratch / "a/adapter_config.json"));
  config["init_lora_weights"] = "pissa";
  write_at(scratch / "a/adapter_config.json", config.dump());
  const std::string err = told(scratch, "check r.yaml peft=lora peft.init_from=a", 12);
  for (const char* part : {"pissa", "help:", "path_initial_model_for_weight_conversion"})
    CHECK_MESSAGE(has(err, part), err);
  CHECK_FALSE(has(err, "\\x0a"));
}

TEST_CASE("the saved defaults of an objective are not those of another one") {
  const Scratch scratch("mtrain-advice-objective");
  write_start(scratch);
  scratch.write("p.jsonl", R"({"prompt": "ab", "chosen": "cd", "rejected": "ef"})"
                           "\n");
  for (const std::string loss : {"sigmoid", "ipo"}) {
    done(scratch, "r.yaml -q run.dir=" + loss +
                      " dataset=preference dataset.path=p.jsonl dataset.split='1' objective=dpo "
                      "objective.loss=" +
                      loss);
    const std::string from = "eval --from " + loss + " --split train";
    done(scratch, from + " objective=kto objective.loss=apo_zero_unpaired");
    done(scratch, from + " objective.type=simpo");
    done(scratch, from + " objective.type=dpo");
  }
}

TEST_CASE("lr_scheduler_type: the help has the common schedules") {
  const Scratch scratch("mtrain-advice-schedule");
  write_start(scratch);
  const std::string err = told(scratch, "check r.yaml lr_scheduler_type=cosine", 10);
  for (const char* part : {"scheduler.type=cosine", "scheduler.type=linear", "scheduler.type=wsd"})
    CHECK_MESSAGE(has(err, part), err);
}

TEST_CASE("adapters ls lists all that can be read, and reports the others") {
  const Scratch scratch("mtrain-advice-ls");
  for (const std::string name : {"a", "b", "c"})
    fs::copy(source_root() / "tests/golden/adapters/qv/start", scratch / name,
             fs::copy_options::recursive);
  scratch.write("b/adapter_config.json", "{}");
  const Outcome out = cli_in(scratch.path(), "adapters ls a b c nowhere");
  CHECK(out.status == 12);
  for (const char* part : {"\na ", "\nc "}) CHECK_MESSAGE(has(out.out, part), out.out);
  for (const char* part : {"2 of 4 adapters", "b/adapter_config.json", "nowhere"})
    CHECK_MESSAGE(has(out.err, part), out.err);
  const Outcome json = cli_in(scratch.path(), "adapters ls b c --json");
  CHECK(json.status == 12);
  CHECK(nlohmann::json::parse(json.out).size() == 1);
  CHECK(has(told(scratch, "adapters ls b", 12), "merge_and_unload"));
}
