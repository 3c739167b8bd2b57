#include "mtrain/chat/ready_made.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain::chat {
namespace {

struct ReadyMade {
  std::string_view name;
  const char* source;
  bool ends_by_eos = false;  // answers end with the tokenizer's end of text
};

constexpr const char* kNeedsEos =
    "{%- if not eos_token -%}{{- raise_exception('this template ends answers with the end of text, "
    "and the tokenizer has none') -}}"
    "{%- endif -%}\n";

constexpr const char* kAlpaca =
    R"({%- set intro = namespace(text='Below is an instruction that describes a task. Write a response that appropriately completes the request.', given=false, asked=false) -%}
{%- for m in messages -%}
  {%- if m.role == 'system' -%}
    {%- set intro.text = intro.text + '\n\n' + m.content if intro.given else m.content -%}{%- set intro.given = true -%}
  {%- elif m.role == 'user' -%}
    {%- if intro.asked -%}{{- raise_exception('alpaca has an answer after each user turn, and two user turns follow one another') -}}{%- endif -%}
    {{- intro.text + '\n\n### Instruction:\n' + m.content + '\n\n### Response:\n' -}}
    {%- set intro.text = '' -%}{%- set intro.given = false -%}{%- set intro.asked = true -%}
  {%- elif m.role == 'assistant' -%}{{- m.content + eos_token -}}{%- set intro.asked = false -%}
  {%- else -%}{{- raise_exception('alpaca has no role ' + m.role) -}}
  {%- endif -%}
{%- endfor -%})";

constexpr const char* kChatMl = R"({%- for m in messages -%}
  {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%})";

constexpr const char* kDeepSeek = R"({%- set ns = namespace(system='') -%}
{%- for m in messages -%}
  {%- if m.role == 'system' -%}{%- set ns.system = ns.system + ('\n\n' if ns.system else '') + m.content -%}{%- endif -%}
{%- endfor -%}
{{- (bos_token or '') + ns.system -}}
{%- for m in messages -%}
  {%- if m.role == 'user' -%}{{- '<｜User｜>' + m.content -}}
  {%- elif m.role == 'assistant' -%}{{- '<｜Assistant｜>' + m.content + '<｜end▁of▁sentence｜>' -}}
  {%- elif m.role != 'system' -%}{{- raise_exception('deepseek has no role ' + m.role) -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<｜Assistant｜>' -}}{%- endif -%})";

constexpr const char* kGemma = R"({{- bos_token or '' -}}
{%- for m in messages -%}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{- raise_exception('gemma has no system role, and user and model take turns') -}}{%- endif -%}
  {{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + m.content | trim + '<end_of_turn>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%})";

constexpr const char* kLlama2 = R"({%- set ns = namespace(system='', given=false, asked=false) -%}
{%- for m in messages -%}
  {%- if m.role == 'system' -%}
    {%- set ns.system = ns.system + '\n\n' + m.content if ns.given else m.content -%}{%- set ns.given = true -%}
  {%- elif m.role == 'user' -%}
    {%- if ns.asked -%}{{- raise_exception('llama2 has an answer after each user turn, and two user turns follow one another') -}}{%- endif -%}
    {{- (bos_token or '') + '[INST] ' + ('<<SYS>>\n' + ns.system + '\n<</SYS>>\n\n' if ns.given else '') + m.content | trim + ' [/INST]' -}}
    {%- set ns.given = false -%}{%- set ns.asked = true -%}
  {%- elif m.role == 'assistant' -%}{{- ' ' + m.content | trim + ' ' + eos_token -}}{%- set ns.asked = false -%}
  {%- else -%}{{- raise_exception('llama2 has no role ' + m.role) -}}
  {%- endif -%}
{%- endfor -%})";

constexpr const char* kLlama3 = R"({{- bos_token or '' -}}
{%- for m in messages -%}
  {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}{%- endif -%})";

constexpr const char* kMistral = R"({%- set ns = namespace(system='', last=0, asked=false) -%}
{%- for m in messages -%}
  {%- if m.role == 'system' -%}{%- set ns.system = ns.system + m.content + '\n\n' -%}{%- endif -%}
  {%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{{- bos_token or '' -}}
{%- for m in messages -%}
  {%- if m.role == 'user' -%}
    {%- if ns.asked -%}{{- raise_exception('mistral has an answer after each user turn, and two user turns follow one another') -}}{%- endif -%}
    {{- '[INST]' + (ns.system if loop.index0 == ns.last else '') + m.content + '[/INST]' -}}{%- set ns.asked = true -%}
  {%- elif m.role == 'assistant' -%}{{- m.content + eos_token -}}{%- set ns.asked = false -%}
  {%- elif m.role != 'system' -%}{{- raise_exception('mistral has no role ' + m.role) -}}
  {%- endif -%}
{%- endfor -%})";

constexpr const char* kPhi = R"({%- for m in messages -%}
  {%- if m.role not in ['system', 'user', 'assistant'] -%}{{- raise_exception('phi has no role ' + m.role) -}}{%- endif -%}
  {%- if m.content or m.role != 'system' -%}{{- '<|' + m.role + '|>\n' + m.content + '<|end|>\n' -}}{%- endif -%}
{%- endfor -%}
{{- '<|assistant|>\n' if add_generation_prompt else eos_token -}})";

