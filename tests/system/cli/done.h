// A command of mtrain that must succeed; shared by the tests next to it.
#pragma once
#include <doctest/doctest.h>

#include <string>

#include "shell.h"
#include "training_run.h"

namespace mtrain::testing {

/// Runs the words in the scratch folder, and ends the test case with the command's errors if it
/// fails.
inline Outcome done(const Scratch& scratch, const std::string& words) {
  Outcome outcome = cli_in(scratch.path(), words);
  const std::string details = words + "\n" + outcome.err;
  REQUIRE_MESSAGE(outcome.status == 0, details);
  return outcome;
}

}  // namespace mtrain::testing
