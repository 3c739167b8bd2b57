// Formats the values of options for help pages and manual pages, in words instead of CLI11's
// notation of types and checks. Stateless.
#pragma once
#include <memory>
#include <string>

namespace CLI {
class Option;
class FormatterBase;
}  // namespace CLI

namespace mtrain {

/// The placeholder for the value of an option: "N", "NUMBER", "{text,json}".
std::string value_name(const CLI::Option& option);

/// "0 to 100, default 0.8": the accepted values and the default; "" if neither is known.
std::string value_words(const CLI::Option& option);

/// "of at least 0", "above 0", "from 0 to 1": the numbers that an option accepts; "" if no range is
/// known.
std::string value_range(const CLI::Option& option);

/// For help pages.
std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace mtrain
