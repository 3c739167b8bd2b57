#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/base/text.h"
#include "mtrain/train/observers/console.h"
#include "mtrain/train/observers/progress_line.h"
#include "roots.h"

using namespace mtrain;

namespace {

// A pipe whose far end collects what is written.
struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    REQUIRE(::pipe(ends) == 0);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    ::fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
  }
  ~Pipe() {
    if (ends[0] >= 0) ::close(ends[0]);
    if (ends[1] >= 0) ::close(ends[1]);
  }
  std::string text() const {
    std::string out(1 << 20, '\0');
    ssize_t got = ::read(ends[0], out.data(), out.size());
    out.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return out;
  }
};

struct Environment {
  std::string name, before;
  bool was_set;
  Environment(const char* variable, const char* value) : name(variable) {
    const char* old = std::getenv(variable);
    was_set = old != nullptr;
    if (old) before = old;
    if (value)
      ::setenv(variable, value, 1);
    else
      ::unsetenv(variable);
  }
  ~Environment() {
    if (was_set)
      ::setenv(name.c_str(), before.c_str(), 1);
    else
      ::unsetenv(name.c_str());
  }
};

// What a terminal of unlimited height would show: rows after \r, \n and "erase to the end of the
// row".
std::vector<std::string> screen(const std::string& text) {
  std::vector<std::string> rows(1);
  size_t column = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      column = 0;
    } else if (text[i] == '\n') {
      rows.emplace_back();
      column = 0;
    } else if (text[i] == '\x1b') {
      size_t end = text.find_first_not_of("0123456789;", i + 2);
      REQUIRE(end != std::string::npos);
      if (text[end] == 'K') rows.back().resize(column);
      i = end;
    } else {
      rows.back().resize(std::max(rows.back().size(), column + 1));
      rows.back()[column++] = text[i];
    }
  }
  return rows;
}

// Columns a row takes: code points, of those used here each is one wide; escape sequences none.
int width(const std::string& text) {
  int columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b')
      i = text.find('m', i);
    else if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80)
      ++columns;
  }
  return columns;
}

RunInfo run_info(int64_t total, int64_t first = 0) {
  return {.name = "small",
          .directory = "runs/small",
          .device = "cpu, 2 threads",
          .dtype = "bf16",
          .parameters = 3150000,
          .total_steps = total,
          .first_step = first,
          .global_batch_size = 16,
          .seq_length = 256};
}

StepMetrics step_metrics(int64_t step, double loss) {
  return {.step = step,
          .loss = loss,
          .grad_norm = 0.5,
          .lr = 3e-4,
          .tokens = step * 4096,
          .samples = step * 16,
          .step_seconds = 0.1,
          .tokens_per_second = 40960,
          .tflops = 0.2,
          .memory_bytes = 1 << 20};
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

/// The first line that begins so, each number as N and blanks as one.
std::string shape_of_line(const std::string& text, const std::string& start) {
  const size_t at = text.find(start);
  if (at == std::string::npos) return "no line";
  std::string out;
  for (char c : text.substr(at + 1, text.find('\n', at + 1) - at - 1)) {
    if (c >= '0' && c <= '9') c = 'N';
    if ((c != 'N' && c != ' ') || out.empty() || out.back() != c) out += c;
  }
  return out;
}

}  // namespace

