// The `patch:` lists of recipes.
#include "compose_testing.h"

using namespace mtrain;
using namespace mtrain::testing;

TEST_CASE("patches come after composition and before the command line") {
  check({
      {"defaults:\n- db: mysql\npatch: ['db.host=p', '~db.user', '+db.new=[1]']\n",
       {},
       "{db: {host: p, new: [1]}}"},
      {"a: [{n1: x, v: 1}, 2]\npatch: ['a[n1=x].v=5', 'a=append(3)', 'a=remove(2)']\n",
       {"a=prepend(0)"},
       "{a: [0, {n1: x, v: 5}, 3]}"},
      {"sweep: {a: '1,2'}\na: 3\n", {}, "{a: 3}"},
      {"sweep: {a: '1,2'}\na: 3\n", {"sweep={}"}, "'sweep:' of a recipe is not a setting"},
      {"sweep: {a: '1,2'}\na: 3\n", {"~sweep"}, "give each setting of the sweep"},
      {"sweep: {a: '1,2'}\na: 3\n", {"sweep.a=1"}, "'sweep:' of a recipe is not a setting"},
      {"patch: ['sweep.a=3']\na: 3\n", {}, "'sweep:' of a recipe is not a setting"},
      {"a: 3\n", {"+patch=[x]"}, "give each of its overrides as an argument"},
      {"a: 3\n", {"defaults=[db]"}, "choose options by GROUP=OPTION"},
      {"sweeps: 3\n", {"sweeps=4"}, "{sweeps: 4}"},
      {"defaults:\n- db: mysql\npatch: ['db.host=p']\n",
       {"db.host=c"},
       "{db: {host: c, user: root}}"},
  });
}

TEST_CASE("the patches of all files apply in the order of merging") {
  auto library = kLibrary;
  library.insert(library.end(),
                 {{"base.yaml", "a: 1\nb: 1\nc: [0]\npatch: ['a=2', 'b=2', 'c=append(1)']\n"},
                  {"left.yaml", "defaults: [./base.yaml]\npatch: ['c=append(2)']\n"},
                  {"right.yaml", "defaults: [./base.yaml]\npatch: ['c=append(3)']\n"},
                  {"exp/p.yaml", "# @package _global_\nb: 5\npatch: ['c=append(4)']\n"},
                  {"bad_patch.yaml", "patch: 3\n"}});
  Folder folder(library);
  auto result = [&](const char* recipe, const std::vector<std::string>& overrides = {}) {
    return compose_text(folder, {recipe, overrides, ""});
  };
  CHECK(result("defaults: [./base.yaml]\na: 3\n") == "{a: 2, b: 2, c: [0, 1]}");
  CHECK(result("defaults: [./base.yaml]\npatch: ['b=3']\n") == "{a: 2, b: 3, c: [0, 1]}");
  CHECK(result("defaults: [./base.yaml]\npatch: ['b=3']\n", {"b=4"}) == "{a: 2, b: 4, c: [0, 1]}");
  CHECK(result("defaults: [./left.yaml]\npatch: ['c=append(9)']\n") ==
        "{a: 2, b: 2, c: [0, 1, 2, 9]}");
  CHECK(result("defaults: [./base.yaml]\npatch: ['c=append(9)']\n", {"+exp=p"}) ==
        "{a: 2, b: 2, c: [0, 1, 9, 4]}");
  // A file that two others include is merged twice; its patches apply once.
  CHECK(result("defaults: [./left.yaml, ./right.yaml]\n") == "{a: 2, b: 2, c: [0, 2, 1, 3]}");
  const std::string fault = result("defaults: [./bad_patch.yaml]\npatch: ['a=1']\na: 0\n");
  CHECK(fault.find("bad_patch.yaml:1:8") != std::string::npos);
}
