#include "man_page.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli.h"
#include "help_format.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

/// Escapes text for roff.
std::string plain(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    bool starts_line = i == 0 || text[i - 1] == '\n';
    if (starts_line && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '\\')
      out += "\\e";
    else if (text[i] == '-')
      out += "\\-";
    else
      out += text[i];
  }
  return out;
}

std::string hyphened(std::string text) {
  std::replace(text.begin(), text.end(), ' ', '-');
  return text;
}

std::string option_line(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const auto& name : option.get_snames())
    names.push_back(cat("\\fB", plain("-" + name), "\\fR"));
  for (const auto& name : option.get_lnames())
    names.push_back(cat("\\fB", plain("--" + name), "\\fR"));
  if (names.empty())
    names.push_back(cat(
        "\\fI", plain(option.get_type_name().empty() ? option.get_name() : option.get_type_name()),
        "\\fR"));
  const bool takes_value = !option.get_positional() && option.get_expected_min() > 0;
  return join(names, ", ") + (takes_value ? cat(" \\fI", plain(value_name(option)), "\\fR") : "");
}

std::string option_text(const CLI::Option& option) {
  std::string out = cat(".TP\n", option_line(option), "\n", plain(option.get_description()));
  if (const std::string values = value_words(option); !values.empty())
    out += cat(" (", plain(values), ")");
  return out + "\n";
}

std::string synopsis(const CLI::App& command, const std::string& spelled) {
  std::string out = cat(".B ", plain(spelled), "\n[\\fIOPTION\\fR ...]");
  for (const auto* option : command.get_options())
    if (option->get_positional()) {
      std::string word =
          cat("\\fI",
              plain(option->get_type_name().empty() ? option->get_name() : option->get_type_name()),
              "\\fR", option->get_items_expected_max() > 1 ? " ..." : "");
      out += option->get_required() ? cat(" ", word) : cat(" [", word, "]");
    }
  if (!visible_commands(command).empty()) out += " \\fICOMMAND\\fR";
  return out + "\n";
}

/// The text at the end of a help page: sentences, and literal examples.
std::string footer(const std::string& text) {
  size_t at = text.find("Example");
  std::string out;
  if (at != 0 && !text.empty()) out += cat(".PP\n", plain(trim(text.substr(0, at))), "\n");
  if (at == std::string::npos) return out;
  size_t first = std::min(text.find('\n', at), text.size());
  return out + cat(".SH EXAMPLES\n.nf\n", plain(text.substr(std::min(first + 1, text.size()))),
                   "\n.fi\n");
}

}  // namespace

std::string man_page(const CLI::App& command, const std::string& spelled) {
  std::string name = hyphened(spelled), upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  std::string out =
      cat(".TH \"", plain(upper), "\" 1 \"\" \"mtrain ", MT_VERSION, "\" \"mtrain\"\n.SH NAME\n",
          plain(name), " \\- ", plain(command.get_description()), "\n.SH SYNOPSIS\n",
          synopsis(command, spelled), ".SH OPTIONS\n");
  for (bool positional : {true, false})
    for (const auto* option : command.get_options())
      if (option->get_positional() == positional && !option->get_group().empty())
        out += option_text(*option);
  auto commands = visible_commands(command);
  if (!commands.empty()) out += ".SH COMMANDS\n";
  for (const auto* each : commands)
    out += cat(".TP\n.BR ", plain(hyphened(spelled + " " + each->get_name())), " (1)\n",
               plain(each->get_description()), "\n");
  out += footer(command.get_footer());
  out += ".SH SEE ALSO\n.BR mtrain (1),\n.BR mtrain\\-recipe (5)\n";
  return out;
}

}  // namespace mtrain
