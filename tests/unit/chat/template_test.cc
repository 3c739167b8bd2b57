// The language of chat templates, case by case. What is expected is what Jinja 3.1.2 gives with
// transformers' settings.
#include <doctest/doctest.h>

#include "mtrain/base/error.h"
#include "mtrain/chat/chat_template.h"

using namespace mtrain;
using namespace mtrain::chat;

namespace {

RenderedChat converse(const std::string& source, const std::string& messages = "[]",
                      const std::string& more = "{}") {
  ChatInput input;
  input.messages = messages_from_json(messages);
  Value names = from_json(more);
  for (const auto& [key, value] : names.as_map().entries)
    input.more.emplace_back(key.as_text().bytes, value);
  input.special = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  return ChatTemplate(source, "t").render(input);
}

std::string render(const std::string& source, const std::string& more = "{}") {
  return converse(source, "[]", more).text.bytes;
}

std::string render_failure(const std::string& source, const std::string& more = "{}") {
  try {
    return "gave: " + render(source, more);
  } catch (const Error& e) {
    CHECK(e.error_class() == ErrorClass::data);
    return e.message();
  }
}

}  // namespace

TEST_CASE("blanks around tags are those of trim_blocks and lstrip_blocks") {
  CHECK(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n") == "a\n  b\nc");
  CHECK(render("a {%- if true -%} b {%- endif -%} c") == "abc");
  CHECK(render("a\n  {%+ if true +%}\nb{% endif %}") == "a\n  \nb");
  CHECK(render("a {{- 1 -}} b") == "a1b");
  CHECK(render("a {# no #}\n b") == "a  b");
  CHECK(render("  {# no #}\nb") == "b");
  CHECK(render("x\r\ny\r") == "x\ny");
  CHECK(render("{% raw %}{{ a }}{% endraw %}") == "{{ a }}");
  CHECK(render("{{ '}}' }}{{ {'a': {'b': 1}} }}") == "}}{'a': {'b': 1}}");
}

TEST_CASE("expressions have Python's meaning and Jinja's precedences") {
  CHECK(
      render("{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }}") ==
      "7 3 -4 2 3.5 1024");
  CHECK(render("{{ 1 ~ 2 * 3 }}") == "16");
  CHECK(render("{{ '<' | safe + '<' ~ 1 }} {{ none | map('upper') | list }}") == "<&lt;1 []");
  CHECK(render("{{ 'a' ~ none ~ true ~ 1.0 }}") == "aNoneTrue1.0");
  CHECK(render("{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ not 1 == 2 }}") == "True False True");
  CHECK(render("{{ 'x' if false }}|{{ 'x' if false else 'y' }}") == "|y");
  CHECK(render("{{ 0 or 'a' and 'b' }}") == "b");
  CHECK(render("{{ 'b' in 'abc' }} {{ 4 not in [1, 2] }} {{ 'k' in {'k': 1} }}") ==
        "True True True");
  CHECK(render("{{ [1, 'a', none, 1.5, (1,), {}] }}") == "[1, 'a', None, 1.5, (1,), {}]");
  CHECK(render("{{ \"it's\" }} {{ [\"it's\"] }} {{ ['\"\\n'] }}") == "it's [\"it's\"] ['\"\\n']");
  CHECK(render("{{ 'abcdef'[1:4] }} {{ [1,2,3][::-1] }} {{ 'äöü'[-1] }} {{ [1,2,3][-2:] }}") ==
        "bcd [3, 2, 1] ü [2, 3]");
  CHECK(render("{{ 'a' * 3 }} {{ [0] * 2 }} {{ 1e3 }} {{ 1e22 }} {{ 0.00001 }}") ==
        "aaa [0, 0] 1000.0 1e+22 1e-05");
  CHECK(render("{{ '\\u00e9\\x41\\q' 'b' }}") == "éA\\qb");
  CHECK(render("{{ a.b }}|{{ a['b'] }}|{{ a.items is callable }}",
               R"({"a": {"b": 1, "items": 2}})") == "1|1|True");
  CHECK(render("{{ x.y is defined }} {{ x is defined }} {{ z is defined }}", R"({"x": {}})") ==
        "False True False");
  CHECK(render(
            "{{ 3 is divisibleby 3 }} {{ 3 is not none }} {{ 'a' is in 'abc' }} {{ 1 is eq 1 }}") ==
        "True True True True");
}

TEST_CASE("statements") {
  CHECK(render("{% for a, b in {'x': 1, 'y': 2}.items() %}{{ loop.index }}{{ a }}{{ b }}{{ ',' if "
               "not loop.last }}{% endfor %}") == "1x1,2y2");
  CHECK(render("{% for x in [] %}a{% else %}none{% endfor %}") == "none");
  for (const char* source : {"{% for in [1] %}a{% endfor %}", "{% for a, in [[1]] %}{% endfor %}",
                             "{% for () in [1] %}a{% endfor %}", "{% set = 3 %}"})
    CHECK_THROWS_AS(render(source), Error);
  CHECK(render("{% for x in [1,2,3,4] if x is even %}{{ loop.length }}{{ x }} {% endfor %}") ==
        "22 24 ");
  CHECK(render("{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% "
               "break %}{% endif %}{{ x }}{% endfor %}") == "13");
  CHECK(render("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}") == "1");
  CHECK(
      render(
          "{% set n = namespace(x=1) %}{% for i in [1] %}{% set n.x = 2 %}{% endfor %}{{ n.x }}") ==
      "2");
  CHECK(render("{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t | upper %}abc{% endset %}{{ t }}") ==
        "12ABC");
  CHECK(render("{% macro m(a, b='x') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(b=2, a=3) }}") ==
        "1x32");
  CHECK(render("{% macro m(x) %}[{{ caller(x) }}]{% endmacro %}{% call(y) m(1) %}{{ y }}!{% "
               "endcall %}") == "[1!]");
  CHECK(render("{% filter upper | replace('B', '-') %}abc{% endfilter %}") == "A-C");
  CHECK(render("{% if a %}1{% elif true %}2{% else %}3{% endif %}") == "2");
}

TEST_CASE("filters and methods") {
  CHECK(render("{{ {'b': [1, none], 'a': 'é\"\\n'} | tojson }}") ==
        R"({"b": [1, null], "a": "é\"\n"})");
  CHECK(render("{{ {'a': [1]} | tojson(indent=2) }}") == "{\n  \"a\": [\n    1\n  ]\n}");
  CHECK(render("{{ ' a ' | trim }}|{{ 'xax'.strip('x') }}|{{ ['a', 1] | join('-') }}|{{ 'é' | "
               "length }}") == "a|a|a-1|1");
  CHECK(render("{{ u | default('d') }}{{ '' | default('d') }}{{ '' | default('d', true) }}") ==
        "dd");
  CHECK(render("{{ [{'a': {'r': 1}}, {'a': {'r': 2}}] | selectattr('a.r', 'equalto', 2) | "
               "map(attribute='a') | list }}") == "[{'r': 2}]");
  CHECK(render("{{ ['b', 'A'] | sort | list }} {{ [3, 1] | max }} {{ [1, 2] | sum }} {{ ['a', 'A'] "
               "| unique | list }}") == "['A', 'b'] 3 3 ['a']");
  CHECK(render("{{ 'a\nb\n\nc' | indent(2) }}") == "a\n  b\n\n  c");
  CHECK(render("{{ 'a b  c'.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'Ab'.lower() }} {{ 'ab cd' | "
               "title }}") == "['a', 'b', 'c'] ['a', 'b,c'] ab Ab Cd");
  CHECK(render("{{ 'a,b,c'.split(',', true) }} {{ 'aaa'.replace('a', 'b', true) }}") ==
        "['a', 'b,c'] baa");
  // Python 3.11 and jinja2 3.1.
  CHECK(render("{{ 'stra\u00dfe' | upper }} {{ '\u0391\u03a3'.lower() }} {{ \"\u00e9a-\u00e9b "
               "it'S\" | title }}") == "STRASSE \u03b1\u03c2 \u00c9a-\u00c9b It's");
  CHECK(render("{{ \"it's \u01c6 \u4e2da\".title() }} {{ '\u00c9COLE' | capitalize }} {{ '\u0130' "
               "| lower | length }}") == "It'S \u01c5 \u4e2dA \u00c9cole 2");
  CHECK(render("{{ 'a-b'.replace('-', '+') }} {{ 'abc'.startswith('ab') }} {{ {'a': 1}.get('b', 2) "
               "}}") == "a+b True 2");
  CHECK(render("{{ '12' | int + 1 }} {{ 'x' | int(7) }} {{ 2.567 | round(1) }} {{ [1, 2] | first "
               "}}{{ [1, 2] | last }}") == "13 7 2.6 12");
}

