#include "mtrain/config/expression.h"

#include <doctest/doctest.h>

#include "mtrain/base/text.h"

using namespace mtrain;

namespace {

ExpressionScope scope() {
  ExpressionScope out;
  out.name = [](std::string_view name, size_t offset) -> ExpressionValue {
    if (name == "model.layers") return int64_t{32};
    if (name == "optimizer.lr") return 3e-4;
    if (name == "optimizer.type") return std::string("adamw");
    if (name == "absent") throw AbsentName();
    throw ExpressionError(cat("there is no ", name), offset);
  };
  out.interpolation = [](std::string_view text, size_t) -> ExpressionValue {
    return text == "${x}" ? ExpressionValue(int64_t{5}) : ExpressionValue(std::string(text));
  };
  return out;
}

}  // namespace

TEST_CASE("expressions have exact, typed values") {
  struct Row {
    const char* text;
    const char* value;
  };
  const Row rows[] = {
      {"1 + 2 * 3", "7"},
      {"(1 + 2) * 3", "9"},
      {"7 - 2 - 1", "4"},
      {"2 ** 3 ** 2", "512"},
      {"-2 ** 2", "-4"},
      {"(-2) ** 3", "-8"},
      {"2 ** -1", "0.5"},
      {"8 / 2", "4"},
      {"1 / 4", "0.25"},
      {"7 // 2", "3"},
      {"-7 // 2", "-4"},
      {"7 // -2", "-4"},
      {"-7 % 3", "2"},
      {"7 % -3", "-2"},
      {"7.5 % 2", "1.5"},
      {"1e3 * 2", "2000.0"},
      {"0x10 + 1", "17"},
      {"1 - -1", "2"},
      {"--3", "3"},
      {"4 * ${x}", "20"},
      {"${x} % 2 == 1", "true"},
      {"model.layers * 2", "64"},
      {"optimizer.lr * 2", "6e-04"},
      {"max(1, 2.5, 2)", "2.5"},
      {"min(3, 1)", "1"},
      {"abs(-3)", "3"},
      {"ceil(2.1)", "3"},
      {"floor(-2.1)", "-3"},
      {"round(2.5)", "2"},
      {"int(2.9)", "2"},
      {"int(-2.9)", "-2"},
      {"float(2)", "2.0"},
      {"sqrt(16)", "4.0"},
      {"str(3) + 'x'", "3x"},
      {"len('abc')", "3"},
      {"1 < 2 and 2 <= 2", "true"},
      {"not 1 == 2", "true"},
      {"not not true", "true"},
      {"true or false and false", "true"},
      {"'a' < 'b'", "true"},
      {"'a' == 1", "false"},
      {"null == null", "true"},
      {"1 == 1.0", "true"},
      {"3 if 1 > 2 else 4", "4"},
      {"1 if true else 2 if true else 3", "1"},
      {"optimizer.type == 'adamw'", "true"},
      {"9223372036854775807", "9223372036854775807"},
      {"4611686018427387904 * 2 - 1 if false else 0", nullptr},
      {"9007199254740993 == 9007199254740992", "false"},
      {"(1 + 2", nullptr},
      {"1 +", nullptr},
      {"", nullptr},
      {"1 2", nullptr},
      {"1 / 0", nullptr},
      {"1 % 0", nullptr},
      {"1 // 0.0", nullptr},
      {"9223372036854775807 + 1", nullptr},
      {"-9223372036854775807 - 2", nullptr},
      {"2 ** 63", nullptr},
      {"10 ** 400", nullptr},
      {"1e308 * 10", nullptr},
      {"(-1) ** 0.5", nullptr},
      {"sqrt(-1)", nullptr},
      {"'a' * 2", nullptr},
      {"'a' < 1", nullptr},
      {"1 and true", nullptr},
      {"not 3", nullptr},
      {"unknown.name", nullptr},
      {"foo(1)", nullptr},
      {"min()", nullptr},
      {"abs(1, 2)", nullptr},
      {"int(1e300)", nullptr},
      {"'open", nullptr},
      {"${x", nullptr},
      {"1..2", nullptr},
      {"017", nullptr},
      {"1_000", nullptr},
      {"1 = 1", nullptr},
      {"a;b", nullptr},
      {"2 if true", nullptr},
      {"system('ls')", nullptr},
      {"1 ** 9000000000000000000", "1"},
      {"(-1) ** 9000000000000000001", "-1"},
      {"-9223372036854775807 - 1", "-9223372036854775808"},
      {"(-9223372036854775807 - 1) // -1", nullptr},
      {"(-9223372036854775807 - 1) % -1", nullptr},
      {"true + 1", nullptr},
      {"[1, 2.5, 'a']", "[1, 2.5, a]"},
      {"[]", "[]"},
      {"2 in [1, 2]", "true"},
      {"not 'x' in ['a', 'b']", "true"},
      {"1.0 in [1]", "true"},
      {"sum([1, 2, 3]) + product([2, 3]) + product([])", "13"},
      {"max([1, 4, 2]) - min([3, 1])", "3"},
      {"len([1, 2])", "2"},
      {"first([3, 1]) % 2", "1"},
      {"first(['a'])", "a"},
      {"first([])", nullptr},
      {"first(3)", nullptr},
      {"index in [1]", nullptr},
      {"1 in 2", nullptr},
      {"[1, [2]]", nullptr},
      {"[1 2]", nullptr},
      {"[1,", nullptr},
      {"sum(1, 2)", nullptr},
      {"sum(['a'])", nullptr},
      {"max([])", nullptr},
      {"absent ?? 3", "3"},
      {"1 + (absent ?? 3) * 2", "7"},
      {"model.layers ?? 3", "32"},
      {"(absent ?? -1) < 0", "true"},
      {"unknown.name ?? 3", nullptr},
      {"3 ?? 4", nullptr},
  };
  for (const auto& row : rows) {
    CAPTURE(row.text);
    if (row.value) {
      std::string got;
      try {
        got = to_text(evaluate_expression(row.text, scope()));
      } catch (const ExpressionError& error) {
        got = cat("error: ", error.what());
      }
      CHECK(got == row.value);
    } else {
      CHECK_THROWS_AS(evaluate_expression(row.text, scope()), ExpressionError);
    }
  }
}

