// Bugs of other systems that trained a wrong model in some layout without an error, one test each.
// Every one was put into this code once and found by its test: mutations.py does that again.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

#include "mtrain/verify/layouts.h"
#include "subjects.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

/// Runs of one rank are made once for each subject and number of ranks.
LayoutVerifier& verifier(const std::string& name, int64_t ranks) {
  static std::map<std::pair<std::string, int64_t>, std::unique_ptr<LayoutVerifier>> made;
  auto& entry = made[{name, ranks}];
  if (!entry)
    entry = std::make_unique<LayoutVerifier>(recipe_of(subject_named(name)), plugins(),
                                             VerifyOptions{.ranks = ranks, .steps = 3});
  return *entry;
}

/// The layout of this name trains what one rank trains.
void same(const std::string& name, int64_t ranks, const std::string& layout) {
  CAPTURE(name);
  CAPTURE(layout);
  LayoutVerifier& v = verifier(name, ranks);
  const auto& valid = v.layouts().valid;
  auto found = std::find_if(valid.begin(), valid.end(),
                            [&](const RankLayout& l) { return text(l) == layout; });
  if (found == valid.end()) {
    bool planned = false;
    for (const auto& part : v.layouts().not_built)
      planned |= std::any_of(part.layouts.begin(), part.layouts.end(),
                             [&](const RankLayout& l) { return text(l) == layout; });
    REQUIRE(planned);  // a rule refuses it, or the name is wrong: then this test tests nothing
    MESSAGE(layout << ": this build lacks it");
    return;
  }
  LayoutVerdict verdict = v.verify(*found);
  CHECK_MESSAGE(verdict.kind == LayoutVerdict::Kind::same, verdict.problem);
}

}  // namespace

TEST_CASE(
    "layout bug: the vocabulary-parallel loss adds log(tp) and loses the target's gradient "
    "(Megatron-LM #7452)") {
  same("llama", 4, "tp4");
  same("llama", 4, "tp4+sp");
}

TEST_CASE("layout bug: a sharded parameter is left out of the gradient norm (Megatron-LM #7452)") {
  same("llama", 2, "tp2");
}

TEST_CASE(
    "layout bug: the gradient norm counts experts too little or too often (Megatron-LM #5916)") {
  same("mixtral", 2, "ep2 dp2");
  same("mixtral", 4, "tp2+sp ep2 dp2");
}

TEST_CASE(
    "layout bug: norms' gradients differ over tp under sequence parallelism (Megatron-LM #1446)") {
  same("llama", 2, "tp2+sp");
  same("gpt2", 2, "tp2+sp");
}

TEST_CASE(
    "layout bug: wrong gradients of queries, keys and values in the ring (Megatron-LM #1465)") {
  for (const char* way : {"p2p", "all_gather", "a2a"}) same("llama", 2, cat("cp2 ", way));
  same("llama", 4, "cp4 p2p");
}

TEST_CASE(
    "layout bug: the loss is scaled by the number of context-parallel ranks (Megatron-LM #673, "
    "#906)") {
  same("llama", 4, "cp2 p2p dp2");
}

TEST_CASE("layout bug: balancing losses depend on tp, cp and dp (Megatron-LM #5047, #3672)") {
  same("mixtral", 2, "dp2");
  same("mixtral", 2, "cp2 p2p");
  same("mixtral", 2, "tp2+sp");
}

TEST_CASE("layout bug: gradients of experts are not scaled for ep (Megatron-LM #5956)") {
  same("mixtral", 4, "ep4 dp4");
  same("mixtral", 4, "ep2 dp4");
}

TEST_CASE("layout bug: experts whose width is sharded are wrong (Megatron-Bridge #5634)") {
  same("mixtral", 2, "etp2 dp2");
  same("mixtral", 4, "ep2 etp2 dp4");
}

TEST_CASE(
    "layout bug: gradients of shared key/value heads are not added over tp (bigcode Megatron-LM "
    "#11, #35)") {
  same("llama", 4, "tp4");
  same("llama", 8, "tp8");
}

TEST_CASE(
    "layout bug: the router's gradient is wrong under expert parallelism (transformers #48205, "
    "#48687)") {
  same("mixtral", 2, "ep2 dp2");
}

TEST_CASE("layout bug: tied embeddings on two stages are not added up, or drift apart") {
  same("gpt2", 2, "pp2 1f1b");
  same("gpt2", 4, "tp2 pp2 1f1b");
}

TEST_CASE("layout bug: dropout masks depend on the layout") {
  same("gpt2", 2, "tp2+sp");
  same("gpt2", 2, "cp2 p2p");
  same("gpt2", 2, "dp2 recompute-full");
}

TEST_CASE("layout bug: micro-batches weigh the same however many targets the ranks have") {
  same("llama", 2, "dp2");
  same("gpt2", 4, "dp4");
}

TEST_CASE("layout bug: shards of optimizer state or parameters cover the wrong elements") {
  for (int zero : {1, 2, 3}) same("llama", 4, cat("dp4 zero", zero));
  for (int zero : {1, 2, 3}) same("llama", 4, cat("tp2 dp2 zero", zero));
}
