#include "mtrain/pipeline/alternating_tasks.h"

#include <doctest/doctest.h>

#include "contract/harness.h"

namespace mtrain {
namespace {

using contract::Fixture;

TEST_CASE("alternating tasks: a pause resumes the other task; only the pauses decide the order") {
  Fixture lab(1);
  AlternatingTasks tasks(lab.context());
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
  ExecutionContext& ctx = lab.context();
  AlternatingTasks tasks(ctx);
  std::function<void()> pause;
  ctx.first_token = 7;
  tasks.run(
      pause,
      [&] {
        CHECK(ctx.first_token == 7);
        CHECK(ctx.grad_enabled);
        ++ctx.backwards;
        pause();
        CHECK(ctx.backwards == 1);
        --ctx.backwards;
      },
      [&] {
        ctx.first_token = 100;
        GradMode off(ctx, false);
        MemoryScope use(ctx.memory(), MemoryUse::optimizer);
        pause();
        CHECK(ctx.first_token == 100);
        CHECK_FALSE(ctx.grad_enabled);
        CHECK(ctx.backwards == 0);
        CHECK(ctx.memory().use() == MemoryUse::optimizer);
      });
  CHECK(ctx.first_token == 7);
  CHECK(ctx.memory().use() == MemoryUse::other);
}

TEST_CASE("alternating tasks: a failure of one task unwinds the other") {
  Fixture lab(1);
  ExecutionContext& ctx = lab.context();
  AlternatingTasks tasks(ctx);
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
