// mtrain data render: converts conversations to the text and tokens that a model is trained on.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "data_commands.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/chat/chat_template.h"
#include "mtrain/chat/omissions.h"
#include "mtrain/chat/ready_made.h"
#include "mtrain/chat/template_file.h"
#include "mtrain/finetune/chat_tokens.h"
#include "mtrain/finetune/example_encoder.h"
#include "mtrain/finetune/record_format.h"
#include "mtrain/finetune/sft_data.h"

namespace mtrain {
namespace {

using nlohmann::ordered_json;

struct RenderArguments {
  std::string input = "-", template_path, which = "default", tokenizer,
              date = finetune::RecordSettings{}.date;
  std::vector<std::string> words, settings;  // all words; settings of the tokenizer
};

constexpr const char* kWanted =
    "each line is an object like {\"messages\": [{\"role\": \"user\", \"content\": \"…\"}]}, or a "
    "conversation in another format that "
    "dataset=sft reads: sharegpt, alpaca or prompt_completion";

struct Line {
  chat::ChatInput input;
  std::vector<bool> excluded;  // of each message: its weight excludes it from training
};

/// Reads a record as training does: contents that are lists become text, for example.
void take_record(const ordered_json& json, Line& line) {
  const finetune::RecordFormat format =
      json.contains("messages") ? finetune::RecordFormat::openai
                                : finetune::detect_format(std::span(&json, 1), {}, "this line");
  try {
    const finetune::Example example =
        finetune::RecordReader(format, {.chat_prompts = true}).read(json, "");
    MT_USER_CHECK(
        example.kind == finetune::Example::Kind::chat, ErrorClass::data,
        cat("is a record of the format ", finetune::name(format), ", which is not a conversation"),
        kWanted);
    line.input.messages = chat::messages_from_json(example.messages);
    if (!example.tools.empty()) line.input.tools = chat::from_json(example.tools);
    line.excluded = example.excluded;
  } catch (const finetune::RecordFault& fault) {
    throw Error(ErrorClass::data, fault.what, fault.hint);
  }
}

Line read_line(std::string_view text, const chat::TemplateFile& file, const Tokenizer* tokenizer,
               const std::tm& now) {
  ordered_json json;
  try {
    json = ordered_json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    throw Error(ErrorClass::data, cat("is not valid JSON at byte ", e.byte),
                "each line is an object like {\"messages\": […]}");
  } catch (const nlohmann::json::exception& e) {  // a number beyond all types: 1e400
    throw Error(ErrorClass::data, cat("cannot be read: ", printable(e.what())),
                "each line is an object like {\"messages\": […]}");
  }
  MT_USER_CHECK(json.is_object(), ErrorClass::data, "is not an object", kWanted);
  Line line;
  chat::ChatInput& input = line.input;
  input.special = file.special;
  if (tokenizer)
    for (const auto& token : tokenizer->special_tokens())
      input.special_tokens.push_back(token.text);
  input.now = now;
  take_record(json, line);
  if (!json.contains("messages")) return line;
  for (const auto& [key, value] : json.items()) {
    if (key == "messages" || key == "tools" || key == "system") continue;
    if (key == "documents")
      input.documents = chat::from_json(value.dump());
    else if (key == "add_generation_prompt")
      input.add_generation_prompt = value.is_boolean() && value.get<bool>();
    else
      input.more.emplace_back(key, chat::from_json(value.dump()));
  }
  return line;
}

/// Ids, and for each whether it is trained on.
void add_tokens(const chat::RenderedChat& chat, const Tokenizer& tokenizer, ordered_json& out) {
  finetune::ChatTokens tokens = finetune::encode_chat(chat.text, tokenizer);
  std::vector<int32_t> mask;
  for (const chat::Stretch& token : tokens.bytes)
    mask.push_back(finetune::is_within(token, chat.assistant) ? 1 : 0);
  out["ids"] = tokens.ids;
  out["mask"] = mask;
}

size_t code_points(std::string_view text) {
  size_t count = 0;
  for (char c : text) count += (c & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

/// Removes the turns of messages that are excluded from training.
void remove_excluded(chat::RenderedChat& chat, const std::vector<bool>& excluded) {
  std::erase_if(chat.assistant, [&](const chat::Stretch& turn) {
    for (size_t b = turn.begin; b < turn.end; ++b)
      if (const size_t origin = chat.text.origins[b]; origin >= 1 && origin <= excluded.size())
        return static_cast<bool>(excluded[origin - 1]);
    return false;
  });
}

void render_line(const chat::ChatTemplate& chat_template, const chat::TemplateFile& file,
                 const Line& line, const Tokenizer* tokenizer) {
  const chat::ChatInput& input = line.input;
  static constexpr const char* kMasks[] = {"none", "generation", "prefixes", "origins"};
  chat::require_fields_read(file, input);
  chat::RenderedChat chat = chat_template.render_masked(input);
  chat::require_tools_written(file, input, chat.text);
  chat::require_messages_written(file, input, chat.text);
  remove_excluded(chat, line.excluded);
  ordered_json out{{"text", chat.text.bytes}};
  if (tokenizer) add_tokens(chat, *tokenizer, out);
  auto assistant = ordered_json::array();
  for (auto [begin, end] : chat.assistant) {
    std::string_view text = chat.text.bytes;
    size_t first = code_points(text.substr(0, begin));
    assistant.push_back({first, first + code_points(text.substr(begin, end - begin))});
  }
  out["assistant"] = assistant;
  out["mask_by"] = kMasks[static_cast<size_t>(chat.mask)];
  std::cout << out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

chat::TemplateFile template_to_render(const RenderArguments& arguments, const CLI::App& command) {
  std::error_code ignored;
  chat::TemplateFile file = chat::find_template(arguments.template_path, arguments.which);
  if (!file.name.ends_with(".json"))
    refuse_options(command, {"--name"},
                   cat("on the chat template ", printable(file.name),
                       ": only a tokenizer_config.json can have several templates"));
  const bool by_name = !fs::exists(arguments.template_path, ignored);
  if (by_name && arguments.tokenizer.empty())
    file.special = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};  // to show something
  return file;
}

void render_template(Cli& cli, const RenderArguments& arguments, const CLI::App& command) {
  chat::TemplateFile file = template_to_render(arguments, command);
  chat::ChatTemplate chat_template(file.source, file.name);
  PluginHost plugins = plugin_host(cli);
  std::unique_ptr<Tokenizer> tokenizer;
  if (!arguments.tokenizer.empty())
    tokenizer = make_tokenizer(plugins, arguments.tokenizer, arguments.settings);
  if (tokenizer) finetune::add_special_names(*tokenizer, file.special);
  const std::tm day = finetune::parse_date(arguments.date, "--date");
  each_line(arguments.input, [&](std::string_view line, const std::string& place) {
    try {
      render_line(chat_template, file, read_line(line, file, tokenizer.get(), day),
                  tokenizer.get());
    } catch (const Error& e) {
      std::cout << std::flush;
      throw Error(e.error_class(), cat(printable(place), ": ", e.message()), e.hint());
    }
  });
}

}  // namespace

void add_data_render(CLI::App& data, Cli& cli) {
  auto* command = data.add_subcommand(
      "render", "convert conversations to the text and tokens that a model is trained on");
  auto a = std::make_shared<RenderArguments>();
  command
      ->add_option(
          "input", a->words,
          "JSON lines: messages, tools and add_generation_prompt, or records in another format of "
          "conversations (-, the default, is standard input); and settings of the tokenizer: "
          "key=value")
      ->type_name("FILE KEY=VALUE");
  command
      ->add_option("--template", a->template_path,
                   "a Jinja file, a tokenizer_config.json, a model's folder with either, or the "
                   "name of a template that\ncomes with mtrain: chatml, llama3 …")
      ->required()
      ->type_name("PATH");
  command
      ->add_option("--name", a->which, "name of the template if tokenizer_config.json has several")
      ->capture_default_str();
  command
      ->add_option("-t,--tokenizer", a->tokenizer,
                   "also write ids and their mask with this tokenizer")
      ->type_name("NAME");
  command->add_option("--date", a->date, "the day that templates see as today, as dataset.date")
      ->capture_default_str()
      ->type_name("DATE");
  command->footer(
      "Writes one JSON object per line: text, ids and mask (1: trained on), the ranges of the "
      "assistant's text in code points, and\nhow these were found.\n"
      "Examples:\n"
      "  mtrain data render talks.jsonl --template models/llama3\n"
      "  mtrain data render talks.jsonl --template chat.jinja -t hf "
      "path=models/llama3/tokenizer.json");
  command->callback([&cli, a, command] {
    a->settings = take_settings(a->words);
    check_tokenizer_settings(a->tokenizer, a->settings);
    MT_USER_CHECK(a->words.size() <= 1, ErrorClass::usage,
                  cat("only one input is accepted, got ", a->words.size()),
                  "concatenate them: cat A B | mtrain data render …");
    if (!a->words.empty()) a->input = a->words.front();
    render_template(cli, *a, *command);
  });
}

}  // namespace mtrain
