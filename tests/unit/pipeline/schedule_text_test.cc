#include "mtrain/pipeline/schedule_text.h"

#include <doctest/doctest.h>

#include <random>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/pipeline/lower.h"

namespace mtrain {
namespace {

TEST_CASE("schedules are read as they are written") {
  Schedule schedule = parse_schedule(
      "# two ranks\n0F0, 0SendX0\t0RecvG0 0B0 0W0 0R  # done\r\n\n1RecvX0,1F0,1B0,1SendG0,1W0,1R",
      "s");
  REQUIRE(schedule.size() == 2);
  CHECK(to_text(schedule[0]) == "0F0 0SendX0 0RecvG0 0B0 0W0 0R");
  CHECK(to_text(schedule[1]) == "1RecvX0 1F0 1B0 1SendG0 1W0 1R");
  CHECK(parse_schedule("32767F2147483647", "s")[0][0] ==
        Action{ActionKind::forward, 32767, 2147483647});
}

TEST_CASE("schedules: what is printed reads back the same") {
  for (std::string_view name : {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"}) {
    bool two = name == "interleaved" || name == "zb_v";
    Plan plan{two ? 8 : 4, 12, two ? 2 : 1};
    Schedule lowered = lower(make_schedule(name, plan), stage_map(name, plan));
    CHECK(parse_schedule(to_text(lowered), name) == lowered);
  }
}

TEST_CASE(
    "schedules: a text that is none is refused with its place, what was wanted and what is there") {
  struct Row {
    std::string_view text;
    const char* message;
  };
  const Row rows[] = {
      {"", "s.txt:1:1: wanted an action, got the end of the text"},
      {"# only words\n\n", "s.txt:3:1: wanted an action, got the end of the text"},
      {"F0", "s.txt:1:1: wanted a stage number from 0 to 32767, got 'F0'"},
      {"0F0\n1F0 x", "s.txt:2:5: wanted a stage number from 0 to 32767, got 'x'"},
      {"-1F0", "s.txt:1:1: wanted a stage number from 0 to 32767, got '-1F0'"},
      {"32768F0", "s.txt:1:1: wanted a stage number from 0 to 32767, got '32768F0'"},
      {"99999999999999999999F0",
       "s.txt:1:1: wanted a stage number from 0 to 32767, got '99999999999999999999F0'"},
      {"0F",
       "s.txt:1:3: wanted a micro-batch number from 0 to 2147483647, got the end of the text"},
      {"0F 1", "s.txt:1:3: wanted a micro-batch number from 0 to 2147483647, got nothing"},
      {"0F-1", "s.txt:1:3: wanted a micro-batch number from 0 to 2147483647, got '-1'"},
      {"0F2147483648",
       "s.txt:1:3: wanted a micro-batch number from 0 to 2147483647, got '2147483648'"},
      {"0F0 00",
       "s.txt:1:7: wanted F, B, W, R, RecvX, SendX, RecvG, SendG, Scatter, Gather or Release after "
       "the stage, got the end of the text"},
      {"0X0",
       "s.txt:1:2: wanted F, B, W, R, RecvX, SendX, RecvG, SendG, Scatter, Gather or Release after "
       "the stage, got 'X0'"},
      {"0f0",
       "s.txt:1:2: wanted F, B, W, R, RecvX, SendX, RecvG, SendG, Scatter, Gather or Release after "
       "the stage, got 'f0'"},
      {"0Recv0",
       "s.txt:1:2: wanted F, B, W, R, RecvX, SendX, RecvG, SendG, Scatter, Gather or Release after "
       "the stage, got 'Recv0'"},
      {"0Reduce",
       "s.txt:1:2: wanted F, B, W, R, RecvX, SendX, RecvG, SendG, Scatter, Gather or Release after "
       "the stage, got 'Reduce'"},
      {"0R0", "s.txt:1:3: wanted a blank, a comma or the end of the line after an action, got '0'"},
      {"0F0;1F0",
       "s.txt:1:4: wanted a blank, a comma or the end of the line after an action, got ';1F0'"},
      {"0F0.5",
       "s.txt:1:4: wanted a blank, a comma or the end of the line after an action, got '.5'"},
      {"0F0\n\xc3\xa9 0F1", "s.txt:2:1: wanted a stage number from 0 to 32767, got '\xc3\xa9'"},
      {"# \xc3\xa9\xc3\xa9\n0F0 \x1b[31m",
       "s.txt:2:5: wanted a stage number from 0 to 32767, got '\\x1b[31m'"},
      {std::string_view("0F0 \0", 5),
       "s.txt:1:5: wanted a stage number from 0 to 32767, got '\\x00'"},
  };
  for (const Row& row : rows) {
    CAPTURE(std::string(row.text));
    try {
      parse_schedule(row.text, "s.txt");
      FAIL("was read");
    } catch (const Error& error) {
      CHECK(error.message() == row.message);
      CHECK(error.error_class() == ErrorClass::config);
      CHECK(!error.hint().empty());
    }
  }
}

TEST_CASE(
    "schedules: any bytes are read or refused, and what was read prints the same when read again") {
  std::mt19937 random(3);
  const std::string parts[] = {"0", "1", "31", "F",  "B", "W", "R",    "RecvX", "SendG",
                               " ", ",", "\n", "\r", "#", "-", "\xff", "99999"};
  int read = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = i % 2 ? "0F0 0B0" : "";
    for (size_t n = random() % 6; n > 0; --n) text += parts[random() % std::size(parts)];
    try {
      Schedule schedule = parse_schedule(text, "s");
      ++read;
      REQUIRE(parse_schedule(to_text(schedule), "s") == schedule);
    } catch (const Error& error) {
      ++refused;
      REQUIRE(error.message().starts_with("s:"));
    }
  }
  CHECK(read > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("schedules are read from files") {
  fs::path path =
      fs::temp_directory_path() / cat("mtrain_schedule_", std::random_device{}(), ".txt");
  write_file_atomic(path, "0F0 0B0\n");
  CHECK(to_text(load_schedule(path)) == "0F0 0B0\n");
  write_file_atomic(path, "0F0 0B");
  try {
    load_schedule(path);
    FAIL("was read");
  } catch (const Error& error) {
    CHECK(error.message().starts_with(path.string() + ":1:7: wanted a micro-batch number"));
  }
  fs::remove(path);
  CHECK_THROWS_AS(load_schedule(path), Error);
}

}  // namespace
}  // namespace mtrain
