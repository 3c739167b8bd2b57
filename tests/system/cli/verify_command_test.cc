// mtrain verify layouts as its user meets it.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "../process.h"
#include "mtrain/base/text.h"

using namespace mtrain::testing;
using Json = nlohmann::json;

TEST_CASE("verify layouts compares, says how it went and certifies it") {
  Scratch scratch("mtrain-verify");
  std::string recipe = scratch.write("r.yaml", tiny_recipe()), file = (scratch / "c.json").string();
  Outcome out = cli({"verify", "layouts", recipe, "--ranks", "2", "--steps", "3", "--only",
                     "tp2+sp", "--certificate", file});
  REQUIRE_MESSAGE(out.status == 0, out.out << out.err);
  CHECK(has(out.out, "same "));
  CHECK(has(out.out, " differ, 0 failed"));
  Json certificate = Json::parse(slurp(file));
  CHECK(certificate["passed"] == true);
  CHECK(certificate["recipe_sha256"].get<std::string>().size() == 64);
  CHECK(certificate["steps"] == 3);
  REQUIRE(certificate["references"].size() == 1);
  const Json& bound = certificate["references"][0]["bound"];
  CHECK(bound["loss"].size() == 3);
  CHECK(bound["gradient"].contains("layers.0.attn.qkv.weight"));
  REQUIRE(!certificate["layouts"].empty());
  for (const auto& layout : certificate["layouts"]) {
    CHECK(layout["result"] == "same");
    CHECK(has(layout["overrides"].dump(), "dist.sp=true"));
    CHECK(layout["peak_bytes"].size() == 2);
  }
  // The twin runs by itself in such a layout.
  std::string twin = scratch.write("twin.yaml", certificate["twin"]);
  Outcome alone = cli({twin, "-q", "dist.nproc=2", "dist.tp=2", "dist.sp=true",
                       "run.dir=" + (scratch / "run").string()});
  CHECK_MESSAGE(alone.status == 0, alone.err);
}

TEST_CASE("the parts of verify layouts are disjoint and complete") {
  Scratch scratch("mtrain-verify-parts");
  std::string recipe = scratch.write("r.yaml", tiny_recipe());
  auto layouts = [&](Words more) {
    Words words = {"verify", "layouts", recipe, "--ranks", "4", "--list", "--only", "!recompute"};
    words.insert(words.end(), more.begin(), more.end());
    Outcome out = cli(words);
    CHECK_MESSAGE(out.status == 0, out.err);
    std::multiset<std::string> lines;
    for (const auto& line : mtrain::split(out.out, '\n')) {
      if (line.empty() || has(line, "layouts") || has(line, "rule ")) break;
      lines.emplace(line);
    }
    return lines;
  };
  for (const Words& kind : {Words{}, Words{"--pairwise"}}) {
    std::multiset<std::string> all = layouts(kind), joined;
    for (const char* part : {"1/3", "2/3", "3/3"}) {
      Words words = kind;
      words.insert(words.end(), {"--part", part});
      const auto some = layouts(words);
      CHECK(!some.empty());
      CHECK(some.size() < all.size());
      joined.insert(some.begin(), some.end());
    }
    CHECK(all.size() > 10);
    CHECK(joined == all);
  }
}

TEST_CASE("verify layouts lists without training, and refuses what it cannot do") {
  Scratch scratch("mtrain-verify-list");
  std::string recipe = scratch.write("r.yaml", tiny_recipe());
  Outcome list = cli({"verify", "layouts", recipe, "--ranks", "4", "--list"});
  CHECK(list.status == 0);
  CHECK(has(list.out, "\ntp2 dp2\n"));
  CHECK_FALSE(has(list.out, "same  "));
  Outcome few = cli({"verify", "layouts", recipe, "--ranks", "4", "--list", "--pairwise"});
  CHECK(few.out.size() < list.out.size());
  Outcome without =
      cli({"verify", "layouts", recipe, "--ranks", "4", "--list", "--only", "dp2 !tp2 !recompute"});
  CHECK_FALSE(has(without.out, "tp2"));
  CHECK_FALSE(has(without.out, "recompute"));
  CHECK(has(without.out, "dp2"));
  Outcome none = cli({"verify", "layouts", recipe, "--ranks", "4", "--only", "tp3"});
  CHECK(none.status == 2);
  CHECK(has(none.err, "there is no layout of 4 ranks with 'tp3' in its name"));
  Outcome refused = cli({"verify", "layouts", recipe, "model.type=moe", "model.moe.experts=4",
                         "model.moe.top_k=2", "--ranks", "4", "--only", "tp4 !tp4+sp"});
  CHECK(refused.status == 2);
  CHECK(has(refused.err, "with 'tp4 !tp4+sp' in its name is valid: rule moe-tp-needs-sp: "));
  Outcome faulty = cli({"verify", "layouts", recipe, "model.heads=many"});
  CHECK_MESSAGE(faulty.status == 10, faulty.out << faulty.err);
}

TEST_CASE("a recipe for a large machine is verified on this one") {
  Scratch scratch("mtrain-verify-large");
  std::string certificate = (scratch / "c.json").string();
  Outcome out = cli({"verify", "layouts", "llama3_70b", "--ranks", "2", "--steps", "2", "--only",
                     "tp2", "--certificate", certificate});
  REQUIRE_MESSAGE(out.status == 0, out.out << out.err);
  CHECK(has(Json::parse(slurp(certificate))["dtype"].dump(), "bf16"));
}
