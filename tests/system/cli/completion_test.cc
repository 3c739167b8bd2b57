// Completion: what may stand next, quickly, without running a plugin or writing a file; and through
// a real bash.
#include <doctest/doctest.h>

#include "shell.h"

using namespace mtrain::testing;
namespace fs = std::filesystem;

namespace {

struct Asked {
  const char* words;  // as a shell would pass them, the last being typed
  std::vector<std::string> offers, not_offers;
};

std::string candidates(const fs::path& folder, const std::string& words) {
  Outcome outcome = cli_in(folder, "__complete -- " + words);
  CHECK(outcome.status == 0);
  CHECK(outcome.err.empty());
  std::string out = "\n";
  std::stringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) out += line.substr(0, line.find('\t')) + "\n";
  return out;
}

bool installed(const std::string& shell) {
  const bool there = fs::exists("/usr/bin/" + shell) || fs::exists("/bin/" + shell);
  if (!there) MESSAGE("skipped: " << shell << " is not installed");
  return there;
}

/// What a shell prints that runs a script in a folder. `path`: a folder of its PATH, by default
/// that of mtrain.
std::string script_output(
    const std::string& shell, const Scratch& scratch, const std::string& script,
    const std::string& path = fs::path(mtrain_binary()).parent_path().string()) {
  const fs::path file = scratch.write("ask.script", script);
  Outcome outcome = run({.arguments = {"/bin/sh", "-c",
                                       "cd " + scratch.path().string() + " && PATH=" + path +
                                           ":/usr/bin:/bin exec " + shell + " " + file.string()},
                         .environment = {"HOME=" + scratch.path().string(),
                                         "XDG_CONFIG_HOME=" + (scratch / "nobody").string()}});
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  return outcome.out;
}

void make_project(const Scratch& scratch) {
  write_at(scratch / "recipes/tiny.yaml", "# Tiny.\n" + tiny_recipe());
  write_at(scratch / "recipes/optimizer/fast.yaml", "lr: 1\n");
  write_at(scratch / "recipes/group.yaml",
           "# Grouped.\ndefaults: [{optimizer: fast}, _self_]\n" + tiny_recipe());
  write_at(scratch / "other/deep.yaml", tiny_recipe());
  write_at(scratch / "runs/first/config/resolved.yaml", "");
  write_at(scratch / "runs/first/checkpoints/step-5/manifest.json", "");
  for (const char* file : {"data/web.bin", "data/web.idx", "data/notes.txt",
                           "models/gpt/config.json", "models/gpt/tokenizer.json"})
    write_at(scratch / file, "");
}

