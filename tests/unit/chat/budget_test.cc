// The budget of a rendering: whatever a template does is charged by what it touches and makes, so
// it ends with an error before it takes much memory. Each template here asks for work or memory far
// beyond any machine's, or ends at once.
#include <doctest/doctest.h>

#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/chat/chat_template.h"

using namespace mtrain;
using namespace mtrain::chat;

namespace {

std::string result(const std::string& source) {
  try {
    return ChatTemplate(source, "t").render({}).text.bytes;
  } catch (const Error& e) {
    CHECK(e.error_class() == ErrorClass::data);
    return e.message();
  }
}

bool over_budget(const std::string& source) {
  return result(source).find("BudgetError: took more than 5000000 steps") != std::string::npos;
}

/// ns.a and ns.b: lists of two of the same below one another, as many ways to the bottom as no walk
/// can take.
std::string nested(const std::string& then) {
  return "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(100) %}{% set ns.a = [ns.a, "
         "ns.a] %}{% set ns.b = [ns.b, ns.b] %}"
         "{% endfor %}" +
         then;
}

/// A text of 4 MB, and what is done to it again and again.
std::string repeated(const std::string& act) {
  return "{% set x = ('a' * 2000) * 2000 %}{% set long = ('a' * 1000) * 1000 ~ 'b' %}{% for i in "
         "range(100000) %}" +
         act + "{% endfor %}";
}

}  // namespace

TEST_CASE("texts are charged when they are made, however they are made") {
  for (const char* act : {"{{ x.replace('', x) }}",
                          "{{ x.replace('a', x) }}",
                          "{{ x | replace('', x) }}",
                          "{{ x.join(x) }}",
                          "{{ [x, x] | join(x) }}",
                          "{{ x | indent }}",
                          "{{ x ~ x }}",
                          "{{ x + x }}",
                          "{{ x * 1000000000 }}",
                          "{{ [x] * 1000000000 }}",
                          "{{ x | upper }}",
                          "{{ x.title() }}",
                          "{{ x | tojson }}",
                          "{{ [x] | string }}",
                          "{{ x[1:] }}",
                          "{{ x | reverse }}",
                          "{{ x | list }}",
                          "{{ x.split('') if false else x.split('a') }}",
                          "{{ x.strip() ~ '' }}",
                          "{% set y = x ~ i %}",
                          "{% set block %}{{ x }}{% endset %}",
                          "{{ x | trim }}",
                          "{{ x | safe }}",
                          "{% filter upper %}{{ x }}{% endfilter %}"}) {
    INFO(std::string(act));
    CHECK(over_budget(repeated(act)));
  }
}

TEST_CASE("texts are charged when they are read") {
  for (const char* act :
       {"{{ x.find('b') }}", "{{ x.find(long) }}", "{{ x.count('ab') }}", "{{ 'b' in x }}",
        "{{ long in x }}", "{{ x.replace('b', '') | length }}", "{{ (x ~ 'a') == (x ~ 'b') }}",
        "{{ x < x }}", "{{ x.startswith(x) }}", "{{ x | length }}", "{{ x[3999999] }}",
        "{{ x.isdigit() }}", "{{ x is in [x ~ 'c'] }}", "{{ 'a'.strip(x) }}",
        "{{ x.splitlines() | length }}", "{{ [x, x] | sort | length }}",
        "{{ [x, x] | unique | list | length }}", "{{ x is upper }}", "{{ x | int }}"}) {
    INFO(std::string(act));
    CHECK(over_budget(repeated(act)));
  }
}

TEST_CASE("what holds the same value many times is charged each time that it is walked") {
  for (const char* then :
       {"{{ ns.a == ns.b }}", "{{ ns.a != ns.b }}", "{{ ns.a }}", "{{ ns.a | tojson }}",
        "{{ ns.a | string }}", "{{ ns.a in [ns.b] }}", "{{ [ns.a].index(ns.b) }}",
        "{{ [ns.a].count(ns.b) }}", "{{ ns.a < ns.b }}", "{{ [ns.a, ns.b] | unique | list }}",
        "{{ [ns.a, ns.b] | sort }}", "{{ 'x' ~ ns.a }}", "{{ {'k': ns.a} == {'k': ns.b} }}"}) {
    INFO(std::string(then));
    CHECK(over_budget(nested(then)));
  }
}

TEST_CASE("lists and maps are charged by their elements") {
  for (const char* source :
       {"{% set l = range(100000) %}{% for i in l %}{{ l | length }}{{ -1 in l }}{% endfor %}",
        "{% set ns = namespace(l=[0]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% "
        "endfor %}",
        "{% set ns = namespace(m={}) %}{% for i in range(100000) %}{% set ns.m = dict(ns.m, **{}) "
        "if false else dict(ns.m, k=i) %}"
        "{% set l = range(1000) | list %}{% endfor %}",
        "{% for i in range(1000000000) %}{% endfor %}",
        "{% set l = range(1000000) | map('string') | list %}{{ l | list | list | list | list }}"}) {
    INFO(std::string(source));
    std::string got = result(source);
    CHECK((got.find("BudgetError") != std::string::npos ||
           got.find("arguments by *") != std::string::npos));
  }
}

TEST_CASE("ordinary conversations are far from the budget") {
  CHECK(result("{% set x = 'a' * 100000 %}{% for i in range(50) %}{{ (x ~ i).replace('a', '') }}{% "
               "endfor %}")
            .size() == 90);
  CHECK(result("{% set ns = namespace(t='') %}{% for i in range(500) %}{% set ns.t = ns.t ~ 'some "
               "words of a turn\n' %}{% endfor %}{{ ns.t | length }}") == "10500");
}

TEST_CASE("find_in gives what std::string::find gives") {
  // Periodic texts, whose starts come back in the middle.
  std::string text;
  for (int i = 0; i < 400; ++i) text += i % 37 == 0 ? "b" : i % 11 == 0 ? "c" : "ab";
  for (size_t size : {0u, 1u, 2u, 20u, 32u, 33u, 40u, 64u, 100u, 300u, 900u})
    for (size_t at = 0; at < text.size(); at += 7) {
      std::string part = text.substr(at, size);
      for (size_t from : {size_t{0}, at, at + 1, text.size(), text.size() + 1})
        CHECK(find_in(text, part, from) == text.find(part, from));
      if (!part.empty()) part.back() = 'x';
      CHECK(find_in(text, part) == text.find(part));
    }
}
