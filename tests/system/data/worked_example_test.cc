// The worked example of docs/data.md, run as it is written there.
#include <doctest/doctest.h>

#include <sstream>

#include "../process.h"
#include "data_files.h"
#include "roots.h"

using namespace mtrain::testing;

namespace {

/// The shell lines of a section of a Markdown file.
std::string script_of(const std::string& markdown, const std::string& heading) {
  size_t at = markdown.find("\n## " + heading + "\n");
  if (at == std::string::npos) return {};
  at = markdown.find("```sh\n", at);
  return markdown.substr(at + 6, markdown.find("\n```", at) - at - 6);
}

}  // namespace

TEST_CASE("the worked example of docs/data.md does what it says") {
  const auto shared = shared_data("sft");
  if (shared.empty()) return;
  const std::string script = script_of(mtrain::read_file(source_root() / "docs/data.md"),
                                       "From text to a model that answers");
  REQUIRE(script.find("mtrain generate") != std::string::npos);
  ScratchFolder scratch;
  mtrain::fs::copy(shared / "gsm8k_test.jsonl", scratch / "gsm8k_test.jsonl");
  put(scratch / "run.sh", "set -e\ncd '" + scratch.path().string() + "'\nPATH='" +
                              (build_root() / "bin").string() + "':$PATH\n" + script + "\n");
  Outcome done = run({.arguments = {"/bin/bash", (scratch / "run.sh").string()}});
  REQUIRE_MESSAGE(done.status == 0, done.out, done.err);
  for (const char* part : {"wrote data/questions.bin", "1319 documents",
                           "gsm8k_test.jsonl (prompt_completion): 1319 of 1319 records",
                           "no packing has fewer than", "What is 2 + 2?"})
    CHECK_MESSAGE(done.out.find(part) != std::string::npos, part, " is not in ", done.out);
  // Training on questions helps with answers: the first loss is below that of a model that
  // knows nothing, ln 257 = 5.55.
  std::istringstream metrics(mtrain::read_file(scratch / "runs/answers/metrics.jsonl"));
  std::string first;
  std::getline(metrics, first);
  const size_t at = first.find("\"loss\":");
  REQUIRE(at != std::string::npos);
  CHECK(std::stod(first.substr(at + 7)) < 4.5);
}
