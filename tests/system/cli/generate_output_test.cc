// What mtrain generate prints: objects with --json, and on a terminal the text while it is made.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "roots.h"
#include "shell.h"
#include "training_run.h"

using namespace mtrain::testing;

namespace {

/// A run of a tiny model in `folder`/run.
void run_to_print(const Scratch& scratch) {
  const Outcome out =
      cli_in(scratch.path(), scratch.write("r.yaml", tiny_recipe()) +
                                 " -q train.steps=2 checkpoint.interval=2 run.dir=run");
  REQUIRE_MESSAGE(out.status == 0, out.err);
}

Outcome printed_by(const Scratch& scratch, const std::string& command) {
  return run({.arguments = {"/bin/sh", "-c", "cd " + scratch.path().string() + " && " + command}});
}

}  // namespace

TEST_CASE("generate --json prints an object for each prompt") {
  Scratch scratch("mtrain-generate-json");
  run_to_print(scratch);
  scratch.write("prompts", "one\nlonger\n");
  const std::string command =
      mtrain_binary() + " generate --from run --prompt - --temperature 0 --max-tokens 5 ";
  const Outcome plain = printed_by(scratch, command + "< prompts"),
                objects = printed_by(scratch, command + "--json < prompts");
  REQUIRE_MESSAGE(objects.status == 0, objects.err);
  std::string texts;
  std::stringstream lines(objects.out);
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) {
    rows.push_back(nlohmann::json::parse(line));
    texts += rows.back().at("prompt").get<std::string>() +
             rows.back().at("text").get<std::string>() + "\n";
  }
  REQUIRE(rows.size() == 2);
  CHECK(texts == plain.out);
  CHECK(rows[0].at("prompt_tokens") == 3);
  CHECK(rows[1].at("prompt_tokens") == 6);
  for (const auto& row : rows) {
    CHECK(row.at("tokens") == 5);
    CHECK(row.at("ended") == false);
    CHECK(row.at("seconds").get<double>() > 0);
  }
}

TEST_CASE("on a terminal, a text appears in parts and is the same") {
  Scratch scratch("mtrain-generate-terminal");
  if (printed_by(scratch, "command -v script").status != 0) {
    MESSAGE("not tested on a terminal: the program `script` is absent");
    return;
  }
  run_to_print(scratch);
  scratch.write("t.jinja", "{% for m in messages %}{{ m.content }} {% endfor %}");
  for (const std::string words :
       {"--prompt hello --temperature 0", "--prompt hello --seed 3", "--prompt hello --seed 4",
        "--chat --template t.jinja --prompt hello --seed 5"}) {
    CAPTURE(words);
    const std::string command =
        mtrain_binary() + " generate -q --from run --max-tokens 60 " + words;
    const Outcome piped = printed_by(scratch, command),
                  terminal =
                      printed_by(scratch, "script -qec '" + command + "' /dev/null < /dev/null");
    REQUIRE_MESSAGE(piped.status == 0, piped.err);
    std::string shown = terminal.out;
    std::erase(shown, '\r');  // a terminal ends lines with both
    std::string wanted = piped.out;
    std::erase(wanted, '\r');
    CHECK(shown == wanted);
  }
}