const std::vector<Asked> kAsked = {
    {"''", {"train", "check", "config", "tiny", "other/"}, {"__complete", "deep"}},
    {"che", {"check", "checkpoint"}, {"config"}},
    {"config ''", {"show", "why", "diff", "explain", "migrate"}, {"train", "tiny"}},
    {"check ''", {"tiny", "quickstart", "other/"}, {"check"}},
    {"check other/", {"other/deep.yaml"}, {}},
    {"check tiny op", {"optimizer.", "optimizer="}, {"model."}},
    {"group optimizer=", {"optimizer=fast", "optimizer=adamw"}, {}},
    {"tiny optimizer=", {"optimizer=adamw"}, {"optimizer=fast"}},
    {"tiny +optimizer=f", {"+optimizer=fast"}, {"+optimizer=adamw"}},
    {"tiny optimizer.l", {"optimizer.lr="}, {"optimizer.beta1="}},
    {"tiny ~optimizer.l", {"~optimizer.lr"}, {}},
    {"tiny optimizer.lr=", {"optimizer.lr=0.002"}, {}},
    {"tiny model.", {"model.layers=", "model.rope."}, {}},
    {"tiny model.recompute=", {"model.recompute=none", "model.recompute=full"}, {}},
    {"tiny model.tie_embeddings=t", {"model.tie_embeddings=true"}, {"model.tie_embeddings=false"}},
    {"tiny model.type=", {"model.type=llama", "model.type=gpt2"}, {}},
    {"tiny train.steps=5 dataset=m", {"dataset=mock"}, {}},
    {"config show optimizer.", {"optimizer.lr"}, {"optimizer.lr="}},
    {"config show tiny optimizer.", {"optimizer.lr"}, {}},
    {"config show tiny optimizer.lr train.st", {"train.steps="}, {}},
    {"config explain tra", {"train."}, {"tiny"}},
    {"config show tiny --",
     {"--raw", "--minimal", "--json", "--flags", "--plugin-path"},
     {"--from", "--format"}},
    {"schema --format m", {"markdown", "man"}, {"json"}},
    {"check --gpu h", {"h100", "h200"}, {"a100"}},
    {"rerun ''", {"runs/first"}, {"recipes/tiny.yaml"}},
    {"rerun runs/", {"runs/first"}, {}},
    {"eval --from runs/first/checkpoints/", {"runs/first/checkpoints/step-5"}, {}},
    {"plugins inspect opt", {"optimizer_adamw"}, {"model_llama"}},
    {"--nproc 2 ti", {"tiny"}, {}},
    {"--nproc ''", {}, {"tiny"}},
    {"tiny optimizer.type=",
     {"optimizer.type=adamw", "optimizer.type=lion", "optimizer.type=muon", "optimizer.type=sgd"},
     {}},
    {"tiny optimizer=", {"optimizer=adamw", "optimizer=lion"}, {}},
    {"tiny sche", {"scheduler.", "scheduler="}, {}},
    {"tiny scheduler=", {"scheduler=linear", "scheduler=wsd"}, {}},
    {"tiny profiling=", {"profiling=trace"}, {}},
    {"tiny model=", {"model=llama", "model=gpt2"}, {"model=llama3_8b", "model=gpt2_124m"}},
    {"tiny +model=", {"+model=llama3_8b"}, {}},
    {"tiny tokenizer=", {"tokenizer=byte"}, {"tokenizer=qwen3"}},
    {"tiny logg", {"logger."}, {"logger="}},
    {"tiny +logger=", {"+logger=quiet"}, {}},
    {"gpt2_124m tokenizer=", {"tokenizer=byte", "tokenizer=gpt2"}, {}},
    {"completion ''", {"bash", "zsh", "fish"}, {}},
    {"tiny nonsense.", {}, {"nonsense."}},
    {"data inspect data/", {"data/web"}, {"data/web.idx", "data/notes.txt"}},
    {"data verify ''", {"data/"}, {}},
    {"data prepare -i data/", {"data/notes.txt"}, {}},
    {"data prepare -t ''", {"hf", "byte"}, {"llama"}},
    {"data prepare --split-on ''", {"lines", "blank-lines"}, {"jsonl"}},
    {"data prepare --format j", {"jsonl"}, {"text"}},
    {"data prepare --split-on=li", {"--split-on=lines"}, {"--split-on=blank-lines"}},
    {"data prepare --tokenizer=by", {"--tokenizer=byte"}, {"--tokenizer=hf"}},
    {"config show tiny --json=", {}, {"--json="}},
    {"data prepare -t hf pa", {"path="}, {}},
    {"data prepare -t hf path=mod", {"path=models/"}, {}},
    {"data pack data/", {"data/notes.txt"}, {}},
    {"data show data/notes.txt -t byte dataset.tr", {"dataset.train_on="}, {"dataset.path="}},
    {"data pack data/notes.txt dataset.train_on=", {"dataset.train_on=last"}, {}},
    {"generate --template ll", {"llama3"}, {"chatml"}},
    {"data render x.jsonl --template mod", {"models/"}, {}},
    {"tiny -f da", {"data/"}, {}},
    {"tiny dataset.path=data/",
     {"dataset.path=data/web", "dataset.path=data/notes.txt"},
     {"dataset.path=data/bible"}},
    {"tiny dataset.path=", {"dataset.path=data/"}, {"dataset.path=data/bible"}},
    {"tiny tokenizer.path=models/gpt/", {"tokenizer.path=models/gpt/tokenizer.json"}, {}},
    {"tiny model.init_from=",
     {"model.init_from=runs/first", "model.init_from=models/"},
     {"model.init_from=/models/Llama-3.2-1B"}},
    {"tiny model.init_from=models/", {"model.init_from=models/gpt"}, {}},
    {"check run", {"runs/first"}, {}},
    {"config show runs/", {"runs/first"}, {}},
    {"help da", {"data"}, {"tiny"}},
    {"help data pr", {"prepare"}, {}},
};

}  // namespace

TEST_CASE("what is offered where") {
  Scratch scratch("mtrain-complete");
  make_project(scratch);
  for (const auto& asked : kAsked) {
    std::string offered = candidates(scratch.path(), asked.words);
    for (const auto& word : asked.offers)
      CHECK_MESSAGE(has(offered, "\n" + word + "\n"), std::string(asked.words), " should offer ",
                    word, offered);
    for (const auto& word : asked.not_offers)
      CHECK_MESSAGE(!has(offered, "\n" + word + "\n"), std::string(asked.words),
                    " should not offer ", word, offered);
  }
}

