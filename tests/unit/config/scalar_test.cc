#include "mtrain/config/scalar.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

using namespace mtrain;

TEST_CASE("unquoted scalars have the kinds of YAML 1.2, without its octal traps") {
  struct Row {
    const char* text;
    NodeKind kind;
  };
  using enum NodeKind;
  const Row rows[] = {
      {"", null},
      {"~", null},
      {"null", null},
      {"Null", null},
      {"NULL", null},
      {"nUll", string},
      {"none", string},
      {"true", boolean},
      {"True", boolean},
      {"TRUE", boolean},
      {"false", boolean},
      {"tRue", string},
      {"yes", string},
      {"no", string},
      {"on", string},
      {"off", string},
      {"y", string},
      {"n", string},
      {"0", integer},
      {"-0", integer},
      {"+7", integer},
      {"42", integer},
      {"-17", integer},
      {"0x1F", integer},
      {"99999999999999999999", integer},
      {"017", string},
      {"00", string},
      {"0o17", string},
      {"0b11", string},
      {"1_000", string},
      {"1:30", string},
      {"-", string},
      {"+", string},
      {"0x", string},
      {"-0x1", string},
      {"0xg", string},
      {"1.5", number},
      {".5", number},
      {"5.", number},
      {"1e5", number},
      {"1E-4", number},
      {"-1.5e+3", number},
      {"1e400", number},
      {".inf", number},
      {"-.INF", number},
      {"+.Inf", number},
      {".nan", number},
      {".NaN", number},
      {"-.nan", string},
      {"inf", string},
      {"nan", string},
      {"Infinity", string},
      {".", string},
      {"e5", string},
      {"1e", string},
      {"1e+", string},
      {"1.2.3", string},
      {"1 2", string},
      {"2024-01-01", string},
      {"01.5", number},
      {"???", string},
      {"a", string},
      {"1a", string},
  };
  for (const auto& row : rows) CHECK_MESSAGE(resolve_scalar(row.text) == row.kind, row.text);
}

TEST_CASE("integers are read exactly or not at all") {
  struct Row {
    const char* text;
    std::optional<int64_t> value;
  };
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max(),
                    kMin = std::numeric_limits<int64_t>::min();
  const Row rows[] = {
      {"0", 0},
      {"-0", 0},
      {"+5", 5},
      {"0x10", 16},
      {"0x7fffffffffffffff", kMax},
      {"0x8000000000000000", {}},
      {"9223372036854775807", kMax},
      {"9223372036854775808", {}},
      {"-9223372036854775808", kMin},
      {"-9223372036854775809", {}},
      {"1e6", 1000000},
      {"1E+6", 1000000},
      {"2.5e3", 2500},
      {"2.5e0", {}},
      {"1.25e1", {}},
      {"-3e2", -300},
      {"1e18", 1000000000000000000},
      {"1e19", {}},
      {"9.223372036854775807e18", kMax},
      {"9.223372036854775808e18", {}},
      {"0e99", 0},
      {"0.0e5", 0},
      {"100e-2", 1},
      {"1e-2", {}},
      {"1e99999999999", {}},
      {"1.0", {}},
      {"3.", {}},
      {".5e1", 5},
      {"017", {}},
      {"1_000", {}},
      {"", {}},
      {"abc", {}},
      {"1e6 ", {}},
      {".inf", {}},
  };
  for (const auto& row : rows) CHECK_MESSAGE(parse_exact_integer(row.text) == row.value, row.text);
}

TEST_CASE("numbers are read as the nearest double or refused") {
  CHECK(parse_number("2e-5") == 2e-5);
  CHECK(parse_number("+.5") == 0.5);
  CHECK(parse_number("-5.") == -5.0);
  CHECK(parse_number("0x10") == 16.0);
  CHECK(parse_number("0.1") == 0.1);
  CHECK(parse_number(".inf") == HUGE_VAL);
  CHECK(parse_number("-.inf") == -HUGE_VAL);
  CHECK(std::isnan(*parse_number(".nan")));
  for (const char* text : {"1e400", "-1e400", "1e-400", "", "+", "1,5", "inf", "nan", "--1", "0x"})
    CHECK_MESSAGE(!parse_number(text), text);
}

TEST_CASE("traps are recognised with what to write instead") {
  CHECK(number_trap("1_000") == "1000");
  CHECK(number_trap("-1_000_000") == "-1000000");
  CHECK(number_trap("0o17") == "15");
  CHECK(number_trap("0b101") == "5");
  CHECK(number_trap("017") == "17 (or 15 if octal was meant)");
  CHECK(number_trap("08") == "8");
  CHECK(number_trap("1:30") == "90");
  CHECK(number_trap("1:30:00") == "5400");
  for (const char* text : {"", "17", "abc", "_1", "0o9", "a:b", "1.5", "-"})
    CHECK_MESSAGE(number_trap(text).empty(), text);
  CHECK(boolean_trap("Yes") == "true");
  CHECK(boolean_trap("OFF") == "false");
  CHECK(boolean_trap("maybe").empty());
}
