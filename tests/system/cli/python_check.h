// Checks of a test's files by a program of other people's: PyPI's transformers, peft or gguf.
#pragma once
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "roots.h"
#include "shell.h"
#include "training_run.h"

namespace mtrain::testing {

/// Runs tests/golden/PROGRAM by the Python of the environment's MTRAIN_TEST_PYTHON, else python3;
/// it must succeed. False, with a message, if that Python lacks its packages.
inline bool python_agrees(const std::string& program, const std::vector<std::string>& arguments) {
  const char* given = std::getenv("MTRAIN_TEST_PYTHON");
  const std::string python = given ? given : "python3";
  std::vector<std::string> words = {"/usr/bin/env", python,
                                    (source_root() / "tests/golden" / program).string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const Outcome checked = run({.arguments = words});
  if (checked.status == 77 || checked.status == 127) {
    MESSAGE("not checked by " << program << ", whose packages " << python
                              << " does not have: " << checked.out);
    return false;
  }
  const std::string details = checked.out + checked.err;
  CHECK_MESSAGE(checked.status == 0, details);
  return true;
}

/// peft loads the scratch folder's `adapters` for the model `there` and computes the logits of the
/// model `merged`.
inline bool peft_agrees(const Scratch& scratch, const std::string& adapters = "adapters") {
  return python_agrees("adapter_check.py",
                       {(scratch / "there").string(), (scratch / adapters).string(),
                        (scratch / "merged").string(), "5e-6"});
}

}  // namespace mtrain::testing
