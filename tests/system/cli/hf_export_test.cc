// Hugging Face folders in and out: a folder that is imported and exported again has the same bytes
// in every tensor, transformers loads what is exported, and what cannot be written is named.
#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "done.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "python_check.h"
#include "roots.h"
#include "shell.h"
#include "small_tokenizer.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

fs::path golden(const std::string& set) { return source_root() / "tests/golden" / set; }

/// A golden folder with a tokenizer, under `name`.
void copy_golden(const Scratch& scratch, const std::string& set, const std::string& name) {
  fs::create_directories(scratch / name);
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy(golden(set) / file, scratch / name / file);
  write_at(scratch / name / "tokenizer.json", small_tokenizer(190));
  write_at(scratch / name / "tokenizer_config.json", "{}\n");
}

struct Stored {
  std::string type;
  mtrain::Shape shape;
  std::string bytes;
  bool operator==(const Stored&) const = default;
};
std::map<std::string, Stored> tensors(const fs::path& folder) {
  std::map<std::string, Stored> out;
  const mtrain::HfDir source(folder);
  for (const mtrain::TensorInfo* t : source.tensors())
    out[t->name] = {
        t->file_dtype, t->shape, {reinterpret_cast<const char*>(t->data.data()), t->data.size()}};
  return out;
}

nlohmann::json config_of(const fs::path& folder) {
  return nlohmann::json::parse(slurp(folder / "config.json"));
}

/// The same folder except for a value of config.json.
void change_config(const fs::path& folder, const std::string& key, const nlohmann::json& value) {
  nlohmann::json config = config_of(folder);
  config[key] = value;
  write_at(folder / "config.json", config.dump(1));
}

}  // namespace

TEST_CASE("a folder that is imported and exported again has the same bytes in every tensor") {
  for (const std::string set : {"llama_tiny", "llama31_tiny", "gpt2_tiny", "bert_tiny"}) {
    CAPTURE(set);
    const Scratch scratch("mtrain-round-trip");
    copy_golden(scratch, set, "there");
    done(scratch, "import there run -q");
    for (const std::string dtype : {"fp32", "bf16", "fp16"}) {
      CAPTURE(dtype);
      done(scratch, "-q convert there " + dtype + " --dtype " + dtype);
      done(scratch, "-q import " + dtype + " run-" + dtype);
      done(scratch, "-q export run-" + dtype + " again-" + dtype);
      const auto want = tensors(scratch / dtype);
      CHECK(tensors(scratch / ("again-" + dtype)) == want);
      // One tensor to a file, from the run and from the folder.
      done(scratch, "-q export run-" + dtype + " shards-" + dtype + " --shard-size 1");
      CHECK(fs::exists(scratch / ("shards-" + dtype) / "model.safetensors.index.json"));
      CHECK(tensors(scratch / ("shards-" + dtype)) == want);
      done(scratch, "-q convert shards-" + dtype + " joined-" + dtype);
      CHECK(slurp(scratch / ("joined-" + dtype) / "model.safetensors") ==
            slurp(scratch / ("again-" + dtype) / "model.safetensors"));
    }
    CHECK(slurp(scratch / "again-fp32/tokenizer.json") == slurp(scratch / "there/tokenizer.json"));
    CHECK(config_of(scratch / "again-bf16").at("torch_dtype") == "bfloat16");
    // What the folder says is what the exported one says.
    const nlohmann::json before = config_of(scratch / "there"),
                         after = config_of(scratch / "again-fp32");
    for (const auto& [key, value] : after.items()) {
      CAPTURE(key);
      if (before.contains(key) && key != "use_cache") CHECK(before.at(key) == value);
    }
    done(scratch, "-q import again-fp32 run-again");
  }
}

