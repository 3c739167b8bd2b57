// How help pages and manual pages show what an option takes: in words, not in CLI11's notation of
// types and checks. Stateless.
#pragma once
#include <memory>
#include <string>

namespace CLI {
class Option;
class FormatterBase;
}  // namespace CLI

namespace mtrain {

/// "N", "NUMBER", "{text,json}": what stands for the value of an option.
std::string value_name(const CLI::Option& option);

/// "0 to 100, default 0.8": the values that are taken and the one that counts where none is given;
/// "" where neither is known.
std::string value_words(const CLI::Option& option);

/// "of at least 0", "above 0", "from 0 to 1": the numbers that an option takes; "" where no range
/// is known.
std::string value_range(const CLI::Option& option);

/// For help pages.
std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace mtrain
