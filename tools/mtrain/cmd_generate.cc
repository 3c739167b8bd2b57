// mtrain generate: text from a saved model.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "answer_file.h"
#include "cli.h"
#include "model_source.h"
#include "mtrain/base/elapsed.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/chat/ready_made.h"
#include "mtrain/config/override.h"
#include "mtrain/finetune/dialogue.h"
#include "mtrain/finetune/sft_data.h"
#include "mtrain/recipe/resume.h"
#include "mtrain/train/generator.h"
#include "recipe_words.h"
#include "run_template.h"
#include "streamed_text.h"

namespace mtrain {
namespace {

struct GenerateOptions {
  std::string from, adapter, prompt, system, chat_template, date, prompts, output;
  std::vector<std::string> overrides;
  bool chat = false, prompted = false, parse_special = false, json = false;
  std::optional<bool> add_special;  // of --add-special and --no-add-special
  SamplingOptions sampling;
};

constexpr const char* kLines = "-";  // as --prompt: each line of standard input is a prompt

/// Calls use(text) for the prompt, or for each line of standard input; prints "> " if that is a
/// terminal.
void each_prompt(const GenerateOptions& options,
                 const std::function<void(const std::string&)>& use) {
  if (options.prompt != kLines && (options.prompted || !options.chat)) return use(options.prompt);
  const bool asks = !options.json && ::isatty(STDIN_FILENO) == 1;
  for (std::string line;;) {
    if (asks) std::cout << "> " << std::flush;
    if (!std::getline(std::cin, line)) break;
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() || !options.chat) use(line);
    std::cout << std::flush;
  }
}

/// A continuation or an answer. A value.
struct Printed {
  std::string text;
  int64_t prompt_tokens = 0;
};

/// Shows a text on a terminal while it is generated.
class Shown {
 public:
  Shown(const GenerateOptions& options, std::string end_text, bool turn)
      : live_(!options.json && ::isatty(STDOUT_FILENO) == 1),
        streamed_(std::move(end_text), turn) {}
  /// To be called before each token. `text_of`: the text of the ids so far.
  Generator::Stop each(std::function<std::string(const std::vector<int32_t>& ids)> text_of) {
    if (!live_) return {};
    return [this, text_of = std::move(text_of)](const std::vector<int32_t>& made) {
      std::cout << streamed_.next(text_of(made)) << std::flush;
      return false;
    };
  }
  void finish(const std::string& text) { std::cout << streamed_.rest(text) << '\n'; }

