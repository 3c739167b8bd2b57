// Completion: `mtrain completion SHELL` prints a script; the script calls `mtrain __complete …` for
// the next word. The answer has one candidate per line, followed by a tab and its description.
#pragma once
#include <string>
#include <vector>

#include "cli.h"

namespace mtrain {

/// The script for bash, zsh or fish.
std::string completion_script(const std::string& shell);

/// Answers `__complete WORD…`, whose last word is being typed, or `__complete --line TEXT`. Never
/// fails.
int answer_completion(const CLI::App& app, Cli& cli, std::vector<std::string> words);

}  // namespace mtrain