constexpr const char* kQwen = R"({%- if messages[0].role != 'system' -%}
  {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' -}}
{%- endif -%}
{%- for m in messages -%}
  {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%})";

constexpr const char* kVicuna =
    R"({%- set ns = namespace(system="A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and polite answers to the user's questions.", given=false, asked=false) -%}
{%- for m in messages -%}
  {%- if m.role == 'system' -%}
    {%- set ns.system = ns.system + '\n\n' + m.content if ns.given else m.content -%}{%- set ns.given = true -%}
  {%- elif m.role == 'user' -%}
    {%- if ns.asked -%}{{- raise_exception('vicuna has an answer after each user turn, and two user turns follow one another') -}}{%- endif -%}
    {{- ns.system + (' ' if ns.system else '') + 'USER: ' + m.content + ' ASSISTANT:' -}}
    {%- set ns.system = '' -%}{%- set ns.given = false -%}{%- set ns.asked = true -%}
  {%- elif m.role == 'assistant' -%}{{- ' ' + m.content + eos_token -}}{%- set ns.asked = false -%}
  {%- else -%}{{- raise_exception('vicuna has no role ' + m.role) -}}
  {%- endif -%}
{%- endfor -%})";

constexpr const char* kZephyr = R"({%- for m in messages -%}
  {%- if m.role not in ['system', 'user', 'assistant'] -%}{{- raise_exception('zephyr has no role ' + m.role) -}}{%- endif -%}
  {{- '<|' + m.role + '|>\n' + m.content + eos_token + '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\n' -}}{%- endif -%})";

constexpr ReadyMade kAll[] = {
    {"alpaca", kAlpaca, true},   {"chatml", kChatMl},       {"deepseek", kDeepSeek},
    {"gemma", kGemma},           {"llama2", kLlama2, true}, {"llama3", kLlama3},
    {"mistral", kMistral, true}, {"phi", kPhi, true},       {"qwen", kQwen},
    {"vicuna", kVicuna, true},   {"zephyr", kZephyr, true}};

}  // namespace

std::vector<std::string> ready_made_names() {
  std::vector<std::string> out;
  for (const auto& entry : kAll) out.emplace_back(entry.name);
  return out;
}

TemplateFile ready_made(const std::string& name) {
  auto found = std::find_if(std::begin(kAll), std::end(kAll),
                            [&](const ReadyMade& t) { return t.name == name; });
  MT_USER_CHECK(found != std::end(kAll), ErrorClass::config,
                cat("no chat template '", printable(name, 60), "' comes with mtrain"),
                cat("there are ", join(ready_made_names(), ", ")));
  TemplateFile out{.name = name,
                   .source = cat(found->ends_by_eos ? kNeedsEos : "", found->source),
                   .special = {},
                   .text_marks = {}};
  if (name == "zephyr")
    out.text_marks = {
        "<|system|>", "<|user|>",
        "<|assistant|>"};  // the model's tokenizer does not have these as special tokens
  return out;
}

TemplateFile find_template(const std::string& path_or_name, const std::string& which) {
  std::error_code ignored;
  if (std::filesystem::exists(path_or_name, ignored)) return read_template(path_or_name, which);
  const std::vector<std::string> names = ready_made_names();
  if (std::find(names.begin(), names.end(), path_or_name) != names.end())
    return ready_made(path_or_name);
  const std::vector<std::string> near = nearest(path_or_name, names, 1);
  throw Error(ErrorClass::config,
              cat("there is no chat template '", printable(path_or_name, 200),
                  "': no such file or folder, and mtrain has no template of this name"),
              near.empty() ? cat("mtrain has ", join(names, ", "))
                           : cat("did you mean ", near.front(), "?"));
}

}  // namespace mtrain::chat