 private:
  bool live_;
  StreamedText streamed_;
};

/// Prints the rest of a text, or an object of it for --json.
void print(const GenerateOptions& options, const std::string& prompt, const Printed& out,
           const GeneratedTokens& made, Shown& shown, std::chrono::steady_clock::time_point start) {
  if (!options.json) return shown.finish(out.text);
  std::cout << nlohmann::ordered_json{{"prompt", prompt},
                                      {"text", out.text},
                                      {"prompt_tokens", out.prompt_tokens},
                                      {"tokens", made.ids.size()},
                                      {"ended", made.ended},
                                      {"seconds", seconds_since(start)}}
                   .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
            << '\n';
}

/// A user who pipes prompts expects that they are read.
void warn_of_unread_prompts(const GenerateOptions& options) {
  int waiting = 0;
  if (!options.prompted && ::isatty(STDIN_FILENO) == 0 &&
      ::ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0 && waiting > 0)
    log_warn(
        "no prompt is given, and standard input is not read; with --prompt - each of its lines is "
        "a prompt");
}

/// The chat template of the adapters or the run, or the one next to the tokenizer.
chat::TemplateFile template_to_answer(const GenerateOptions& options, const SavedRun& run,
                                      const Session& session) {
  if (!options.chat_template.empty()) return chat::find_template(options.chat_template);
  if (auto theirs = template_of_adapters(options.adapter, run, *session.tokenizer))
    return std::move(*theirs);
  if (auto own = template_of_run(run, *session.tokenizer)) return std::move(*own);
  const std::string which =
      record_settings(run.recipe).value_or(finetune::RecordSettings{}).template_name;
  const fs::path folder = session.tokenizer->folder();
  MT_USER_CHECK(!folder.empty(), ErrorClass::config,
                "--chat needs a chat template, and neither the run nor its tokenizer has one",
                cat("give one: --template ", join(chat::ready_made_names(), ", "), ", or a file"));
  return chat::read_template(folder, which);
}

/// A model answers badly in another format than that of its training. Only alpaca records say by
/// their format alone that no template was used.
void warn_of_untrained_template(const SavedRun& run, const std::string& name) {
  if (run.recipe.settings.dataset.type != "sft") return;
  const auto records = read_config<finetune::SftSettings>(run.recipe.component("dataset")).records;
  if (records.format_options().chat_prompts) return;
  const auto data = nlohmann::json::parse(identity_of(run.config).data, nullptr, false);
  const std::string format = finetune::name(finetune::RecordFormat::alpaca);
  if (!data.is_object() || !data.contains("files") || !data["files"].is_array() ||
      data["files"].empty() || !data["files"][0].is_string() ||
      !data["files"][0].get<std::string>().ends_with(" " + format))
    return;
  log_warn("the run was trained on ", format, " records in ", finetune::alpaca_form(records),
           ", but --chat formats messages with the chat template ", printable(name),
           ", which the model was not trained on\n  help: ",
           records.prompt.empty() ? "use --template alpaca"
                                  : "use --prompt, without --chat, with a text in that prompt",
           "; to train with a chat template, set dataset.chat_template or dataset.template_path");
}

/// The day that templates see: --date, or that of the run's training, or today.
std::tm day_of(const GenerateOptions& options, const SavedRun& run) {
  if (!options.date.empty()) return finetune::parse_date(options.date, "--date");
  const auto records = record_settings(run.recipe);
  return records ? finetune::parse_date(records->date, "dataset.date") : local_time();
}

void talk(const SavedRun& run, Session& session, const GenerateOptions& options) {
  chat::TemplateFile file = template_to_answer(options, run, session);
  if (options.chat_template.empty()) warn_of_untrained_template(run, file.name);
  finetune::Dialogue dialogue(*session.tokenizer, std::move(file), day_of(options, run));
  if (!options.system.empty()) dialogue.begin_with(options.system);
  Generator generator(session);
  SamplingOptions sampling = options.sampling;
  each_prompt(options, [&](const std::string& text) {
    const auto start = std::chrono::steady_clock::now();
    AskedPrompt asked = dialogue.ask(text);
    sampling.stop = std::move(asked.ends);
    const auto given = std::ssize(asked.ids);
    Shown shown(options, asked.end_text, asked.turn);
    const GeneratedTokens made = generator.generate(
        std::move(asked.ids), sampling,
        shown.each([&](const auto& ids) { return session.tokenizer->decode(ids); }));
    print(options, text, {.text = dialogue.answer(made.ids), .prompt_tokens = given}, made, shown,
          start);
    ++sampling.seed;  // so that a repeated question may get another answer
  });
}

/// The conversation of a record, and the request for its answer.
TextRequest asked(finetune::Dialogue& dialogue, const AskedRecord& record,
                  const SamplingOptions& sampling) {
  AskedPrompt prompt;
  for (const auto& [role, content] : record.messages)
    if (role == "system")
      dialogue.begin_with(content);
    else if (role == "user")
      prompt = dialogue.ask(content);
    else
      dialogue.answered(content);
  TextRequest out{std::move(prompt.ids), sampling};
  out.sampling.stop = std::move(prompt.ends);
  out.sampling.seed += static_cast<uint64_t>(record.index);
  return out;
}

/// Answers the records of --prompts in --output, each as a conversation of its own.
void answer_all(const SavedRun& run, Session& session, const GenerateOptions& options) {
  const chat::TemplateFile file = template_to_answer(options, run, session);
  if (options.chat_template.empty()) warn_of_untrained_template(run, file.name);
  Generator generator(session);
  std::deque<finetune::Dialogue> asking;  // those whose answers are generated now, in order
  answer_records(options.prompts, options.output, options.system,
                 [&](const std::function<std::optional<AskedRecord>()>& next,
                     const std::function<void(std::string)>& done) {
                   generator.generate_all(
                       [&]() -> std::optional<TextRequest> {
                         const std::optional<AskedRecord> record = next();
                         if (!record) return std::nullopt;
                         auto& dialogue =
                             asking.emplace_back(*session.tokenizer, file, day_of(options, run));
                         return asked(dialogue, *record, options.sampling);
                       },
                       [&](const GeneratedTokens& made) {
                         done(asking.front().answer(made.ids));
                         asking.pop_front();
                       });
                 });
}

/// The ids of a prompt. Warns once of special tokens that it spells in plain characters.
std::vector<int32_t> ids_of(const Tokenizer& tokenizer, const std::string& prompt,
                            bool parse_special) {
  if (!parse_special) {
    for (const SpecialToken& special : tokenizer.special_tokens())
      if (static bool warned = false;
          !warned && !special.text.empty() && prompt.find(special.text) != std::string::npos) {
        warned = true;
        log_warn("the prompt contains '", printable(special.text),
                 "', which is read as plain characters, not as the special token\n  help: "
                 "--parse-special reads the names of special tokens as these tokens");
      }
    return tokenizer.encode(prompt);
  }
  std::vector<int32_t> ids;
  tokenizer.encode_with(prompt, {.parse_special = true}, ids, nullptr);
  return ids;
}

/// The text of an answer with its special tokens, such as T5's sentinels.
std::string text_with_special(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::map<int32_t, std::string> special;
  for (const SpecialToken& one : tokenizer.special_tokens()) special[one.id] = one.text;
  std::string out;
  std::vector<int32_t> plain;
  for (int32_t id : ids) {
    const auto found = special.find(id);
    if (found == special.end()) {
      plain.push_back(id);
      continue;
    }
    out += tokenizer.decode(std::exchange(plain, {})) + found->second;
  }
  return out + tokenizer.decode(plain);
}

/// Whether the model has seen texts that begin with the tokenizer's special tokens: published
/// models have, also those that were only imported, and fine-tuning adds them.
bool begins_with_special(const ModelSource& source) {
  const Settings& settings = source.run.recipe.settings;
  return source.hugging_face || settings.dataset.type == "sft" || settings.train.steps == 0;
}

void generate(const Cli& cli, const GenerateOptions& options) {
  for (const auto& word : options.overrides)
    MT_USER_CHECK(
        looks_like_override(word), ErrorClass::usage,
        cat("'", printable(word, 100), "' is not a setting: settings are written key=value"),
        "a prompt of several words is one argument: --prompt 'two words'");
  PluginHost plugins = plugin_host(cli);
  ModelSource source = open_model(options.from, placed_overrides(cli, options.overrides), plugins);
  check_generation_settings(source.run.recipe, options.from);
  require_generating_model(source.run.recipe, plugins);
  auto session = open_session(source, plugins, options.adapter);
  Generator generator(*session);
  MT_USER_CHECK(!options.chat || !generator.answers(), ErrorClass::usage,
                cat("--chat does not support model.type=", source.run.recipe.settings.model.type,
                    ", which has an encoder and a decoder"),
                "give each text as a prompt of its own: --prompt -");
  if (!options.prompts.empty()) return answer_all(source.run, *session, options);
  if (options.chat) return talk(source.run, *session, options);
  warn_of_unread_prompts(options);
  const std::vector<int32_t> begin = options.add_special.value_or(begins_with_special(source))
                                         ? tokens_before_text(*session->tokenizer)
                                         : std::vector<int32_t>{};
  const auto records = record_settings(source.run.recipe);
  const bool parse_special = options.parse_special || (records && records->parse_special);
  SamplingOptions sampling = options.sampling;
  each_prompt(options, [&](const std::string& prompt) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<int32_t> given = ids_of(*session->tokenizer, prompt, parse_special);
    // A prompt that spells its first token has it once, as in training.
    if (!parse_special || begin.empty() || given.empty() || given.front() != begin.front())
      given.insert(given.begin(), begin.begin(), begin.end());
    const auto text_of = [&](const std::vector<int32_t>& ids) {
      return options.parse_special ? text_with_special(*session->tokenizer, ids)
             : generator.answers() ? session->tokenizer->decode(ids)
                                   : continuation(*session->tokenizer, given, ids);
    };
    if (!options.json && !generator.answers()) std::cout << prompt;
    Shown shown(options, "", false);
    const GeneratedTokens made = generator.generate(given, sampling, shown.each(text_of));
    print(options, prompt, {.text = text_of(made.ids), .prompt_tokens = std::ssize(given)}, made,
          shown, start);
    ++sampling.seed;  // equal lines get different continuations
  });
}

}  // namespace