TEST_CASE("faults carry Python's words and their place") {
  CHECK(render_failure("\n {{ 'a' + {} }}") ==
        "chat template t:2:9: TypeError: can only concatenate str (not \"dict\") to str");
  CHECK(render_failure("{{ f.x }}").find("UndefinedError: 'f' is undefined") != std::string::npos);
  CHECK(render_failure("{{ 'a' + x.d }}", R"({"x": {}})")
            .find("'dict object' has no attribute 'd'") != std::string::npos);
  CHECK(render_failure("{{ raise_exception('no') }}").find("TemplateError: no") !=
        std::string::npos);
  CHECK(render_failure("{{ [1] | map('string') | tojson }}")
            .find("generator is not JSON serializable") != std::string::npos);
  CHECK(render_failure("{{ [1].append(2) }}").find("SecurityError") != std::string::npos);
  CHECK(render_failure("{% include 'x' %}").find("t:1:4: 'include' is not a statement") !=
        std::string::npos);
  CHECK(render_failure("{% if x %}").find("no endif") != std::string::npos);
  CHECK(render_failure("{% endif %}").find("without its beginning") != std::string::npos);
  CHECK(render_failure("a {{ 'x }}").find("t:1:6: the string is not closed") != std::string::npos);
  CHECK(render_failure("{{ 1e999 }}")
            .find("t:1:4: the number 1e999 is outside of a double's range") != std::string::npos);
  CHECK(render_failure("{{ 1 | nosuch }}").find("No filter named 'nosuch'") != std::string::npos);
  CHECK(render_failure("{{ ''.__class__ }}") == "gave: ");
  CHECK(render_failure("{{ ''.__class__.__mro__ }}").find("has no attribute '__class__'") !=
        std::string::npos);
}