TEST_CASE("a tokenizer's file with a name of its own gets the name that transformers reads") {
  const Scratch scratch("mtrain-export-tokenizer");
  scratch.write("r.yaml",
                "model: {type: llama, layers: 1, hidden_size: 16, heads: 2, ffn_hidden_size: 24, "
                "seq_length: 8}\ntokenizer: {type: hf, path: mine.json}\ndataset: mock\n"
                "run: {threads: 1}\nlogger: {tensorboard: false}\ntrain: {steps: 1, "
                "global_batch_size: 2}\nscheduler: {warmup_steps: 0}\n");
  const std::string text = small_tokenizer(190);
  scratch.write("mine.json", text);
  scratch.write("tokenizer.json", small_tokenizer(170));  // another tokenizer's
  scratch.write("tokenizer_config.json", R"({"of": "another"})");
  scratch.write("x.tokenizer.json", text);
  scratch.write("x.tokenizer_config.json", R"({"of": "x"})");
  for (const std::string file : {"mine.json", "x.tokenizer.json"}) {
    CAPTURE(file);
    const bool with_settings = file.starts_with("x.");
    const std::string run = with_settings ? "both" : "alone";
    done(scratch, "r.yaml -q run.dir=" + run + " tokenizer.path=" + file);
    const Outcome said = done(scratch, "export " + run + " " + run + "-out");
    CHECK_FALSE(has(said.out, "without a tokenizer"));
    CHECK(slurp(scratch / (run + "-out/tokenizer.json")) == text);
    CHECK(fs::exists(scratch / (run + "-out/tokenizer_config.json")) == with_settings);
    if (with_settings)
      CHECK(slurp(scratch / (run + "-out/tokenizer_config.json")) == R"({"of": "x"})");
    done(scratch, "-q import " + run + "-out again-" + run);
  }
}

TEST_CASE("transformers loads an exported folder without a warning and computes the same logits") {
  for (const std::string set : {"llama_tiny", "llama31_tiny", "gpt2_tiny", "bert_tiny"}) {
    CAPTURE(set);
    const Scratch scratch("mtrain-transformers");
    copy_golden(scratch, set, "there");
    done(scratch, "-q import there run");
    done(scratch, "-q export run out --shard-size 20KB");
    if (!python_agrees("hf_export_check.py",
                       {(scratch / "out").string(),
                        (golden(set) / "expected_logits.safetensors").string(), "1e-6"}))
      return;
  }
}

TEST_CASE("a trained run is exported, and training continues from the exported folder") {
  const Scratch scratch("mtrain-export-trained");
  scratch.write("r.yaml",
                "model: {type: llama, layers: 2, hidden_size: 32, heads: 4, kv_heads: 2, "
                "ffn_hidden_size: 48, seq_length: 16}\ntokenizer: byte\ndataset: mock\n"
                "run: {threads: 1}\nlogger: {tensorboard: false}\ntrain: {steps: 3, "
                "global_batch_size: 4}\nscheduler: {warmup_steps: 1}\n");
  done(scratch, "r.yaml -q run.dir=run checkpoint.interval=2 checkpoint.hf=hf");
  CHECK(fs::exists(scratch / "hf/step-2/model.safetensors"));
  CHECK(fs::exists(scratch / "hf/step-3/config.json"));
  const Outcome said = done(scratch, "export run out");
  CHECK_MESSAGE(has(said.out, "step 3 as llama"), said.out);
  CHECK(has(said.out, "without a tokenizer"));
  CHECK(tensors(scratch / "out") == tensors(scratch / "hf/step-3"));
  const nlohmann::json config = config_of(scratch / "out");
  CHECK(config.at("num_key_value_heads") == 2);
  CHECK(config.at("architectures") == nlohmann::json::array({"LlamaForCausalLM"}));
  CHECK(config.at("max_position_embeddings") == 16);
  CHECK_FALSE(config.contains("rope_scaling"));
  // The padding of the embedding is not part of the model.
  const auto rows = tensors(scratch / "out").at("model.embed_tokens.weight").shape[0];
  CHECK(rows == config.at("vocab_size"));
  done(scratch,
       "r.yaml -q run.dir=next model.init_from=out model.vocab_size=" + std::to_string(rows));
  done(scratch, "export run/checkpoints/step-2 two -q");
  CHECK(tensors(scratch / "two") == tensors(scratch / "hf/step-2"));
}

