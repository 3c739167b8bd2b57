// docs/parallelism.md says what the code does.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include "mtrain/base/text.h"
#include "mtrain/dist/mesh_picture.h"
#include "mtrain/dist/parallel_layout.h"
#include "mtrain/tensor/mixing.h"
#include "roots.h"

namespace mtrain {
namespace {

std::string doc(const char* file) {
  std::ifstream in(testing::source_root() / "docs" / file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<MeshLayout> example() {
  ParallelLayout layout = parallel_layout({.world_size = 16, .tp = 2, .pp = 2, .ep = 4});
  return {layout.dense, layout.expert};
}

char letter(Placement::Letter l) { return "RISP"[static_cast<size_t>(l)]; }

TEST_CASE("docs: the mesh of docs/parallelism.md is drawn as it is") {
  CHECK(doc("parallelism.md").find("```\n" + mesh_text(example()) + "```\n") != std::string::npos);
  CHECK(doc("parallelism_mesh.svg") == mesh_svg(example()));
}

TEST_CASE("docs: the tables of docs/parallelism.md are those of the code") {
  std::string text = doc("parallelism.md"),
              edges = "| from | to | forward | backward |\n|---|---|---|---|\n",
              rules = "| op | inputs | result |\n|---|---|---|\n";
  for (const Transition& t : transitions())
    edges += cat("| ", letter(t.from), " | ", letter(t.to), " | ", name(t.forward), " | ",
                 name(t.backward), " |\n");
  for (const MixRule& r : mix_rules())
    rules += cat("| ", name(r.op), " | ", r.inputs[0], ", ", r.inputs[1], " | ", r.result, " |\n");
  INFO(edges, rules);
  CHECK(text.find(edges + "\n") != std::string::npos);
  CHECK(text.find(rules + "\n") != std::string::npos);
}

}  // namespace
}  // namespace mtrain
