// Hugging Face folders with quantized weights: what is imported, exported and converted equals what
// PyTorch and transformers dequantize (tests/golden/quantized_generate.py).
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "done.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "roots.h"
#include "shell.h"
#include "small_tokenizer.h"
#include "training_run.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

fs::path golden(const std::string& set) { return source_root() / "tests/golden" / set; }

void copy_golden(const Scratch& scratch, const std::string& set, const std::string& name) {
  fs::create_directories(scratch / name);
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy(golden(set) / file, scratch / name / file);
  write_at(scratch / name / "tokenizer.json", small_tokenizer(190));
  write_at(scratch / name / "tokenizer_config.json", "{}\n");
}

/// Type and bytes of each tensor of a folder or a file.
std::map<std::string, std::pair<std::string, std::string>> typed_tensors(const fs::path& path) {
  std::map<std::string, std::pair<std::string, std::string>> out;
  const mtrain::HfDir source(path);
  for (const mtrain::TensorInfo* t : source.tensors())
    out[t->name] = {t->file_dtype + mtrain::cat(t->shape),
                    {reinterpret_cast<const char*>(t->data.data()), t->data.size()}};
  return out;
}

nlohmann::json config_of(const fs::path& folder) {
  return nlohmann::json::parse(slurp(folder / "config.json"));
}

}  // namespace

TEST_CASE("quantized folders are imported and converted to what PyTorch dequantizes") {
  for (const std::string set : {"fp8_tiny", "mxfp4_tiny"}) {
    CAPTURE(set);
    const Scratch scratch("mtrain-quantized");
    copy_golden(scratch, set, "there");
    const auto bf16 = typed_tensors(golden(set) / "expected_bf16.safetensors"),
               fp32 = typed_tensors(golden(set) / "expected_fp32.safetensors");
    done(scratch, "-q import there run");
    done(scratch, "-q export run out");
    CHECK(typed_tensors(scratch / "out") == bf16);
    CHECK_FALSE(config_of(scratch / "out").contains("quantization_config"));
    done(scratch, "-q export run wide --dtype fp32");
    CHECK(typed_tensors(scratch / "wide") == fp32);
    done(scratch, "-q convert there converted --shard-size 20KB");
    CHECK(typed_tensors(scratch / "converted") == bf16);
    CHECK_FALSE(config_of(scratch / "converted").contains("quantization_config"));
    CHECK(config_of(scratch / "converted").at("torch_dtype") == "bfloat16");
    done(scratch, "-q convert there converted32 --dtype fp32");
    CHECK(typed_tensors(scratch / "converted32") == fp32);
    done(scratch, "-q import converted again");
  }
}

TEST_CASE("a quantization that cannot be read is refused before and while the weights are read") {
  const Scratch scratch("mtrain-quantized-faults");
  copy_golden(scratch, "fp8_tiny", "there");
  auto fails = [&](const std::string& words, int status, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), words);
    const std::string details = words + "\n" + outcome.err;
    CHECK_MESSAGE(outcome.status == status, details);
    CHECK_MESSAGE(has(outcome.err, part), outcome.err);
  };
  const nlohmann::json right = config_of(scratch / "there");
  auto with = [&](const nlohmann::json& quantization) {
    nlohmann::json config = right;
    config["quantization_config"] = quantization;
    write_at(scratch / "there/config.json", config.dump());
  };
  with({{"quant_method", "gptq"}, {"bits", 4}});
  fails("import there run", 10, "quant_method gptq");
  fails("convert there out", 12, "quant_method gptq");
  with({{"quant_method", "fp8"}, {"weight_block_size", {16, 8}}});
  fails("import there run", 12, "model.layers.0.mlp.down_proj.weight_scale_inv");
  fails("convert there out", 12, "needs scales [2, 5]");
  with(nullptr);
  fails("import there run", 12, "F8_E4M3");
  CHECK_FALSE(fs::exists(scratch / "run"));
  CHECK_FALSE(fs::exists(scratch / "out"));
}