void add_generate_command(CLI::App& app, Cli& cli) {
  auto* command =
      app.add_subcommand("generate", "continue prompts with a saved model, or chat with it");
  auto options = std::make_shared<GenerateOptions>();
  SamplingOptions& s = options->sampling;
  command
      ->add_option("--from", options->from,
                   "a run's folder, one of its checkpoints, or a Hugging Face folder")
      ->required()
      ->type_name("RUN|CHECKPOINT|DIR");
  command
      ->add_option("--adapter", options->adapter,
                   "a folder of peft (adapter_config.json) whose adapters are added to the weights")
      ->type_name("DIR");
  auto* prompt =
      command
          ->add_option("--prompt", options->prompt,
                       "the text to continue; -: each line of standard input is a prompt")
          ->type_name("TEXT");
  auto* chat = command->add_flag(
      "--chat", options->chat,
      "answer the prompt, or each line of standard input, as a turn of a conversation");
  auto* prompts =
      command
          ->add_option("--prompts", options->prompts,
                       "with --chat and --output: a JSONL file whose records are answered, each as "
                       "a conversation of its own: its prompt, or its messages up to the last of "
                       "the user")
          ->type_name("FILE")
          ->needs(chat)
          ->excludes(prompt);
  prompts->needs(command
                     ->add_option("--output", options->output,
                                  "with --prompts: the JSONL file of the conversations, for "
                                  "dataset=sft; one that has the first of them is continued")
                     ->type_name("FILE")
                     ->needs(prompts));
  command->add_option("--system", options->system, "with --chat: the system message")
      ->type_name("TEXT")
      ->needs(chat);
  command
      ->add_option("--template", options->chat_template,
                   "with --chat: the name of a chat template that comes with mtrain, or a file; "
                   "default: the template of the adapters, the run or the tokenizer")
      ->type_name("NAME|PATH")
      ->needs(chat);
  command
      ->add_option("--date", options->date,
                   "with --chat: the day that templates see as today, as 2024-07-26; default: "
                   "dataset.date of the run, and today for a Hugging Face folder")
      ->type_name("DATE")
      ->needs(chat);
  auto add_special = std::make_shared<bool>(false);
  command
      ->add_flag(
          "--add-special,!--no-add-special", *add_special,
          "begin each prompt with the special tokens that the tokenizer's file puts before a "
          "text, such as <s>; default: for Hugging Face folders, imported models and runs "
          "of fine-tuning")
      ->excludes(chat);
  command
      ->add_flag("--parse-special", options->parse_special,
                 "read the names of special tokens in a prompt, such as <extra_id_0>, as these "
                 "tokens, and print those of the answer; default: they are plain characters, or "
                 "as dataset.parse_special of the run says, and not printed")
      ->excludes(chat);
  command
      ->add_flag(
          "--json", options->json,
          "print an object for each prompt: its prompt, text, numbers of tokens, whether the "
          "model ended the text, and seconds")
      ->excludes(prompts);
  command->add_option("--max-tokens", s.max_tokens, "maximum number of new tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command
      ->add_option("--temperature", s.temperature,
                   "sampling temperature; 0: always the most likely token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-k", s.top_k, "sample from the k most likely tokens; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--top-p", s.top_p,
                   "sample from the most likely tokens with this total probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      ->add_option("--seed", s.seed,
                   "seed of sampling: the same seed gives the same text; each further line of "
                   "--prompt - has the next seed")
      ->check(check_count)
      ->capture_default_str();
  command->add_option("overrides", options->overrides, "settings to change: key=value")
      ->type_name("KEY=VALUE");
  command->footer(
      "Examples:\n"
      "  mtrain generate --from runs/quickstart --prompt 'In the beginning'\n"
      "  mtrain generate --from runs/quickstart --prompt 'And he said' --temperature 0.6 --top-k "
      "20 --seed 7\n"
      "  mtrain generate --from models/Llama-3.2-1B --prompt - < prompts.txt\n"
      "  mtrain generate --from runs/answers --chat\n"
      "  mtrain generate --from models/Llama-3.1-8B-Instruct --chat --prompts prompts.jsonl "
      "--output answers.jsonl");
  command->callback([&cli, options, prompt, add_special, command] {
    options->prompted = prompt->count() > 0;
    if (command->count("--add-special") > 0) options->add_special = *add_special;
    if (options->sampling.temperature == 0)
      for (const char* option : {"--top-k", "--top-p", "--seed"})
        if (command->count(option) > 0)
          log_warn(option, " has no effect: with --temperature 0 nothing is sampled");
    generate(cli, *options);
  });
}

}  // namespace mtrain