TEST_CASE("plain lines: about a hundred in a run of any length") {
  CHECK(plain_interval(0) == 1);
  CHECK(plain_interval(1) == 1);
  CHECK(plain_interval(100) == 1);
  CHECK(plain_interval(101) == 2);
  CHECK(plain_interval(500) == 5);
  CHECK(plain_interval(2000) == 20);
  CHECK(plain_interval(2001) == 50);
  CHECK(plain_interval(INT64_MAX) == 100'000'000'000'000'000);
  for (int64_t total = 100; total < 2'000'000; total = total * 3 / 2) {
    int64_t lines = total / plain_interval(total);
    CHECK(lines >= 40);
    CHECK(lines <= 100);
  }
}

TEST_CASE("a run that stops between two lines reports the mean of the steps after the last line") {
  Pipe pipe;
  double now = 0;
  auto console = make_console({.fd = pipe.ends[1], .clock = [&] { return now; }});
  console->on_start(run_info(1000));
  for (int64_t step = 1; step <= 105; ++step) {
    now += 0.1;
    console->on_step(step_metrics(step, step % 2 ? 2.0 : 3.0));
  }
  console->on_end(105);
  const std::string text = pipe.text();
  CAPTURE(text);
  CHECK(text.ends_with("last loss 2.0000 (mean of the last 5 steps 2.4000)\n"));
}

TEST_CASE("generated texts are a block, without other control characters than line ends") {
  Pipe pipe;
  auto console = make_console({.fd = pipe.ends[1]});
  console->on_generations(
      {.step = 40,
       .texts = {{.prompt = "a\nb", .text = "c\x1b[2J\nd", .tokens = 1, .ended = true},
                 {.prompt = "d", .text = "", .tokens = 0, .ended = true},
                 {.prompt = "e", .text = std::string(999, 'e') + "é", .tokens = 3}},
       .seconds = 1.25});
  CHECK(pipe.text() ==
        "step 40: 3 generated texts  (1.25s)\n  > a\\x0ab\n    c\\x1b[2J\n    d  [1 token, end]\n"
        "  > d\n      [0 tokens, end]\n  > e\n    " +
            std::string(999, 'e') + "…  [3 tokens, length]\n");
}

TEST_CASE("without a terminal there are plain lines, no escape sequences, and an ETA") {
  Pipe pipe;
  double now = 0;
  auto console = make_console({.fd = pipe.ends[1], .clock = [&] { return now; }});
  console->on_start(run_info(1000));
  for (int64_t step = 1; step <= 1000; ++step) {
    now += step == 1 ? 5.0 : 0.1;  // a slow first step must not enter the ETA
    console->on_step(step_metrics(step, step % 2 ? 2.0 : 3.0));
  }
  console->on_end(1000);
  std::string text = pipe.text();
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find('\r') == std::string::npos);
  CHECK(text.find("small: 3.15M parameters, bf16 on cpu, 2 threads\n") == 0);
  CHECK(text.find("16 x 256 = 4,096 tokens per step") != std::string::npos);
  CHECK(text.find("runs/small") != std::string::npos);
  CHECK(count(text, "\nstep ") == 101);  // every tenth, and the first
  CHECK(
      text.find(
          "\nstep    1/1000  loss 2.0000  lr 3.0e-04  grad norm 0.5000  41.0k tokens/s  ETA ?\n") !=
      std::string::npos);
  CHECK(text.find("\nstep  500/1000  loss 2.5000  lr 3.0e-04  grad norm 0.5000  41.0k tokens/s  "
                  "ETA 50s\n") != std::string::npos);  // the mean of the ten losses
  CHECK(text.ends_with(
      "done: 1,000 steps in 1m45s, last loss 3.0000 (mean of the last 10 steps 2.5000)\n"));
  const std::string readme = read_file(testing::source_root() / "README.md");
  CHECK(shape_of_line(readme, "\nstep  300") == shape_of_line(text, "\nstep  500"));
  CHECK(shape_of_line(readme, "\ndone: ") == shape_of_line(text, "\ndone: "));
}

TEST_CASE("the head line says why a type was taken that the recipe leaves open") {
  Pipe pipe;
  RunInfo info = run_info(10);
  CHECK(dtype_note(info).empty());
  info.dtype_reason = "this CPU has bf16 arithmetic";
  make_console({.fd = pipe.ends[1]})->on_start(info);
  CHECK(pipe.text().find("small: 3.15M parameters, bf16 on cpu, 2 threads (auto: this CPU has bf16 "
                         "arithmetic)\n") == 0);
}

TEST_CASE("a resumed run says where it goes on, and its ETA counts only what is left") {
  Pipe pipe;
  double now = 0;
  auto console = make_console({.fd = pipe.ends[1], .clock = [&] { return now; }});
  console->on_start(run_info(1000, 900));
  for (int64_t step = 901; step <= 950; ++step) {
    now += 1;
    console->on_step(step_metrics(step, 2.0));
  }
  console->on_end(950);
  std::string text = pipe.text();
  CHECK(text.find("continuing after step 900") != std::string::npos);
  CHECK(
      text.find(
          "step  950/1000  loss 2.0000  lr 3.0e-04  grad norm 0.5000  41.0k tokens/s  ETA 50s\n") !=
      std::string::npos);
  CHECK(text.ends_with("stopped after step 950 of 1,000 in 50s, last loss 2.0000\n"));
}

