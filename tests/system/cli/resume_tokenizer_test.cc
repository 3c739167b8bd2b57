// Which changes of a tokenizer's settings a run accepts when it continues.
#include <doctest/doctest.h>

#include "shell.h"
#include "small_tokenizer.h"

using namespace mtrain::testing;

TEST_CASE("resuming with another name of the same end token is accepted, another token is not") {
  Scratch scratch("mtrain-resume-eod");
  std::string recipe = tiny_recipe();
  recipe.replace(recipe.find("dataset: mock\n"), 14,
                 "tokenizer: {type: hf, path: t.json}\ndataset: mock\n");
  scratch.write("r.yaml", recipe);
  scratch.write("t.json", small_tokenizer());
  const std::string run = "r.yaml -q run.dir=a ";
  REQUIRE(cli_in(scratch.path(), run + "train.steps=2").status == 0);
  const Outcome same = cli_in(scratch.path(), run + "train.steps=3 'tokenizer.eod=</s>'");
  CHECK_MESSAGE(same.status == 0, same.err);
  const Outcome other = cli_in(scratch.path(), run + "train.steps=4 'tokenizer.eod=<s>'");
  CHECK(other.status == 12);
  CHECK_MESSAGE(has(other.err, "tokenizer.eod: \"</s>\" -> \"<s>\""), other.err);
}
