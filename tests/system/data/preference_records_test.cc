// Preference records as `mtrain data show` reads them: the prompt of an answer has no answer, and
// the settings that an error proposes work on the file.
#include <doctest/doctest.h>

#include <algorithm>

#include "../cli/shell.h"
#include "data_files.h"
#include "has.h"
#include "roots.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

/// The shown text of one answer, without the marks between tokens.
std::string shown_answer(const std::string& out, const std::string& heading) {
  const size_t begin = out.find(heading);
  if (begin == std::string::npos) return {};
  std::string text = out.substr(begin, out.find("x.jsonl:", begin + 1) - begin);
  std::erase_if(text, [](char c) { return c == '|' || c == '[' || c == ']'; });
  return text;
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// The settings that an error proposes to train on the answers.
std::string proposed_settings(const std::string& err) {
  const size_t begin = err.find("dataset.format=");
  if (begin == std::string::npos) return "none";
  return err.substr(begin,
                    err.find_first_of(";,", err.find('\'', err.find('\'', begin) + 1)) - begin);
}

}  // namespace

TEST_CASE("an answer that a record repeats is in no prompt, whichever fields have it") {
  ScratchFolder scratch;
  const std::string user = R"({"role": "user", "content": "asked"})",
                    good = R"({"role": "assistant", "content": "good"})",
                    bad = R"({"role": "assistant", "content": "worse"})",
                    pair = cat("\"chosen\": [", user, ", ", good, "], \"rejected\": [", user, ", ",
                               bad, "]}\n"),
                    messages = cat("\"messages\": [", user, ", ", good, "], ");
  for (const std::string& record :
       {cat("{\"prompt\": \"asked\", ", messages, pair), cat("{", messages, pair),
        cat("{\"prompt\": [", user, "], ", pair),
        cat("{", messages, "\"chosen\": ", good, ", \"rejected\": ", bad, "}\n")}) {
    put(scratch / "x.jsonl", record);
    const auto shown = cli_in(scratch.path(),
                              "data show x.jsonl -t byte --dataset preference "
                              "dataset.chat_template=chatml");
    REQUIRE_MESSAGE(shown.status == 0, shown.err);
    const std::string chosen = shown_answer(shown.out, "x.jsonl:1, chosen"),
                      rejected = shown_answer(shown.out, "x.jsonl:1, rejected");
    for (const std::string& answer : {chosen, rejected})
      CHECK_MESSAGE(occurrences(answer, "asked") == 1, shown.out);
    CHECK_MESSAGE(occurrences(chosen, "good") == 1, shown.out);
    CHECK_MESSAGE(occurrences(rejected, "good") == 0, shown.out);
    CHECK_MESSAGE(occurrences(rejected, "worse") == 1, shown.out);
  }
  put(scratch / "x.jsonl", "{\"question\": \"q\", \"completion\": \"a\", \"label\": false}\n");
  const std::string show = "data show x.jsonl -t byte --dataset preference ";
  const auto refused = cli_in(scratch.path(), show);
  CHECK(refused.status == 11);
  CHECK_MESSAGE(has(refused.err, "dataset.columns='{prompt: question}'"), refused.err);
  CHECK(cli_in(scratch.path(), show + "dataset.columns='{prompt: question}'").status == 0);
}

TEST_CASE("the settings that sft proposes for published preference data work on it") {
  const auto folder = shared_root() / "data/sft";
  for (const char* name : {"dpo_en_demo.json", "kto_en_demo.json", "torchtune_hh_rlhf_tiny.json"}) {
    if (!std::filesystem::exists(folder / name)) {
      MESSAGE("skipped: no " << (folder / name).string());
      continue;
    }
    ScratchFolder scratch;
    const std::string show =
        cat("data show ", (folder / name).string(), " -t byte -d 0 dataset.chat_template=chatml ");
    const auto refused = cli_in(scratch.path(), show);
    CHECK(refused.status == 11);
    const auto shown = cli_in(scratch.path(), show + proposed_settings(refused.err));
    CHECK_MESSAGE(shown.status == 0, refused.err, shown.err);
  }
}

TEST_CASE("a label that is null is called null") {
  ScratchFolder scratch;
  put(scratch / "x.jsonl", "{\"prompt\": \"q\", \"completion\": \"g\", \"label\": null}\n");
  const auto shown = cli_in(scratch.path(), "data show x.jsonl -t byte --dataset preference");
  CHECK(shown.status != 0);
  CHECK_MESSAGE(has(shown.err, "its fields are prompt, completion, label ('label' is null)"),
                shown.err);
}
