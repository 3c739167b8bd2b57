// mtrain data tokenize: a filter from JSON lines with texts to JSON lines with their tokens.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "data_commands.h"
#include "mtrain/base/error.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

struct TokenizeArguments {
  std::string input = "-", key = "text", tokenizer;
  std::vector<std::string> settings;
  EncodeOptions options;
};

/// The number of code points before each byte of a text.
class CodePoints {
 public:
  explicit CodePoints(std::string_view text) {
    before_.reserve(text.size() + 1);
    uint32_t count = 0;
    for (char c : text) {
      const bool begins = (static_cast<unsigned char>(c) & 0xC0) != 0x80;
      before_.push_back(begins ? count : count - 1);
      count += begins;
    }
    before_.push_back(count);
  }
  uint32_t operator[](size_t byte) const { return before_[byte]; }

 private:
  std::vector<uint32_t> before_;
};

std::string read_text(std::string_view line, const std::string& key, const std::string& place) {
  auto fail = [&](const std::string& what) {
    throw Error(ErrorClass::data, cat(printable(place), ": ", what),
                cat("each line is an object like {\"", printable(key), "\": \"…\"}"));
  };
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(line);
  } catch (const nlohmann::json::parse_error& e) {
    fail(cat("is not valid JSON at byte ", e.byte));
  } catch (const nlohmann::json::exception& e) {  // a number beyond all types: 1e400
    fail(cat("cannot be read: ", printable(e.what())));
  }
  if (!json.is_object()) fail("is not an object");
  auto at = json.find(key);
  if (at == json.end() || !at->is_string())
    fail(cat("has no text in the field '", printable(key), "'"));
  return at->get<std::string>();
}

void write_tokens(const Tokenizer& tokenizer, const std::string& text,
                  const EncodeOptions& options) {
  std::vector<int32_t> ids;
  std::vector<TextSpan> spans;
  call_plugin(tokenizer, "encode()", [&] { tokenizer.encode_with(text, options, ids, &spans); });
  check_ids(tokenizer, ids);
  const CodePoints points(text);
  std::string out = "{\"ids\": [";
  for (size_t i = 0; i < ids.size(); ++i) out.append(i ? ", " : "").append(std::to_string(ids[i]));
  out += "], \"offsets\": [";
  for (size_t i = 0; i < spans.size(); ++i)
    out.append(i ? ", [" : "[")
        .append(std::to_string(points[spans[i].begin]))
        .append(", ")
        .append(std::to_string(points[spans[i].end]))
        .append("]");
  out += "], \"decoded\": ";
  out += nlohmann::json(tokenizer.decode(ids))
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  out += "}\n";
  std::cout << out;
}

void tokenize_lines(Cli& cli, const TokenizeArguments& arguments) {
  PluginHost plugins = plugin_host(cli);
  auto tokenizer = make_tokenizer(plugins, arguments.tokenizer, arguments.settings);
  each_line(arguments.input, [&](std::string_view line, const std::string& place) {
    write_tokens(*tokenizer, read_text(line, arguments.key, place), arguments.options);
  });
  std::cout.flush();
  MT_USER_CHECK(std::cout.good(), ErrorClass::io, "cannot write to standard output", "");
}

}  // namespace

void add_data_tokenize(CLI::App& data, Cli& cli) {
  auto* command = data.add_subcommand("tokenize", "convert texts to ids, offsets and decoded text");
  auto a = std::make_shared<TokenizeArguments>();
  command
      ->add_option("-t,--tokenizer", a->tokenizer, "a tokenizer plugin (see `mtrain plugins ls`)")
      ->required()
      ->type_name("NAME");
  command
      ->add_option("-i,--input", a->input, "JSON lines, also with .gz or .zst; -: standard input")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--json-key", a->key, "the field of each line that holds the text")
      ->capture_default_str();
  command->add_flag(
      "--parse-special", a->options.parse_special,
      "convert the text of special tokens to these tokens; default: treat it as ordinary text");
  command->add_flag("--add-special", a->options.add_special,
                    "add the special tokens that the tokenizer puts around a text");
  command->add_option("settings", a->settings, "settings of the tokenizer: key=value")
      ->type_name("KEY=VALUE");
  command->footer(
      "For each line {\"text\": …} it writes {\"ids\": […], \"offsets\": [[begin, end], …], "
      "\"decoded\": …}; "
      "offsets count\n"
      "code points.\n"
      "Examples:\n"
      "  echo '{\"text\": \"Hello\"}' | mtrain data tokenize -t hf path=models/gpt2\n"
      "  mtrain data tokenize -t byte -i texts.jsonl > tokens.jsonl");
  command->callback([&cli, a] { tokenize_lines(cli, *a); });
}

}  // namespace mtrain