TEST_CASE(
    "the live line is one row, redrawn at most ten times a second, and the rest scrolls above it") {
  Pipe pipe;
  double now = 0;
  Environment locale("LC_ALL", "C");
  auto console =
      make_console({.fd = pipe.ends[1], .mode = ConsoleMode::live, .columns = 100, .clock = [&] {
                      return now;
                    }});
  console->on_start(run_info(2000));
  for (int64_t step = 1; step <= 1000; ++step) {
    now += 0.01;
    console->on_step(step_metrics(step, 2.0));
    if (step == 500)
      console->on_eval(
          {.step = 500, .split = "valid", .loss = 1.646, .tokens = 131072, .seconds = 1.25});
    if (step == 501)
      console->on_eval(
          {.step = 501, .split = "valid", .loss = 145.25, .tokens = 131072, .seconds = 1.25});
    if (step == 502)
      console->on_eval(
          {.step = 502, .split = "valid", .loss = 800, .tokens = 131072, .seconds = 1.25});
    if (step == 600) console->on_event("checkpoint of step 600 written");
  }
  std::string text = pipe.text();
  CHECK(count(text, "\x1b[K") >= 90);
  CHECK(count(text, "\x1b[K") <= 110);  // 10 s at ten a second, and the four erasures
  auto rows = screen(text);
  REQUIRE(rows.size() == 9);  // four of the banner, four above, the live one
  CHECK(rows[4] == "step 500: valid loss 1.6460, perplexity 5.19  (131k tokens in 1.25s)");
  CHECK(rows[5] == "step 501: valid loss 145.2500, perplexity 1.21e+63  (131k tokens in 1.25s)");
  CHECK(rows[6] == "step 502: valid loss 800.0000, perplexity inf  (131k tokens in 1.25s)");
  CHECK(rows[7] == "checkpoint of step 600 written");
  CHECK(rows[8].find("loss 2.0000  lr 3.0e-04  41.0k tokens/s  ETA 10s") != std::string::npos);
  CHECK(rows[8].size() < 100);
  console->on_step(step_metrics(2000, 2.0));  // the last one is drawn whenever it comes
  CHECK(screen(pipe.text()).back().starts_with("100% "));
  console->on_end(2000);
  rows = screen(pipe.text());
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].starts_with("done: 2,000 steps"));
  CHECK(rows[1].empty());
}

TEST_CASE("NO_COLOR removes colour, not the line") {
  for (const char* no_color : {"", "1"}) {
    Environment environment("NO_COLOR", no_color);
    Pipe pipe;
    auto console = make_console({.fd = pipe.ends[1], .mode = ConsoleMode::live, .columns = 80});
    console->on_start(run_info(10));
    console->on_step(step_metrics(1, 2.0));
    std::string text = pipe.text();
    CHECK((count(text, "\x1b[36m") > 0) == (*no_color == '\0'));
    CHECK(text.find("loss") != std::string::npos);
  }
}

TEST_CASE("an unfinished live line is ended, so that an error message starts on a row of its own") {
  Pipe pipe;
  {
    auto console = make_console({.fd = pipe.ends[1], .mode = ConsoleMode::live, .columns = 80});
    console->on_start(run_info(10));
    console->on_step(step_metrics(1, 2.0));
  }
  CHECK(pipe.text().ends_with("\n"));
}

TEST_CASE("the live line fits into every width") {
  Progress progress{.step = 123456,
                    .total = 200000,
                    .loss = 1.2345,
                    .lr = 3e-4,
                    .tokens_per_second = 41234,
                    .seconds_left = 4000};
  for (bool blocks : {false, true}) {
    for (bool color : {false, true}) {
      int longest = 0;
      for (int columns = 0; columns < 200; ++columns) {
        std::string line = progress_line(progress, columns, {.color = color, .blocks = blocks});
        CHECK(width(line) <= columns);
        CHECK(width(line) >= std::min(columns, 4));
        longest = std::max(longest, width(line));
      }
      CHECK(longest > 80);
    }
  }
  CHECK(progress_line(progress, 60, {}) ==
        " 61%  123456/200000  loss 1.2345  lr 3.0e-04  ETA 1h06m");
  CHECK(progress_line(progress, 79, {})
            .find(" 61%  123456/200000  loss 1.2345  lr 3.0e-04  41.2k tokens/s  ETA 1h06m") == 0);
  CHECK(progress_line(progress, 82, {}).find(" 61% [####----]  123456/200000  loss") == 0);
}

