// mtrain generate --prompts: the records of a file answered as records of dataset=sft.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "done.h"
#include "golden_case.h"
#include "roots.h"

using namespace mtrain::testing;
using nlohmann::json;

namespace {

constexpr const char* kPromptLines =
    R"({"prompt": "abc"})"
    "\n"
    R"({"messages": [{"role": "system", "content": "b"}, {"role": "user", "content": "cab"}, )"
    R"({"role": "assistant", "content": "old"}]})"
    "\n\n"
    R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}, )"
    R"({"role": "user", "content": "ca"}]})"
    "\n";

const std::string kAnswers =
    "-q generate --from there --chat --template t.jinja --max-tokens 4 --seed 3 "
    "--prompts p.jsonl --output a.jsonl ";

void write_prompts(const Scratch& scratch) {
  copy_model(scratch, source_root() / "tests/golden/llama_tiny");
  scratch.write("t.jinja",
                "{% for m in messages %}{{ m.content }}{% endfor %}"
                "{% if add_generation_prompt %}>{% endif %}");
  scratch.write("p.jsonl", kPromptLines);
}

}  // namespace

TEST_CASE("records are answered in order, each by itself, and training reads the answers") {
  const Scratch scratch("mtrain-answer-file");
  write_prompts(scratch);
  done(scratch, kAnswers + "--system c");
  const std::string all = slurp(scratch / "a.jsonl");
  std::istringstream in(all);
  std::vector<json> records;
  for (std::string line; std::getline(in, line);)
    records.push_back(json::parse(line).at("messages"));
  REQUIRE(records.size() == 3);
  auto contents = [&](size_t i) {
    std::string out;
    for (size_t m = 0; m + 1 < records[i].size(); ++m)
      out += records[i][m].at("content").get<std::string>() + "|";
    return out;
  };
  CHECK(contents(0) == "c|abc|");
  CHECK(contents(1) == "b|cab|");
  CHECK(contents(2) == "c|a|bc|ca|");
  for (const json& one : records) CHECK(one.back().at("role") == "assistant");
  CHECK(records[0].back() != records[1].back());
  // An output that was cut within its second line continues with the same answers.
  scratch.write("a.jsonl", all.substr(0, all.find('\n') + 20));
  done(scratch, kAnswers + "--system c");
  CHECK(slurp(scratch / "a.jsonl") == all);
  done(scratch, kAnswers + "--system c");
  CHECK(slurp(scratch / "a.jsonl") == all);
  scratch.write("r.yaml", "model: {type: llama, init_from: there, seq_length: 32}\n" +
                              kGoldenTraining +
                              "dataset: {type: sft, path: a.jsonl, split: '1', "
                              "template_path: t.jinja}\n"
                              "train: {steps: 1, global_batch_size: 1}\n");
  done(scratch, "r.yaml -q run.dir=run");
}

TEST_CASE("records and outputs that do not fit are refused, with the line") {
  const Scratch scratch("mtrain-answer-file-refused");
  write_prompts(scratch);
  auto says = [&](const std::string& words, int status, const std::string& part) {
    const Outcome outcome = cli_in(scratch.path(), words);
    CHECK_MESSAGE(outcome.status == status, outcome.err);
    CHECK_MESSAGE(has(outcome.err, part), outcome.err);
  };
  for (const auto& [line, fault] :
       {std::pair{"[1]", "is not a JSON object"},
        {"{\"text\": \"a\"}", "has neither 'prompt' nor 'messages'"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}",
         "no message of the user"},
        {"{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}", "of the role 'tool'"},
        {"{\"messages\": [{\"role\": \"user\"}]}", "a message without a text"}}) {
    scratch.write("p.jsonl", std::string("{\"prompt\": \"a\"}\n") + line + "\n");
    std::filesystem::remove(scratch / "a.jsonl");
    says(kAnswers, 11, std::string("p.jsonl:2: "));
    says(kAnswers, 11, fault);
    CHECK(std::ranges::count(slurp(scratch / "a.jsonl"), '\n') == 1);
  }
  scratch.write("p.jsonl", "{\"prompt\": \"b\"}\n");
  says(kAnswers, 11, "does not answer");
  says("generate --from there --chat --output a.jsonl", 2, "--prompts");
  says("generate --from there --chat --prompts p.jsonl", 2, "--output");
  says("generate --from there --prompts p.jsonl --output a.jsonl", 2, "--chat");
}