TEST_CASE("hostile words end in silence") {
  Scratch scratch("mtrain-complete-bad");
  write_at(scratch / "bad.yaml", "model: [1, 2\n");
  for (const char* words :
       {"bad.yaml model.", "bad.yaml model.type=", "'$(touch x)' ''", "--plugin-path",
        "\"$(printf '\\377')\"", "check bad.yaml '=' ", "x '~'", "x '+'", "x ''"})
    candidates(scratch.path(), words);
  CHECK_FALSE(fs::exists(scratch / "x"));
}

TEST_CASE("a TAB opens no plugin: it is quick however many there are") {
  Scratch scratch("mtrain-complete-speed");
  make_project(scratch);
  for (const char* line :
       {"mtrain ", "mtrain recipes/tiny.yaml optimizer.", "mtrain check tiny model.type="}) {
    Outcome outcome = cli({"__complete", "--line", line}, {"MTRAIN_FAULT=plugin.open:1:kill"});
    CHECK(outcome.status == 0);
    CHECK_FALSE(outcome.out.empty());
  }
}

TEST_CASE("the scripts: each is printed; bash completes with the real one") {
  for (const char* shell : {"bash", "zsh", "fish"})
    CHECK(has(cli({"completion", shell}).out, "__complete"));
  CHECK(cli({"completion", "tcsh"}).status == 2);
  if (!installed("bash")) return;
  Scratch scratch("mtrain-bash");
  make_project(scratch);
  scratch.write("with space.yaml", tiny_recipe());
  scratch.write(
      "ask.sh",
      "source <(" + mtrain_binary() +
          " completion bash)\n"
          "ask() { COMP_LINE=$1; COMP_POINT=${#1}; COMP_WORDS=(" +
          mtrain_binary() +
          "); COMPREPLY=(); _mtrain;\n"
          "  printf '<%s>' \"${COMPREPLY[@]}\"; echo; }\n"
          "ask 'mtrain che'\nask 'mtrain tiny optimizer.lr'\nask 'mtrain tiny model.recompute=f'\n"
          "ask 'mtrain check group optimizer=f'\nask 'mtrain check other/'\n"
          "ask 'mtrain data inspect data/w'\nask 'mtrain check with'\nask 'mtrain check with\\ "
          "s'\n");
  Outcome bash =
      run({.arguments = {"/bin/bash", "-c", "cd " + scratch.path().string() + " && bash ask.sh"}});
  CHECK_MESSAGE(bash.status == 0, bash.err);
  CHECK(bash.out ==
        "<check ><checkpoint >\n"
        "<optimizer.lr=>\n"
        "<full >\n"
        "<fast >\n"
        "<other/deep.yaml >\n"
        "<data/web >\n"
        "<with\\ space.yaml >\n"
        "<with\\ space.yaml >\n");
}

TEST_CASE("mtrain completes where it is an alias, as README.md suggests, and not in PATH") {
  struct Asked {
    const char *shell, *script;
  };
  const Asked table[] = {
      {"bash",
       "shopt -s expand_aliases\nalias mtrain=MTRAIN\nsource <(mtrain completion bash)\n"
       "COMP_LINE='mtrain che'; COMP_POINT=10; COMP_WORDS=(mtrain che); _mtrain; printf '<%s>' "
       "\"${COMPREPLY[@]% }\"\n"},
      {"zsh -f",
       "compdef() { }\ncompadd() { while [[ $1 != -- ]]; do shift; done; shift; local word; for "
       "word; do print -rn -- \"<$word>\"; done }\n"
       "alias mtrain=MTRAIN\nsource <(mtrain completion zsh)\nwords=(mtrain che); CURRENT=2; "
       "PREFIX=che; _mtrain\n"},
      {"fish",
       "alias mtrain MTRAIN\nmtrain completion fish | source\n"
       "for word in (complete -C 'mtrain che'); echo -n '<'(string split -f1 \\t -- $word)'>'; "
       "end\n"},
  };
  for (const auto& asked : table) {
    const std::string shell = asked.shell;
    if (!installed(shell.substr(0, shell.find(' ')))) continue;
    Scratch scratch("mtrain-alias");
    std::string script = asked.script;
    script.replace(script.find("MTRAIN"), 6, mtrain_binary());
    const std::string out = script_output(shell, scratch, script, "/nowhere");
    CHECK_MESSAGE(out == "<check><checkpoint>", shell, out);
  }
}

