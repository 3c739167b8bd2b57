#include "mtrain/pipeline/layout.h"

#include <doctest/doctest.h>

#include "mtrain/base/text.h"

using namespace mtrain;

TEST_CASE("layouts are unrolled as they are written") {
  auto stages = [](const char* text) { return join(parse_pipeline_layout(text).stages, "/"); };
  CHECK(stages("EtL") == "EtL");
  CHECK(stages("Et|tL") == "Et/tL");
  CHECK(stages("Et*3|(tt|)*2,m|L") == "Ettt/tt/tt/m/L");
  CHECK(stages("E|(t|)*2 L") == "E/t/t/L");
  CHECK(stages("Et||tL") == "Et//tL");
  CHECK(stages("E((t|)*2t)*2L") == "Et/t/tt/t/tL");
  PipelineLayout deepseek = parse_pipeline_layout("Et*3|(tt|)*29,m|L");
  CHECK(deepseek.stages.size() == 32);
  CHECK(deepseek.count('t') == 61);
  CHECK(deepseek.count('m') == 1);
  CHECK(deepseek.fault == "");
}

TEST_CASE("what is no layout is refused with its reason") {
  struct Row {
    const char *text, *fault;
  };
  const Row rows[] = {
      {"", "it must begin with E (embedding)"},
      {"tL", "it must begin with E (embedding)"},
      {"Et", "it must end with L (output head and loss)"},
      {"EtLtL", "it must have exactly one E and one L"},
      {"EtEL", "it must have exactly one E and one L"},
      {"|Ett|tt|L", "E must be in the first stage"},
      {"Ett|ttL||", "L must be in the last stage"},
      {"E|tttt|L|", "L must be in the last stage"},
      {"EttttL||", ""},
      {"Ett||tt|L", ""},
      {"EtmtL", "a t cannot follow an m"},
      {"Etm|mL", "all m must be in the same stage"},
      {"EtxL", "'x' is not one of E t m L | ( ) * , (character 3)"},
      {"E(tL", "a '(' without a ')' (character 5)"},
      {"Et)L", "a ')' without a '(' (character 3)"},
      {"Et*L", "wanted a positive integer after '*' (character 3)"},
      {"Et*0L", "wanted a positive integer after '*' (character 3)"},
      {"Et*99999999999L", "wanted a positive integer after '*' (character 3)"},
      {"E((t*1000)*1000)*1000L", "more than 100000 letters (character 16)"},
      {"((((((((((((((((((t))))))))))))))))))", "nested too deeply (character 17)"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.text);
    CHECK(parse_pipeline_layout(row.text).fault == row.fault);
  }
}