TEST_CASE("experts are exported one by one and imported again") {
  const Scratch scratch("mtrain-export-experts");
  scratch.write("r.yaml",
                "model: {type: moe, layers: 2, hidden_size: 32, heads: 4, kv_heads: 2, "
                "ffn_hidden_size: 24, seq_length: 16, vocab_size: 257, moe: {experts: 4, top_k: 2, "
                "layer_freq: 1}}\ntokenizer: byte\ndataset: mock\nrun: {threads: 1}\nlogger: "
                "{tensorboard: false}\ntrain: {steps: 2, global_batch_size: 4}\n"
                "scheduler: {warmup_steps: 1}\n");
  done(scratch, "r.yaml -q run.dir=run");
  done(scratch, "export run out -q --shard-size 10KB");
  CHECK(tensors(scratch / "out").contains("model.layers.1.block_sparse_moe.experts.3.w2.weight"));
  done(scratch, "import out again -q tokenizer=byte");
  done(scratch, "export again out2 -q");
  CHECK(tensors(scratch / "out") == tensors(scratch / "out2"));
  // The family's settings hold for an evaluation, too; those of training are named.
  const std::string eval = "eval --batches 1 --from out dataset=mock tokenizer=byte ";
  const Outcome sigmoid = cli_in(scratch.path(), eval + "model.moe.router.score=sigmoid");
  CHECK(sigmoid.status == 10);
  CHECK_MESSAGE(has(sigmoid.err, "model.init_ignore=[moe.router.score]"), sigmoid.err);
  const auto loss = [&](const std::string& words) {
    return nlohmann::json::parse(done(scratch, eval + "--json " + words).out).at("loss");
  };
  CHECK(loss("model.moe.router.score=sigmoid model.init_ignore=[moe.router.score]") != loss(""));
  const Outcome capacity = done(scratch, eval + "model.moe.capacity_factor=0.5");
  CHECK_MESSAGE(has(capacity.err, "model.moe.capacity_factor: null -> 0.5"), capacity.err);
  CHECK_FALSE(has(done(scratch, eval).err, "settings of training"));
  CHECK_FALSE(
      has(done(scratch, eval + "model.moe.router.aux_loss_coeff=[0.5]").err, "settings of"));
  change_config(scratch / "out", "router_jitter_noise", 0.1);  // the folder's own value
  CHECK_FALSE(has(done(scratch, eval).err, "settings of training"));
  const Outcome refused = cli_in(scratch.path(),
                                 "r.yaml -q run.dir=other train.steps=0 "
                                 "model.moe.router.score=sigmoid "
                                 "checkpoint.hf=hf");
  CHECK(refused.status == 10);
  CHECK_MESSAGE(has(refused.err, "model.moe.router.bias=false: deepseek_v3 has true"), refused.err);
}

TEST_CASE("an exported run of fine-tuning has the chat template that it was trained with") {
  const Scratch scratch("mtrain-export-template");
  write_at(
      scratch / "x.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
      "\n");
  write_at(scratch / "own.jinja", "{% for m in messages %}{{ m.content }};{% endfor %}");
  std::string recipe = tiny_recipe();
  recipe.replace(recipe.find("dataset: mock\n"), 14,
                 "tokenizer: byte\ndataset: {type: sft, path: x.jsonl, split: '1'}\n");
  scratch.write("r.yaml", recipe);
  const std::string train =
      "r.yaml -q model.seq_length=256 train.steps=1 validation.steps=0 scheduler.warmup_steps=0 ";
  done(scratch, train + "run.dir=named dataset.chat_template=chatml");
  done(scratch, "-q export named named_out");
  CHECK(has(slurp(scratch / "named_out/chat_template.jinja"), "<|im_start|>"));
  done(scratch, train + "run.dir=own dataset.template_path=own.jinja");
  done(scratch, "-q export own own_out");
  CHECK(slurp(scratch / "own_out/chat_template.jinja") == slurp(scratch / "own.jinja"));
  done(scratch, train + "run.dir=saved dataset.template_path=own.jinja checkpoint.hf=saved_out");
  CHECK(slurp(scratch / "saved_out/step-1/chat_template.jinja") == slurp(scratch / "own.jinja"));
  // The checkpoint has the template, whatever becomes of the file.
  const std::string trained = slurp(scratch / "own.jinja");
  write_at(scratch / "own.jinja", "{{ 'another' }}");
  done(scratch, "-q export own edited_out");
  CHECK(slurp(scratch / "edited_out/chat_template.jinja") == trained);
  fs::remove(scratch / "own.jinja");
  done(scratch, "-q export own gone_out");
  CHECK(slurp(scratch / "gone_out/chat_template.jinja") == trained);
}