TEST_CASE("what would take for ever, or all memory, ends with an error") {
  for (const char* source : {
           "{% for i in range(1000000000000) %}{% endfor %}",
           "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{{ 'a' * 99999999999 }}",
           "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% "
           "endfor %}",
           "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor "
           "%}",
           "{% set n = namespace() %}{% set n.x = n %}",
           "{{ 9223372036854775807 + 1 }}",
           "{{ [1] * 9223372036854775807 }}",
           "{{ 2 ** 99 }}",
       }) {
    CAPTURE(source);
    CHECK(render_failure(source).find("chat template t:") == 0);
  }
  CHECK(render_failure("{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}")
            .find("nested too deeply (at most 98 brackets or 198 blocks)") != std::string::npos);
  const std::string most = std::string(98, '(') + "1" + std::string(98, ')');
  CHECK(render("{{ " + most + " }}") == "1");
  CHECK(render_failure("{{ (" + most + ") }}").find("nested too deeply") != std::string::npos);
  std::string blocks;
  for (int i = 0; i < 198; ++i) blocks += "{% if true %}";
  for (int i = 0; i < 198; ++i) blocks += "{% endif %}";
  CHECK(render(blocks).empty());
  CHECK(render_failure("{% if true %}" + blocks + "{% endif %}").find("nested too deeply") !=
        std::string::npos);
  CHECK(render_failure("{{ " + std::string(100000, '-') + "1 }}").find("nested too deeply") !=
        std::string::npos);
  std::string sum = "{{ 1";
  for (int i = 0; i < 100000; ++i) sum += "+1";
  CHECK(render_failure(sum + " }}").find("too long") != std::string::npos);
  CHECK_THROWS_AS(from_json(std::string(1000000, '[')), Error);
}

