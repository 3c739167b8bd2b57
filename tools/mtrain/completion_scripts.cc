// mtrain completion: the scripts that shells read.
#include <CLI/CLI.hpp>
#include <iostream>

#include "completion.h"
#include "mtrain/base/file.h"

namespace mtrain {
namespace {

constexpr const char* kBash =
    R"script(# bash completion of mtrain. To use it now:  source <(mtrain completion bash)
# For every shell:  mtrain completion bash > ~/.local/share/bash-completion/completions/mtrain
_mtrain() {
  local line="${COMP_LINE:0:COMP_POINT}" program="${COMP_WORDS[0]}" IFS=$'\n' word keep="" break
  [[ "$(type -t -- "$program")" == file ]] || program=PROGRAM  # an alias, a function or a path with '~'
  # bash splits words at '=' and ':' and expects only the part after them.
  local typed="${line##*[[:space:]]}"
  for break in "=" ":"; do
    if [[ "$COMP_WORDBREAKS" == *"$break"* && "$typed" == *"$break"* ]]; then
      local before="${typed%"$break"*}$break"
      [[ ${#before} -gt ${#keep} ]] && keep="$before"
    fi
  done
  COMPREPLY=()
  for word in $("$program" __complete --line "$line" 2>/dev/null); do
    word="${word%%$'\t'*}"
    local open=""
    [[ "$word" == *[=./] ]] || open=" "
    word="${word#"$keep"}"
    COMPREPLY+=("${word// /\\ }$open")
  done
}
complete -o nospace -F _mtrain mtrain
)script";

constexpr const char* kZsh = R"script(#compdef mtrain
# zsh completion of mtrain. To use it now:  source <(mtrain completion zsh)
# For every shell:  mtrain completion zsh > a folder of $fpath, as _mtrain
# zsh takes a ~ at the start of a word for a folder: write \~section.key or '~section.key'.
_mtrain() {
  local -a lines open_words open_docs done_words done_docs
  local line word doc program="${words[1]}"
  [[ "$(whence -w -- "$program")" == *:\ (command|hashed) ]] || program=PROGRAM  # an alias, a function or a path with '~'
  lines=("${(@f)$("$program" __complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
  for line in $lines; do
    word="${line%%$'\t'*}"
    doc="${line#*$'\t'}"
    [[ -z "$word" ]] && continue
    if [[ "$word" == *[=./] ]]; then
      open_words+=("$word"); open_docs+=("$word  $doc")
    else
      done_words+=("$word"); done_docs+=("$word  $doc")
    fi
  done
  (( $#open_words )) && compadd -l -S '' -d open_docs -- $open_words
  (( $#done_words )) && compadd -l -d done_docs -- $done_words
}
if [[ "$funcstack[1]" == "_mtrain" ]]; then
  _mtrain "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
  compdef _mtrain mtrain
fi
)script";

constexpr const char* kFish =
    R"script(# fish completion of mtrain. To use it now:  mtrain completion fish | source
# For every shell:  mtrain completion fish > ~/.config/fish/completions/mtrain.fish
function __mtrain_complete
  set -l words (commandline -opc)
  set -l program $words[1]
  test "$(type -t -- $program 2>/dev/null)" = file; or set program PROGRAM  # an alias, a function or a path with '~'
  $program __complete -- $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c mtrain -f -a '(__mtrain_complete)'
)script";

constexpr std::string_view kProgram = "PROGRAM";  // in a script: the path of this program, quoted

/// As one word of any of these shells.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string completion_script(const std::string& shell) {
  std::string out = shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
  return out.replace(out.find(kProgram), kProgram.size(),
                     shell_quoted((program_directory() / "mtrain").string()));
}

void add_completion_command(CLI::App& app, Cli&) {
  auto* command = app.add_subcommand("completion", "print the completion script for a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("SHELL");
  command->footer(
      "Examples:\n"
      "  source <(mtrain completion bash)\n"
      "  mtrain completion fish > ~/.config/fish/completions/mtrain.fish");
  command->callback([shell] { std::cout << completion_script(*shell); });
}

}  // namespace mtrain
