// mtrain eval: the loss of a saved model on a split of its data.
#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "model_source.h"
#include "mtrain/base/error.h"
#include "mtrain/train/input_paths.h"
#include "mtrain/train/trainer.h"

namespace mtrain {
namespace {

struct EvalOptions {
  std::string from, split = "valid";
  std::vector<std::string> overrides;
  int64_t batches = 0;
  bool json = false;
};

bool says_dataset(const Recipe& recipe) {
  const Location& where = recipe.config.root().at("dataset.type").loc();
  return where && where.source->kind() == SourceKind::command_line;
}

void evaluate(const Cli& cli, const EvalOptions& options) {
  PluginHost plugins = plugin_host(cli);
  ModelSource source = open_model(options.from, options.overrides, plugins);
  SavedRun& saved = source.run;
  const Settings& s = saved.recipe.settings;
  MT_USER_CHECK(!source.hugging_face || says_dataset(saved.recipe), ErrorClass::usage, "a Hugging Face folder has no data of its own",
                "say on what: dataset=gpt dataset.path=PREFIX");
  std::unique_ptr<Session> opened = open_session(source, plugins);
  Session& session = *opened;
  DatasetContext context = dataset_context(saved.recipe, session.tokenizer.get());
  auto dataset = with_path_origins(saved.recipe.inputs, [&] {
    return plugins.make<Dataset>(s.dataset.type, saved.recipe.component("dataset"), context);
  });
  Interpreter interpreter(*session.run, session.place(), session.parameters);
  Split split = options.split == "train" ? Split::train : options.split == "test" ? Split::test : Split::valid;
  int64_t batches = options.batches > 0 ? options.batches : std::max<int64_t>(1, s.validation.steps);
  EvalMetrics m = evaluate_split(session, interpreter, *dataset, split, batches, nullptr).value();
  if (options.json) {
    std::cout << nlohmann::ordered_json{{"step", saved.step}, {"split", options.split}, {"loss", m.loss},
                                        {"perplexity", std::exp(m.loss)}, {"tokens", m.tokens}, {"seconds", m.seconds}}
                     .dump()
              << '\n';
  } else {
    std::cout << describe(source) << ", " << options.split << ": loss " << m.loss << " nats per token, perplexity "
              << std::exp(m.loss) << ", " << human_count(static_cast<double>(m.tokens)) << " tokens in "
              << human_seconds(m.seconds) << '\n';
  }
}

}  // namespace

void add_eval_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("eval", "evaluate a saved model on its own data, or on others");
  auto options = std::make_shared<EvalOptions>();
  command->add_option("--from", options->from, "a run's folder, one of its checkpoints, or a Hugging Face folder")
      ->required()
      ->type_name("RUN|CHECKPOINT|DIR");
  command->add_option("--split", options->split, "which part of the data")->check(CLI::IsMember({"train", "valid", "test"}))->capture_default_str();
  command->add_option("--batches", options->batches, "global batches; 0: the recipe's validation.steps")->check(CLI::NonNegativeNumber);
  command->add_flag("--json", options->json, "print as JSON");
  command->add_option("overrides", options->overrides, "settings to change: key=value")->type_name("KEY=VALUE");
  command->footer(
      "Examples:\n"
      "  mtrain eval --from runs/quickstart\n"
      "  mtrain eval --from runs/quickstart/checkpoints/step-500 --split test --batches 50 --json\n"
      "  mtrain eval --from models/Llama-3.2-1B dataset=gpt dataset.path=data/web");
  command->callback([&cli, options] { evaluate(cli, *options); });
}

}  // namespace mtrain