TEST_CASE("text knows where it came from, however it is split and joined") {
  RenderedChat out = converse(
      "A{{ messages[0].content.strip()[1:] ~ 'B' + (messages[1]['content'] | upper) }}{{ messages "
      "| length }}",
      R"([{"role": "user", "content": " xyz "}, {"role": "assistant", "content": "q"}])");
  CHECK(out.text.bytes == "AyzBQ2");
  CHECK(out.text.origins == std::vector<Origin>{0, 1, 1, 0, 2, 0});
  CHECK(converse("{{ messages | tojson }}", R"([{"content": "a"}])").text.origins.at(14) == 1);
}

TEST_CASE("special tokens come from the template alone") {
  RenderedChat out = converse("{{ bos_token }}<|u|>{{ messages[0].content }}</s>{{ eos_token }}",
                              R"([{"content": "a</s><|u|>"}])");
  std::vector<ChatPiece> pieces = split_special(out.text, {"<s>", "</s>", "<|u|>"});
  std::vector<int> kinds;
  for (const auto& piece : pieces) kinds.push_back(piece.special);
  CHECK(kinds == std::vector<int>{0, 2, -1, 1, 1});
  CHECK(out.text.bytes.substr(pieces[2].bytes.begin, pieces[2].bytes.end - pieces[2].bytes.begin) ==
        "a</s><|u|>");
}

TEST_CASE("what an assistant said is found with and without help of the template") {
  std::string talk =
      R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": " yes "}, {"role": "user", "content": "yes"},
          {"role": "assistant", "content": "no"}])";
  auto masked = [&](const std::string& source, RenderedChat::Mask kind) {
    ChatInput input;
    input.messages = messages_from_json(talk);
    input.special = {{"eos_token", "</s>"}};
    RenderedChat out = ChatTemplate(source, "t").render_masked(input);
    CHECK(out.mask == kind);
    std::string said;
    for (auto [begin, end] : out.assistant) said += out.text.bytes.substr(begin, end - begin) + "|";
    return said;
  };
  const std::string each = "{% for m in messages %}[{{ m.role }}]";
  CHECK(masked(each + "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>{% "
                      "endgeneration %}{% else %}"
                      "{{ m.content }}</s>{% endif %}{% endfor %}",
               RenderedChat::Mask::generation) == " yes </s>|no</s>|");
  CHECK(masked(each + "{{ m.content | trim }}</s>{% endfor %}{% if add_generation_prompt "
                      "%}[assistant]{% endif %}",
               RenderedChat::Mask::prefixes) == "yes</s>|no</s>|");
  // A prompt that is not how the turn begins, as models that think have it.
  CHECK(masked(each + "{{ m.content | trim }}</s>{% endfor %}{% if add_generation_prompt "
                      "%}[assistant]<think>{% endif %}",
               RenderedChat::Mask::origins) == "yes</s>|no</s>|");
  // What the template writes before the words is the assistant's, also after a header with the role
  // of the message. The last turn differs, so no turn is a prefix of the next.
  CHECK(masked(each + "{% if m.role == 'assistant' %}<call>{% endif %}{{ m.content | trim }}</s>"
                      "{% if loop.last %}!{% endif %}{% endfor %}{% if add_generation_prompt "
                      "%}[assistant]{% endif %}",
               RenderedChat::Mask::origins) == "<call>yes</s>|<call>no</s>|");
  // The end of an answer without words is the assistant's, too.
  talk =
      R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "go on"},
          {"role": "assistant", "content": "no"}])";
  CHECK(masked(each + "{{ m.content | trim }}</s>{% endfor %}{% if add_generation_prompt "
                      "%}[assistant]<think>{% endif %}",
               RenderedChat::Mask::origins) == "</s>|no</s>|");
}
