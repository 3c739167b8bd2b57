#include "mtrain/pipeline/alternating_tasks.h"

#include <doctest/doctest.h>

#include "contract/harness.h"

namespace mtrain {
namespace {

using contract::Fixture;

TEST_CASE("alternating tasks: a pause resumes the other task; only the pauses decide the order") {
  Fixture lab(1);
  AlternatingTasks tasks(lab.run());
  std::function<void()> pause;
  std::string seen;
  auto work = [&](const char* names) {
    return [&seen, &pause, names] {
      for (const char* c = names; *c; ++c) {
        seen += *c;
        if (c[1]) pause();
      }
    };
  };
  tasks.run(pause, work("123"), work("abc"));
  CHECK(seen == "a1b2c3");
  CHECK_FALSE(pause);
  seen.clear();
  tasks.run(pause, work("1"), work("abc"));
  CHECK(seen == "a1bc");
  seen.clear();
  tasks.run(pause, work("1234"), work("a"));
  CHECK(seen == "a1234");
}

TEST_CASE("alternating tasks: each task has its own state of the run") {
  Fixture lab(1);
  Run& run = lab.run();
  AlternatingTasks tasks(run);
  std::function<void()> pause;
  run.first_token = 7;
  tasks.run(
      pause,
      [&] {
        CHECK(run.first_token == 7);
        CHECK(run.grad_enabled);
        ++run.backwards;
        pause();
        CHECK(run.backwards == 1);
        --run.backwards;
      },
      [&] {
        run.first_token = 100;
        GradMode off(run, false);
        MemoryScope use(run.memory(), MemoryUse::optimizer);
        pause();
        CHECK(run.first_token == 100);
        CHECK_FALSE(run.grad_enabled);
        CHECK(run.backwards == 0);
        CHECK(run.memory().use() == MemoryUse::optimizer);
      });
  CHECK(run.first_token == 7);
  CHECK(run.memory().use() == MemoryUse::other);
}

TEST_CASE("alternating tasks: a failure of one task unwinds the other") {
  Fixture lab(1);
  Run& run = lab.run();
  AlternatingTasks tasks(run);
  std::function<void()> pause;
  int unwound = 0;
  struct Count {
    int& n;
    ~Count() { ++n; }
  };
  auto waits = [&] {
    Count count{unwound};
    pause();
    pause();
    pause();
  };
  auto fails = [&] {
    pause();
    throw Error(ErrorClass::config, "it broke");
  };
  CHECK_THROWS_WITH(tasks.run(pause, fails, waits), doctest::Contains("it broke"));
  CHECK(unwound == 1);
  CHECK_THROWS_WITH(tasks.run(pause, waits, fails), doctest::Contains("it broke"));
  CHECK(unwound == 2);
  CHECK_FALSE(pause);
  std::string after;
  tasks.run(
      pause, [&] { after += "x"; }, [&] { after += "y"; });
  CHECK(after == "yx");
}

}  // namespace
}  // namespace mtrain