TEST_CASE("the bar follows the share of steps done") {
  Progress p{.step = 0, .total = 1000, .seconds_left = 1};
  auto filled = [&](bool blocks) {
    return count(progress_line(p, 120, {.blocks = blocks}), blocks ? "█" : "#");
  };
  CHECK(filled(false) == 0);
  CHECK(filled(true) == 0);
  p.step = 500;
  CHECK(filled(false) == 15);
  CHECK(filled(true) == 15);
  p.step = 1000;
  CHECK(filled(false) == 30);
  CHECK(filled(true) == 30);
  p.step = 999;
  CHECK(progress_line(p, 120, {}).starts_with(" 99%"));  // 100 % only when done
  p.total = 0;
  CHECK(progress_line(p, 120, {}).starts_with("  0%"));
}

TEST_CASE("a loss that is not finite is shown and does not spoil the average") {
  Pipe pipe;
  auto console = make_console({.fd = pipe.ends[1], .mode = ConsoleMode::plain, .interval = 1});
  console->on_start(run_info(10));
  console->on_step(step_metrics(1, 2.0));
  StepMetrics bad = step_metrics(2, std::numeric_limits<double>::quiet_NaN());
  bad.skipped = true;
  console->on_step(bad);
  console->on_step(step_metrics(3, 2.0));
  std::string text = pipe.text();
  CHECK(text.find("skipped") == std::string::npos);  // the trainer reports it, with the reason
  CHECK(text.find("step  2/10  loss nan") != std::string::npos);
  CHECK(text.find("step  3/10  loss 2.0000") != std::string::npos);
}

TEST_CASE("control characters of an event do not reach the terminal") {
  Pipe pipe;
  auto console = make_console({.fd = pipe.ends[1], .mode = ConsoleMode::plain});
  console->on_event("a\x1b]0;title\x07\nb");
  CHECK(pipe.text() == "a\\x1b]0;title\\x07\\x0ab\n");
}

TEST_CASE("a pipe without a reader neither kills nor throws, and leaves no SIGPIPE behind") {
  struct sigaction before {};
  struct sigaction fatal {};
  fatal.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &fatal, &before);
  Pipe pipe;
  ::close(pipe.ends[0]);
  pipe.ends[0] = -1;
  auto console = make_console({.fd = pipe.ends[1]});
  console->on_start(run_info(10));
  for (int64_t step = 1; step <= 10; ++step) console->on_step(step_metrics(step, 2.0));
  console->on_end(10);
  sigset_t pending;
  ::sigpending(&pending);
  CHECK(::sigismember(&pending, SIGPIPE) == 0);
  ::sigaction(SIGPIPE, &before, nullptr);
}

TEST_CASE("a closed descriptor, a full disk and a reader that stands still do not stop anything") {
  auto closed = make_console({.fd = 987});
  closed->on_start(run_info(10));
  closed->on_step(step_metrics(1, 2.0));

  int full = ::open("/dev/full", O_WRONLY);
  REQUIRE(full >= 0);
  auto on_full = make_console({.fd = full});
  on_full->on_start(run_info(10));
  on_full->on_step(step_metrics(1, 2.0));
  ::close(full);

  Pipe pipe;
  ::fcntl(pipe.ends[1], F_SETPIPE_SZ, 4096);
  ::fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK);
  auto stuck = make_console({.fd = pipe.ends[1]});
  stuck->on_event(std::string(3000, 'x'));
  stuck->on_event(std::string(3000, 'y'));  // is kept until somebody reads
  CHECK(pipe.text().size() >= 3001);
}

TEST_CASE("a file that gets the number of a closed standard output is never written to") {
  Pipe pipe;
  int victim = ::dup(pipe.ends[1]);
  auto console = make_console({.fd = victim});
  ::close(victim);
  Pipe other;
  REQUIRE(::dup2(other.ends[1], victim) == victim);
  console->on_event("hello");
  ::close(victim);
  CHECK(other.text().empty());
  CHECK(pipe.text() == "hello\n");
}