TEST_CASE("deep and long expressions end") {
  CHECK_THROWS_AS(evaluate_expression(std::string(100000, '('), scope()), ExpressionError);
  CHECK_THROWS_AS(evaluate_expression(std::string(100000, '-') + "1", scope()), ExpressionError);
  std::string nots;
  for (int i = 0; i < 10001; ++i) nots += "not ";
  CHECK(to_text(evaluate_expression(nots + "true", scope())) == "false");
  std::string powers = "1";
  for (int i = 0; i < 10000; ++i) powers += "**1";
  CHECK_THROWS_AS(evaluate_expression(powers, scope()), ExpressionError);
  // Chains are no deep trees.
  const auto chain = [](const std::string& first, const std::string& further) {
    std::string out = first;
    for (int i = 0; i < 300000; ++i) out += further;
    return to_text(evaluate_expression(out, scope()));
  };
  CHECK(chain("0", "+1") == "300000");
  CHECK(chain("7", "-1") == "-299993");
  CHECK(chain("3", "*1") == "3");
  CHECK(chain("false", " or true") == "true");
  CHECK(chain("true", " and true") == "true");
  CHECK_THROWS_AS(chain("absent", " ?? absent"), ExpressionError);
}

TEST_CASE("no text crashes the evaluator") {
  const char* words[] = {"1",    "2.5",
                         "x",    "(",
                         ")",    "+",
                         "-",    "*",
                         "/",    "%",
                         "**",   "//",
                         "==",   "<",
                         "and",  "or",
                         "not",  "if",
                         "else", "min",
                         ",",    "'a'",
                         "${x}", "true",
                         "null", "model.layers",
                         " ",    "9223372036854775807",
                         "."};
  uint32_t state = 7;
  auto next = [&] { return (state = state * 1664525u + 1013904223u) >> 8; };
  for (int round = 0; round < 100000; ++round) {
    std::string text;
    for (uint32_t n = next() % 10; n > 0; --n)
      text += std::string(words[next() % std::size(words)]) + (next() % 2 ? " " : "");
    try {
      (void)to_text(evaluate_expression(text, scope()));
    } catch (const ExpressionError& error) {
      CHECK(error.offset() <= text.size());
    }
  }
}
