// mtrain generate: text from a saved model.
#include <CLI/CLI.hpp>
#include <iostream>

#include "cli.h"
#include "mtrain/train/dtype_choice.h"
#include "mtrain/train/generator.h"
#include "mtrain/train/run_folder.h"
#include "mtrain/train/state_io.h"

namespace mtrain {
namespace {

struct GenerateOptions {
  std::string from, prompt;
  SamplingOptions sampling;
};

void generate(const Cli& cli, const GenerateOptions& options) {
  PluginHost plugins = plugin_host(cli);
  SavedRun saved = open_saved_run(options.from, {}, plugins);
  require_next_token_model(saved.recipe, plugins);
  note_kept_dtype(saved.recipe, saved.config, plugins);
  Session session(saved.recipe, plugins, {.initialise = false});
  load_state(CheckpointStore(saved.checkpoints), saved.step, session.parameters, nullptr);
  Generator generator(session);
  std::vector<int32_t> ids = generator.generate(session.tokenizer->encode(options.prompt), options.sampling);
  std::cout << options.prompt << session.tokenizer->decode(ids) << '\n';
}

}  // namespace

void add_generate_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("generate", "continue a prompt with a saved model");
  auto options = std::make_shared<GenerateOptions>();
  SamplingOptions& s = options->sampling;
  command->add_option("--from", options->from, "a run's folder, or one of its checkpoints")->required()->type_name("RUN|CHECKPOINT");
  command->add_option("--prompt", options->prompt, "the text to continue")->type_name("TEXT");
  command->add_option("--max-tokens", s.max_tokens, "how many tokens at most")->check(CLI::Range(int64_t{1}, int64_t{1} << 20))->capture_default_str();
  command->add_option("--temperature", s.temperature, "0: always the likeliest token")->check(CLI::Range(0.0, 100.0))->capture_default_str();
  command->add_option("--top-k", s.top_k, "choose among the k likeliest; 0: all")->check(CLI::NonNegativeNumber)->capture_default_str();
  command->add_option("--top-p", s.top_p, "choose among the likeliest that hold this probability")->check(CLI::Range(0.0, 1.0))->capture_default_str();
  command->add_option("--seed", s.seed, "of the draw: the same seed gives the same text")->capture_default_str();
  command->footer(
      "Examples:\n"
      "  mtrain generate --from runs/quickstart --prompt 'In the beginning'\n"
      "  mtrain generate --from runs/quickstart --prompt 'And he said' --temperature 0.6 --top-k 20 --seed 7");
  command->callback([&cli, options] { generate(cli, *options); });
}

}  // namespace mtrain
