// The golden cases of adapters (tests/golden/adapters); shared by the tests next to it.
#pragma once
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "done.h"
#include "roots.h"

namespace mtrain::testing {

inline std::filesystem::path adapter_golden(const std::string& name) {
  return source_root() / "tests/golden/adapters" / name;
}

inline nlohmann::json golden_values(const std::string& name) {
  return nlohmann::json::parse(slurp(adapter_golden(name) / "golden.json"));
}

/// The loss of `from`, the words of an option of eval, on the records of a case.
inline double eval_loss(const Scratch& scratch, const std::string& from) {
  const std::string eval =
      " -q --batches all --json dataset=sft dataset.path=x.jsonl dataset.split='0,1' "
      "mixed_precision.dtype=fp32";
  return nlohmann::json::parse(done(scratch, "eval --from " + from + eval).out)
      .at("loss")
      .get<double>();
}

}  // namespace mtrain::testing
