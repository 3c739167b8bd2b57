// The examples of other ways to start a job are at least well-formed, and say what the program
// knows.
#include <doctest/doctest.h>

#include "../process.h"
#include "mtrain/config/override.h"
#include "mtrain/config/yaml_load.h"
#include "roots.h"

using namespace mtrain;
namespace fs = std::filesystem;
using testing::Outcome;

namespace {
const fs::path kExamples = testing::source_root() / "examples";
}

TEST_CASE("shell examples are shell, and each file is in the list") {
  const std::string list = testing::slurp(kExamples / "README.md");
  for (const auto& entry : fs::directory_iterator(kExamples)) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    if (name == "README.md") continue;
    CHECK(list.find("`" + name + "`") != std::string::npos);
    if (entry.path().extension() != ".sh") continue;
    Outcome checked = testing::run({.arguments = {"/bin/bash", "-n", entry.path().string()}});
    CHECK_MESSAGE(checked.status == 0, checked.err);
  }
}

TEST_CASE("the Kubernetes Job is one, and its settings are settings") {
  const fs::path file = kExamples / "kubernetes.yaml";
  const Node job = parse_yaml(testing::slurp(file), file.string());
  CHECK(job.at("kind").as_text() == "Job");
  CHECK(job.at("apiVersion").as_text() == "batch/v1");
  const Node& pod = job.at("spec.template.spec");
  CHECK(pod.at("containers").size() == 1);
  const Node& container = pod.at("containers").items()[0];
  CHECK(container.at("volumeMounts").items()[0].at("name").as_text() ==
        pod.at("volumes").items()[0].at("name").as_text());
  std::vector<std::string> words = {"check", "quickstart"};
  for (const auto& argument : container.at("args").items())
    if (looks_like_override(argument.as_text())) words.push_back(argument.as_text());
  CHECK(words.size() > 2);
  Outcome checked = testing::cli(words);
  CHECK_MESSAGE(checked.status == 0, checked.err);
}