TEST_CASE("zsh offers what the script adds") {
  if (!installed("zsh")) return;
  Scratch scratch("mtrain-zsh");
  make_project(scratch);
  scratch.write("with space.yaml", tiny_recipe());
  // compadd works inside of a line editor alone: this one prints the words it is given, with what
  // follows them.
  const std::string out = script_output(
      "zsh -f", scratch,
      "compdef() { }\n"
      "compadd() {\n"
      "  local end=' '\n"
      "  while [[ $1 != -- ]]; do [[ $1 == -S ]] && end=$2; shift; done; shift\n"
      "  local word; for word; do print -rn -- \"<$word$end>\"; done\n"
      "}\n"
      "source <(mtrain completion zsh)\n"
      "ask() { words=(\"$@\"); CURRENT=$#words; PREFIX=${words[CURRENT]}; _mtrain; print; }\n"
      "ask mtrain che\nask mtrain tiny optimizer.lr\nask mtrain tiny model.recompute=f\n"
      "ask mtrain check group optimizer=f\nask mtrain check other/\nask mtrain data inspect "
      "data/w\n"
      "ask mtrain check with\nask mtrain check 'with\\ s'\n");
  CHECK(out ==
        "<check ><checkpoint >\n"
        "<optimizer.lr=>\n"
        "<model.recompute=full >\n"
        "<optimizer=fast >\n"
        "<other/deep.yaml >\n"
        "<data/web >\n"
        "<with space.yaml >\n"
        "<with space.yaml >\n");
}

TEST_CASE("zsh's line editor quotes what is completed") {
  if (!installed("zsh")) return;
  Scratch scratch("mtrain-zsh-editor");
  make_project(scratch);
  scratch.write("with space.yaml", tiny_recipe());
  // Each line is typed with a TAB at its end, then printed by the shell as the words that it
  // became.
  const std::string out = script_output(
      "zsh -f", scratch,
      "zmodload zsh/zpty\n"
      "zpty z zsh -f -i\n"
      "zpty -w z \"unsetopt zle_bracketed_paste; bindkey -e; autoload -Uz compinit; "
      "compinit -u -D; "
      "source <(mtrain completion zsh); PS1='RE''ADY> '\"\n"
      "zpty -r z seen '*READY> *'\n"
      "ask() {\n"
      "  zpty -w -n z \"$1\"$'\\t\\C-aprint -r -- DONE \\C-e'\"$2\"$'\\n'\n"
      "  zpty -r z seen $'*\\nDONE *READY> *'\n"
      "  seen=${seen##*$'\\n'DONE }; print -r -- ${seen%%$'\\r'*}\n"
      "}\n"
      "ask 'mtrain tiny optimizer.lr'\nask 'mtrain tiny \\~optimizer.l'\nask \"mtrain "
      "tiny '~optimizer.l\"\n"
      "ask 'mtrain check with'\nask 'mtrain data prepare --split-on=li'\n");
  CHECK(out ==
        "mtrain tiny optimizer.lr=\n"
        "mtrain tiny ~optimizer.lr\n"
        "mtrain tiny ~optimizer.lr\n"
        "mtrain check with space.yaml\n"
        "mtrain data prepare --split-on=lines\n");
}

TEST_CASE("fish completes") {
  if (!installed("fish")) return;
  Scratch scratch("mtrain-fish");
  make_project(scratch);
  scratch.write("with space.yaml", tiny_recipe());
  std::string script = "mtrain completion fish | source\n";
  for (const char* line :
       {"mtrain che", "mtrain tiny optimizer.lr", "mtrain tiny model.recompute=f",
        "mtrain check group optimizer=f", "mtrain check other/", "mtrain data inspect data/w",
        "mtrain check with"})
    script += std::string("for word in (complete -C '") + line +
              "'); echo -n '<'(string split -f1 \\t -- $word)'>'; end; echo\n";
  CHECK(script_output("fish", scratch, script) ==
        "<check><checkpoint>\n"
        "<optimizer.lr=>\n"
        "<model.recompute=full>\n"
        "<optimizer=fast>\n"
        "<other/deep.yaml>\n"
        "<data/web>\n"
        "<with space.yaml>\n");
}
