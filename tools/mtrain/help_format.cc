#include "help_format.h"

#include <CLI/CLI.hpp>

#include "mtrain/base/text.h"

namespace mtrain {
namespace {

// CLI11 writes a type and its checks as "INT:INT in [1 - 64]", "TEXT:{text,json}", "N:POSITIVE".
constexpr std::string_view kRange = " in [", kBetween = " - ";

/// "FLOAT in [0 - 100]" -> "0 to 100"; "" for a check that is not a range.
std::string range_of(const std::string& check) {
  if (check == "POSITIVE") return "above 0";
  if (check == "NONNEGATIVE") return "0 or more";
  size_t begin = check.find(kRange), between = check.find(kBetween);
  if (begin == std::string::npos || between == std::string::npos || !check.ends_with(']'))
    return "";
  begin += kRange.size();
  const size_t end = between + kBetween.size();
  return cat(check.substr(begin, between - begin), " to ",
             check.substr(end, check.size() - 1 - end));
}

std::vector<std::string> type_parts(const CLI::Option& option) {
  return split(option.get_type_name(), ':');
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (!option->get_option_text().empty() || option->get_type_size() == 0)
      return CLI::Formatter::make_option_opts(option);
    std::string out = cat(" ", value_name(*option));
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) out += " ...";
    if (option->get_required()) out += cat(" ", get_label("REQUIRED"));
    if (!option->get_excludes().empty()) out += cat(" ", get_label("Excludes"), ":");
    for (const CLI::Option* other : option->get_excludes()) out += cat(" ", other->get_name());
    return out;
  }
  /// Without CLI11's mark of a name that turns a flag off, "--no-color{false}".
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    std::string out = CLI::Formatter::make_option_name(option, positional);
    for (size_t at; (at = out.find("{false}")) != std::string::npos;)
      out.erase(at, std::string_view("{false}").size());
    return out;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string values = value_words(*option);
    return cat(option->get_description(), values.empty() ? "" : cat(" (", values, ")"));
  }
};

}  // namespace

std::string value_name(const CLI::Option& option) {
  const std::vector<std::string> parts = type_parts(option);
  for (const auto& part : parts)
    if (part.starts_with('{')) return part;
  const std::string& type = parts.empty() ? "" : parts.front();
  if (type == "INT" || type == "UINT") return "N";
  return type == "FLOAT" ? "NUMBER" : type;
}

std::string value_words(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  std::vector<std::string> out;
  for (const auto& part : type_parts(option))
    if (std::string range = range_of(part); !range.empty()) out.push_back(std::move(range));
  if (!option.get_default_str().empty()) out.push_back(cat("default ", option.get_default_str()));
  return join(out, ", ");
}

std::string value_range(const CLI::Option& option) {
  for (const auto& part : type_parts(option))
    if (const std::string range = range_of(part); !range.empty())
      return part == "NONNEGATIVE" ? "of at least 0"
             : part == "POSITIVE"  ? range
                                   : cat("from ", range);
  return "";
}

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace mtrain
