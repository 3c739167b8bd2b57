// Another tokenizer than the one in the Hugging Face folder of the weights: the rows of the table
// belong to other tokens, which is warned of.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "golden_case.h"
#include "roots.h"

using namespace mtrain::testing;

namespace {

const char* const kWarning = "differs from the recipe's: ";

/// small_tokenizer() with the ids of the first characters in the opposite order.
std::string reordered(size_t ids) {
  auto json = nlohmann::ordered_json::parse(small_tokenizer());
  for (size_t id = 3; id < ids; ++id) json["model"]["vocab"][small_token(id)] = ids + 2 - id;
  return json.dump();
}

}  // namespace

TEST_CASE("the tokenizer of a Hugging Face folder is compared with the recipe's") {
  const Scratch scratch("mtrain-other-tokenizer");
  copy_model(scratch, source_root() / "tests/golden/llama_tiny");
  write_at(scratch / "other/tokenizer.json", reordered(103));
  write_at(scratch / "other/tokenizer_config.json", R"({"eos_token": "</s>"})");
  // The same tokens in a file with other bytes, and with fewer ids.
  write_at(scratch / "same/tokenizer.json", small_tokenizer() + "\n");
  write_at(scratch / "fewer/tokenizer.json", small_tokenizer(150));
  scratch.write("r.yaml", "model: {type: llama, init_from: there, seq_length: 16}\n" +
                              kGoldenTraining + "dataset: mock\ntrain: {steps: 1}\n");
  for (const char* words : {"check --data r.yaml ", "r.yaml run.dir=run ",
                            "eval --from there dataset=mock --batches 1 "}) {
    CAPTURE(words);
    const std::string set = std::string(words) + "tokenizer.path=";
    const Outcome other = cli_in(scratch.path(), set + "other");
    CHECK_MESSAGE(other.status == 0, other.err);
    CHECK_MESSAGE(has(other.err, kWarning), other.err);
    CHECK_MESSAGE(has(other.err,
                      "100 of 200 ids are other tokens there, the first is 3: \" \" "
                      "there, \"" +
                          small_token(102) + "\" here"),
                  other.err);
    for (const char* path : {"there", "there/tokenizer.json", "same", "fewer"}) {
      std::filesystem::remove_all(scratch / "run");
      const Outcome fits = cli_in(scratch.path(), set + path);
      CHECK_MESSAGE(fits.status == 0, fits.err);
      CHECK_FALSE_MESSAGE(has(fits.err, kWarning), fits.err);
    }
    std::filesystem::remove_all(scratch / "run");
  }
  const Outcome bytes = cli_in(
      scratch.path(), "check --data r.yaml 'tokenizer={type: byte}' model.init_vocab=resize");
  CHECK_MESSAGE(has(bytes.err, kWarning), bytes.err);
  // A folder without a tokenizer, or with one that cannot be read, says nothing.
  write_at(scratch / "there/tokenizer.json", "{\"model\": ");
  CHECK_FALSE(
      has(cli_in(scratch.path(), "check --data r.yaml tokenizer.path=other").err, kWarning));
  std::filesystem::remove(scratch / "there/tokenizer.json");
  CHECK_FALSE(
      has(cli_in(scratch.path(), "check --data r.yaml tokenizer.path=other").err, kWarning));
}
