// Completion: `mtrain completion SHELL` prints a script; the script asks `mtrain __complete …` what
// may stand next. The answer is one candidate a line, with its description behind a tab.
#pragma once
#include <string>
#include <vector>

#include "cli.h"

namespace mtrain {

/// The script for bash, zsh or fish.
std::string completion_script(const std::string& shell);

/// Answers `__complete WORD…`, the last of which is being typed, or `__complete --line TEXT`. Never
/// fails.
int answer_completion(const CLI::App& app, Cli& cli, std::vector<std::string> words);

}  // namespace mtrain
