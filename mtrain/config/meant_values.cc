#include "mtrain/config/meant_values.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "mtrain/base/text.h"
#include "mtrain/config/scalar.h"
#include "mtrain/config/share.h"
#include "mtrain/config/yaml_write.h"

namespace mtrain {
namespace {

// A name may have several rows; the choices of the setting select one.
// clang-format off
constexpr ForeignChoice kForeignChoices[] = {
    // element types
    {"bfloat16", "bf16", "PyTorch"}, {"torchbfloat16", "bf16", "PyTorch"}, {"bfloat", "bf16", "PyTorch"},
    {"bf16mixed", "bf16", "Lightning"}, {"bf16true", "bf16", "Lightning"},
    {"float32", "fp32", "PyTorch"}, {"torchfloat32", "fp32", "PyTorch"}, {"float", "fp32", "PyTorch"}, {"torchfloat", "fp32", "PyTorch"},
    {"32", "fp32", "Lightning"}, {"32true", "fp32", "Lightning"}, {"single", "fp32", "NumPy"}, {"f32", "fp32", "JAX"},
    {"float16", "fp16", "PyTorch"}, {"torchfloat16", "fp16", "PyTorch"}, {"half", "fp16", "PyTorch"}, {"torchhalf", "fp16", "PyTorch"},
    {"16", "fp16", "Lightning"}, {"16mixed", "fp16", "Lightning"}, {"16true", "fp16", "Lightning"}, {"f16", "fp16", "JAX"},
    {"float64", "fp64", "PyTorch"}, {"torchfloat64", "fp64", "PyTorch"}, {"double", "fp64", "PyTorch"},
    {"float8", "fp8", "PyTorch"}, {"e4m3fn", "e4m3", "PyTorch"}, {"float8e4m3fn", "e4m3", "PyTorch"}, {"torchfloat8e4m3fn", "e4m3", "PyTorch"},
    {"fp8", "hybrid", "accelerate"},
    // optimizers
    {"adamwtorch", "adamw", "transformers"}, {"adamwtorchfused", "adamw", "transformers"}, {"adamwhf", "adamw", "transformers"},
    {"adamwapexfused", "adamw", "transformers"}, {"fusedadam", "adamw", "DeepSpeed"}, {"torchoptimadamw", "adamw", "torchtune"},
    {"adam", "adamw", "Megatron-LM, which decouples weight decay; with optimizer.weight_decay=0 adamw is Adam"},
    // schedules of the learning rate
    {"constantwithwarmup", "constant", "transformers"}, {"warmuplr", "constant", "DeepSpeed"}, {"constantlr", "constant", "PyTorch"},
    {"cosinewithwarmup", "cosine", "diffusers"}, {"cosinewithminlr", "cosine", "transformers"}, {"cosineannealing", "cosine", "NeMo"},
    {"cosineannealinglr", "cosine", "PyTorch"}, {"warmupcosinelr", "cosine", "DeepSpeed"}, {"cosinedecay", "cosine", "JAX"},
    {"linearwithwarmup", "linear", "transformers"}, {"warmupdecaylr", "linear", "DeepSpeed"}, {"linearlr", "linear", "PyTorch"},
    {"warmupstabledecay", "wsd", "transformers"}, {"inversesquareroot", "inverse_sqrt", "Megatron-LM"}, {"rsqrt", "inverse_sqrt", "JAX"},
    // activations, tokenizers, datasets
    {"gelupytorchtanh", "gelu_new", "transformers"}, {"gelutanh", "gelu_new", "PyTorch"}, {"gelufast", "gelu_new", "transformers"},
    {"gelupython", "gelu", "transformers"}, {"gelunone", "gelu", "PyTorch"}, {"relu2", "squared_relu", "transformers"},
    {"swish", "silu", "transformers"}, {"rmsnorm", "rms", "Megatron-LM"}, {"layernorm", "layer", "Megatron-LM"},
    {"huggingface", "hf", "Hugging Face"}, {"huggingfacetokenizer", "hf", "Megatron-LM"}, {"autotokenizer", "hf", "transformers"},
    {"gpt2bpetokenizer", "gpt2_bpe", "Megatron-LM"}, {"sentencepiecetokenizer", "sentencepiece", "Megatron-LM"},
    {"nulltokenizer", "null", "Megatron-LM"}, {"tiktokentokenizer", "tiktoken", "Megatron-LM"},
    {"inbatch", "offline", "trainers that pack each micro-batch separately; offline packs over the whole file"},
    {"synthetic", "mock", "other trainers"}, {"dummy", "mock", "other trainers"},
    // devices and communication
    {"gpu", "cuda", "Lightning"}, {"cuda0", "cuda", "PyTorch"}, {"gloo", "tcp", "PyTorch"},
    // pipelines, recomputation, switches that are choices here
    {"flex", "alltoall", "Megatron-LM"}, {"local", "full_iteration", "Megatron-LM"},
    {"onefoneb", "1f1b", "DeepSpeed"}, {"interleaved1f1b", "interleaved", "PyTorch"}, {"zbvzerobubble", "zb_v", "PyTorch"},
    {"true", "full", ""}, {"true", "hybrid", ""}, {"true", "offline", ""},
    {"true", "auto", ""}, {"true", "trace", ""}, {"true", "full_iteration", ""},
    {"false", "none", ""}, {"false", "never", ""}, {"false", "off", ""},
    {"latest", "auto", "DeepSpeed"}, {"default", "none", "transformers"},
};

/// A word of other programs for which several settings stand here; "list": a list where one value is
/// expected.
struct Combination {
  std::string_view path, word, help;
};
constexpr Combination kCombinations[] = {
    {"peft.type", "qlora", "write peft=qlora, the group, or peft.type=lora and peft.base=nf4: QLoRA is LoRA on weights of 4 bits"},
    {"peft.type", "qdora", "write peft.type=dora and peft.base=nf4: QDoRA is DoRA on weights of 4 bits"},
    {"dataset.path", "list", "give one path, or several to a dataset with the setting dataset.paths"},
    {"model.labels", "list", "model.labels is a number; their names are dataset.labels"},
    {"peft.type", "rslora", "write peft.type=lora and peft.rslora=true"},
};

/// A setting for a name, and the one for a file in its place.
struct NameOrFile {
  std::string_view name, file;
};
constexpr NameOrFile kNamesOrFiles[] = {{"dataset.chat_template", "dataset.template_path"}};

/// Characters of word processors and other alphabets, and those of YAML that they look like.
struct LookAlike {
  std::string_view found, meant;
};
constexpr LookAlike kLookAlikes[] = {
    {"\u2212", "-"}, {"\u2013", "-"}, {"\u2014", "-"}, {"\u201c", ""}, {"\u201d", ""}, {"\u201e", ""}, {"\u2018", ""}, {"\u2019", ""},
    {"\u00a0", " "}, {"\u202f", " "}, {"\u3000", " "}, {"\uff0c", ","}, {"\uff0e", "."}, {"\uff05", "%"},
    {"\uff10", "0"}, {"\uff11", "1"}, {"\uff12", "2"}, {"\uff13", "3"}, {"\uff14", "4"},
    {"\uff15", "5"}, {"\uff16", "6"}, {"\uff17", "7"}, {"\uff18", "8"}, {"\uff19", "9"},
};
// clang-format on

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

std::string letters_and_digits(std::string_view text) {
  std::string out;
  for (char c : text)
    if (is_digit(c) || is_letter(c))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

struct MeantValue {
  std::string text, why;
};

/// The text without extra characters around the value; `why` describes them.
std::string bare(std::string_view given, std::vector<std::string>& why) {
  std::string text(given);
  const size_t comment = std::min(text.find('#'), text.find("//"));
  if (comment != std::string::npos && comment > 0) {
    why.push_back(cat("'", visible(text.substr(comment), 30),
                      "' is a part of the value: in YAML a comment starts with ' #'; in a file of "
                      "overrides, a comment has its own line"));
    text.resize(comment);
  }
  if (text.ends_with('\n'))
    why.push_back(
        "the text after '|' or '>' ends with a line end: write it on the line of its key");
  text = trim(text);
  while (!text.empty() && std::string_view(",;").find(text.back()) != std::string_view::npos) {
    why.push_back(cat("without the '", text.back(), "' after it"));
    text = trim(std::string_view(text).substr(0, text.size() - 1));
  }
  if (text.starts_with('=')) {
    why.push_back("without the '=' before it");
    text = trim(std::string_view(text).substr(1));
  }
  for (const LookAlike& row : kLookAlikes) {
    size_t at = text.find(row.found);
    if (at == std::string::npos) continue;
    why.push_back(row.meant.empty()
                      ? cat("'", row.found, "' is not a quote")
                      : cat("'", row.found, "' is not the character '", row.meant, "'"));
    for (; at != std::string::npos; at = text.find(row.found, at + row.meant.size()))
      text.replace(at, row.found.size(), row.meant);
  }
  return std::string(trim(text));
}

/// Removes the separators of 1,000,000 and 1.000.000,5; nothing when the digits are not in groups
/// of three.
std::optional<std::string> ungrouped(std::string_view text, char separator) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  std::string fraction;
  const char point = separator == ',' ? '.' : ',';
  if (size_t at = text.rfind(point); at != std::string_view::npos) {
    if (!all_digits(text.substr(at + 1))) return std::nullopt;
    fraction = cat(".", text.substr(at + 1));
    text = text.substr(0, at);
  }
  const std::vector<std::string> groups = split(text, separator);
  if (groups.size() < 2 || groups[0].empty() || groups[0].size() > 3 || groups[0][0] == '0')
    return std::nullopt;
  for (size_t i = 0; i < groups.size(); ++i)
    if (!all_digits(groups[i]) || (i > 0 && groups[i].size() != 3)) return std::nullopt;
  return cat(negative ? "-" : "", join(groups, ""), fraction);
}

/// "1 k" and "1e -3" without their spaces.
std::string joined(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool inside = text[i] == ' ' && i > 0 && i + 1 < text.size();
    if (inside && (is_letter(text[i - 1]) || is_letter(text[i + 1]))) continue;
    out += text[i];
  }
  return out;
}

/// The numbers that a text may stand for.
void add_numbers(const std::string& text, std::vector<MeantValue>& out) {
  for (char separator : {',', '.', ' ', '\'', '_'})
    if (auto number = ungrouped(text, separator))
      out.push_back({*number, cat("a '", separator, "' does not group digits")});
  if (std::string without = joined(text); without != text && is_digit(text[0]))
    out.push_back({without, "without the space"});
  const size_t comma = text.find(',');
  if (comma != std::string::npos && comma == text.rfind(',') && comma > 0 &&
      is_digit(text[comma - 1])) {
    std::string point = text;
    point[comma] = '.';
    out.push_back({point, "the decimal point is a '.'"});
  }
  if (auto share = parse_share(text))
    out.push_back({shortest(*share), "this setting needs a number, not a percentage"});
}

std::vector<MeantValue> meant_values(std::string_view given) {
  std::vector<std::string> reasons;
  const std::string text = bare(given, reasons);
  std::vector<MeantValue> out;
  if (text.empty()) return out;
  if (text != given) out.push_back({text, ""});
  add_numbers(text, out);
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::replace(lower.begin(), lower.end(), '-', '_');
  if (lower != text) out.push_back({lower, ""});
  const std::string name = letters_and_digits(text);
  for (const ForeignChoice& row : kForeignChoices)
    if (row.name == name)
      out.push_back({std::string(row.ours),
                     row.whose.empty() ? "this setting is not a boolean"
                                       : cat(visible(text, 30), " is its name in ", row.whose)});
  for (MeantValue& value : out) {
    std::vector<std::string> all = reasons;
    if (!value.why.empty()) all.push_back(value.why);
    value.why = join(all, "; ");
  }
  return out;
}

}  // namespace

