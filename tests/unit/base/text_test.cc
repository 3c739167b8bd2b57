#include "mtrain/base/text.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <limits>
#include <sstream>

#include "mtrain/base/counted.h"

using namespace mtrain;

TEST_CASE("nearest names a swapped or missing letter first") {
  std::vector<std::string> names = {"layers", "hidden_size", "heads", "kv_heads"};
  CHECK(nearest("laeyrs", names).front() == "layers");
  CHECK(nearest("hiden_size", names).front() == "hidden_size");
  CHECK(nearest("zzzzzz", names).empty());
  CHECK(nearest("text", {"bert", "gpt", "mock"}).empty());
  CHECK(nearest("bret", {"bert", "gpt"}) == std::vector<std::string>{"bert"});
}

TEST_CASE("a count has its noun in the right number") {
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(0, "rank") == "0 ranks");
  CHECK(counted(2, "micro-batch", "micro-batches") == "2 micro-batches");
}

TEST_CASE("edit distance counts a swap of neighbours once") {
  CHECK(edit_distance("ab", "ba") == 1);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("utf-8 faults are found at their offset") {
  size_t at = 99;
  CHECK(valid_utf8("na\xC3\xAFve \xE4\xBD\xA0"));
  CHECK_FALSE(valid_utf8("ab\xC0\xAF", &at));  // overlong '/'
  CHECK(at == 2);
  CHECK_FALSE(valid_utf8("\xED\xA0\x80"));      // surrogate
  CHECK_FALSE(valid_utf8("\xF4\x90\x80\x80"));  // beyond U+10FFFF
  CHECK_FALSE(valid_utf8("\xE4\xBD"));          // truncated
}

TEST_CASE("figures for people") {
  CHECK(human_bytes(1536) == "1.5 KiB");
  CHECK(human_count(1234567) == "1.23M");
  CHECK(human_count(999) == "999");
  CHECK(human_count(9.99e14) == "999T");
  CHECK(human_count(1e15) == "1.00e+15");
  CHECK(human_count(-1.234e63) == "-1.23e+63");
  CHECK(human_count(std::numeric_limits<double>::infinity()) == "inf");
  CHECK(human_count(std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(human_seconds(75) == "1m15s");
  CHECK(human_seconds(3700) == "1h01m");
  CHECK(shortest(0.1f) == "0.1");
  CHECK(shortest(1.0) == "1.0");
  CHECK(shortest(1e-4) == "1e-04");
  CHECK(printable("a\x1b[31m") == "a\\x1b[31m");
}

TEST_CASE("what a terminal would obey or hide is shown as an escape") {
  CHECK(printable("a\xE2\x80\xAE"
                  "b") == "a\\u202eb");  // right to left from here on
  CHECK(printable("a\xE2\x80\x8B"
                  "b\xEF\xBB\xBF") == "a\\u200bb\\ufeff");  // of no width
  CHECK(printable("\xC2\x9B"
                  "31m\xE2\x80\xA8") ==
        "\\u009b31m\\u2028");  // a control character of two bytes, a line end
  CHECK(printable("\xFF\xE2") == "\\xff\\xe2");
  CHECK(printable("\xC3\xA4\xE4\xBD\xA0") == "\xC3\xA4\xE4\xBD\xA0");
  CHECK(printable("\xC3\xA4\xC3\xA4\xC3\xA4", 5) == "\xC3\xA4\xC3\xA4...");  // whole characters
  CHECK(printable("tab\there\n") == "tab\\x09here\\x0a");
  CHECK(printable_lines("tab\there\n\x1b[2J\r\xE2\x80\xAE") == "tab\there\n\\x1b[2J\\x0d\\u202e");
}

TEST_CASE("names that are far longer than all candidates are near to none") {
  CHECK(nearest("layrs", {"layers", "heads"}) == std::vector<std::string>{"layers"});
  CHECK(nearest(std::string(40000, 'a'), {"layers", "heads", std::string(60, 'a')}).empty());
}

TEST_CASE("cat prints what a stream prints") {
  enum Colour { red = 3 };
  const std::string text = "text";
  CHECK(cat() == "");
  CHECK(cat("a", 'b', text, std::string_view("view"), std::string("temporary")) ==
        "abtextviewtemporary");
  CHECK(cat(-1, " ", 42u, " ", true, " ", red) == "-1 42 1 3");
  CHECK(cat(std::numeric_limits<int64_t>::min(), " ", std::numeric_limits<uint64_t>::max()) ==
        "-9223372036854775808 18446744073709551615");
  for (double value :
       {0.0, -0.0, 1.0, 0.1, 1234567.0, 1e-7, -1.5e300, 5e-324,
        std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    std::ostringstream out;
    out << value << ' ' << static_cast<float>(value);
    CHECK(cat(value, ' ', static_cast<float>(value)) == out.str());
  }
  CHECK(cat(std::filesystem::path("a b")) == "\"a b\"");  // by its operator<<
  CHECK(hex(0) == "0");
  CHECK(hex(0xDEADBEEFu) == "deadbeef");
}
