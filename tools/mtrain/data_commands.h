// What the commands under `mtrain data` share. For one thread at a time.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cli.h"
#include "mtrain/data/tokenizer.h"

namespace mtrain {

/// Makes the tokenizer that `-t NAME key=value …` names; relative paths start in the working folder.
std::unique_ptr<Tokenizer> make_tokenizer(PluginHost& plugins, const std::string& name,
                                          const std::vector<std::string>& settings);

/// Each adds the command under `mtrain data` that it is named after.
void add_data_prepare(CLI::App& data, Cli& cli);
void add_data_verify(CLI::App& data, Cli& cli);
void add_data_tokenize(CLI::App& data, Cli& cli);
void add_data_render(CLI::App& data, Cli& cli);
void add_data_stats(CLI::App& data, Cli& cli);
void add_data_merge(CLI::App& data, Cli& cli);
void add_data_show(CLI::App& data, Cli& cli);

}  // namespace mtrain