std::span<const ForeignChoice> foreign_choices() { return kForeignChoices; }

std::string meant_help(std::string_view text, const std::function<bool(const std::string&)>& fits) {
  constexpr size_t kOffered = 2, kLongest = 200;
  std::vector<std::string> offers, seen;
  if (text.size() > kLongest) return {};
  for (const MeantValue& value : meant_values(text)) {
    if (offers.size() == kOffered) break;
    if (std::find(seen.begin(), seen.end(), value.text) != seen.end() || !fits(value.text))
      continue;
    seen.push_back(value.text);
    offers.push_back(value.why.empty() ? visible(value.text, 60)
                                       : cat(visible(value.text, 60), " (", value.why, ")"));
  }
  return offers.empty() ? "" : cat("write ", join(offers, " or "));
}

std::string help_of_combination(std::string_view path, std::string_view word) {
  const std::string name = letters_and_digits(word);
  for (const Combination& row : kCombinations)
    if (row.path == path && row.word == name) return std::string(row.help);
  const bool is_file = word.find('/') != std::string_view::npos || word.ends_with(".jinja") ||
                       word.ends_with(".json");
  for (const NameOrFile& row : kNamesOrFiles)
    if (row.name == path && is_file)
      return cat("write ", row.file, "=", visible(word, 200), ": ", row.name,
                 " is the name of one that comes with mtrain");
  return {};
}

}  // namespace mtrain