TEST_CASE("an export that fails leaves nothing, and names what is in the way") {
  const Scratch scratch("mtrain-export-faults");
  copy_golden(scratch, "llama_tiny", "there");
  done(scratch, "-q import there run");
  auto fails = [&](const std::string& words, int status, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), words);
    const std::string details = words + "\n" + outcome.err;
    CHECK_MESSAGE(outcome.status == status, details);
    CHECK_MESSAGE(has(outcome.err, part), outcome.err);
  };
  fails("export run there", 18, "exists already");
  fails("import there run", 18, "exists already");
  fails("import run again", 2, "no Hugging Face folder");
  fails("-q import there other trian.x=3", 10, "command line, argument 5: trian.x=3");
  fails("export there out", 2, "is a Hugging Face folder, not a run");
  fails("export nowhere out", 12, "nowhere");
  fails("export run out --family qwen", 10, "has no family qwen");
  fails("export run out --shard-size 5XB", 2, "wanted a size");
  fails("export run out --dtype fp64", 2, "--dtype");
  fails("convert there out --family llama", 2, "a folder keeps its family");
  for (const char* site : {"hf.open", "hf.write", "hf.fsync"}) {
    const Outcome outcome = cli_in(scratch.path(), "export run out", "/nowhere",
                                   {std::string("MTRAIN_FAULT=") + site + ":2:errno=ENOSPC"});
    CHECK_MESSAGE(outcome.status == 18, outcome.err);
  }
  for (const auto& entry : fs::directory_iterator(scratch.path()))
    CHECK_MESSAGE(entry.path().filename().string().find("out") == std::string::npos,
                  entry.path().string());
}

TEST_CASE("an export that is killed leaves no folder, and the next one removes what it left") {
  const Scratch scratch("mtrain-export-killed");
  copy_golden(scratch, "llama_tiny", "there");
  auto unfinished = [&] {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(scratch.path()))
      count += entry.path().filename().string().starts_with(".out.partial-") ? 1 : 0;
    return count;
  };
  const Outcome killed = cli_in(scratch.path(), "convert there out --shard-size 1", "/nowhere",
                                {"MTRAIN_FAULT=hf.write:9:kill"});
  CHECK(killed.status == 128 + SIGKILL);
  CHECK_FALSE(fs::exists(scratch / "out"));
  CHECK(unfinished() == 1);
  done(scratch, "-q convert there out");
  CHECK(unfinished() == 0);
  // Whenever it is killed, what is left is no folder of a model.
  done(scratch, "-q import there run");
  for (const std::string command : {"export run ", "convert there "})
    for (int writes = 1; writes < 40; ++writes) {
      CAPTURE(command);
      CAPTURE(writes);
      const Outcome outcome = cli_in(scratch.path(), command + "killed", "/nowhere",
                                     {"MTRAIN_FAULT=hf.write:" + std::to_string(writes) + ":kill"});
      if (outcome.status == 0) {
        CHECK(writes > 3);
        fs::remove_all(scratch / "killed");
        break;
      }
      REQUIRE(outcome.status == 128 + SIGKILL);
      CHECK_FALSE(fs::exists(scratch / "killed"));
      for (const auto& entry : fs::directory_iterator(scratch.path())) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with(".killed.partial-")) continue;
        const fs::path config = entry.path() / "config.json";
        CHECK((!fs::exists(config) || fs::file_size(config) == 0));
      }
    }
}

TEST_CASE("all tensors that do not fit are named at once, with both names") {
  const Scratch scratch("mtrain-hf-hostile");
  copy_golden(scratch, "llama_tiny", "there");
  change_config(scratch / "there", "intermediate_size", 40);
  change_config(scratch / "there", "num_hidden_layers", 3);
  const Outcome outcome = cli_in(scratch.path(), "import there run");
  CHECK(outcome.status == 12);
  for (const char* part :
       {"layers.0.mlp.gate.weight [40, 32] does not match tensor "
        "model.layers.0.mlp.gate_proj.weight",
        "layers.2.norm1.weight [32]: tensor model.layers.2.input_layernorm.weight is missing",
        "and "})
    CHECK_MESSAGE(has(outcome.err, part), outcome.err);
  CHECK_FALSE(fs::exists(scratch / "run"));
}

