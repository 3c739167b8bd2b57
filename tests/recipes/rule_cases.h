// The tables of rules_test.cc: a recipe (llama, gpt2, bert or moe) with changes that break a rule,
// and with changes that keep it.
#pragma once
#include <span>

struct RuleCase {
  const char *id, *model, *broken, *kept;
};

std::span<const RuleCase> world_cases();
std::span<const RuleCase> part_cases();
std::span<const RuleCase> setting_cases();
std::span<const RuleCase> unused_cases();