TEST_CASE("a tokenizer file that is a link out of the folder is not copied") {
  const Scratch scratch("mtrain-hf-links");
  copy_golden(scratch, "llama_tiny", "there");
  scratch.write("secret.txt", "not for the hub");
  fs::create_symlink(scratch / "secret.txt", scratch / "there/vocab.txt");
  const Outcome outcome = cli_in(scratch.path(), "convert there out --dtype bf16");
  CHECK(outcome.status == 12);
  CHECK_MESSAGE(has(outcome.err, "is a link out of the folder"), outcome.err);
  CHECK_FALSE(fs::exists(scratch / "out"));
}

TEST_CASE("a model with a window is exported as a family that has windows") {
  const Scratch scratch("mtrain-hf-window");
  scratch.write("r.yaml",
                "model: {type: llama, layers: 2, hidden_size: 32, heads: 4, ffn_hidden_size: 40, "
                "seq_length: 16, attention: {window: 8}}\n"
                "tokenizer: byte\ndataset: mock\ntrain: {steps: 1}\n"
                "scheduler: {warmup_steps: 0}\nlogger: {tensorboard: false}\n");
  done(scratch, "r.yaml -q run.dir=run");
  done(scratch, "-q export run out");
  const auto config = nlohmann::json::parse(slurp(scratch / "out/config.json"));
  CHECK(has(config.at("model_type").get<std::string>(), "istral"));  // Mistral or Ministral
  CHECK(config.at("sliding_window") == 8);
  const Outcome refused = cli_in(scratch.path(), "export run other --family llama");
  CHECK(refused.status != 0);
  CHECK_MESSAGE(has(refused.err, "model.attention.window=8"), refused.err);
}

TEST_CASE("docs: from a hub folder to a trained one in five commands") {
  const Scratch scratch("mtrain-five-commands");
  const std::string page = slurp(source_root() / "docs/hugging-face.md");
  auto block = [&](const std::string& kind) {
    const size_t begin = page.find("```" + kind + "\n");
    REQUIRE(begin != std::string::npos);
    const size_t text = page.find('\n', begin) + 1;
    return page.substr(text, page.find("```", text) - text);
  };
  copy_golden(scratch, "llama_tiny", "models/base");
  scratch.write("finetune.yaml", block("yaml"));
  std::string notes;
  for (int i = 0; i < 300; ++i) notes += "Note " + std::to_string(i * i) + " of many.\n\n";
  scratch.write("notes.txt", notes);
  std::istringstream lines(block("sh"));
  int commands = 0;
  for (std::string line; std::getline(lines, line); ++commands) {
    REQUIRE(line.starts_with("mtrain "));
    const Outcome outcome = done(scratch, line.substr(7));
    if (line.find(" generate ") != std::string::npos) CHECK(outcome.out.starts_with("abc"));
  }
  CHECK(commands == 5);
  CHECK(tensors(scratch / "models/finetuned") != tensors(scratch / "models/base"));
  CHECK(slurp(scratch / "models/finetuned/tokenizer.json") == small_tokenizer(190));
}

TEST_CASE("mtrain families lists what can be read, and what is not implemented") {
  const Outcome list = cli({"families"});
  CHECK_MESSAGE(list.status == 0, list.err);
  CHECK(has(list.out, "MistralForCausalLM"));
  CHECK(has(list.out, "not implemented: "));
  const auto json = nlohmann::json::parse(cli({"families", "--json"}).out);
  CHECK(json.size() > 15);
  for (const auto& family : json) CHECK(fs::exists(family.at("file").get<std::string>()));
  CHECK_MESSAGE(cli({"families", "--markdown"}).out == slurp(source_root() / "docs/families.md"),
                "write it again: mtrain families --markdown > docs/families.md");
}
