// Who is found dead, stopped, stuck or slow, and when: the judge gets the reports of ranks and the
// time it is.
#include "mtrain/comm/job_judge.h"

#include <doctest/doctest.h>

#include "has.h"

namespace mtrain {
namespace {

using namespace std::chrono_literals;
using testing::has;

/// Ranks that say what a test makes them say, every 100 ms.
struct Job {
  explicit Job(int n, bool heartbeats = true, WatchLimits limits = {5s, 10min})
      : judge(n, limits, heartbeats, now),
        says(static_cast<size_t>(n)),
        mute(static_cast<size_t>(n), false) {
    for (int r = 0; r < n; ++r) judge.set_host(r, r < 2 ? "a" : "b");
    for (auto& s : says) s.slow_step = 0.1;
  }
  RankStatus& rank(int r) { return says[static_cast<size_t>(r)]; }
  void compute(int r, int64_t step) {
    rank(r).step = step;
    rank(r).waits = {};
    ++rank(r).progress;
  }
  void wait(int r, int64_t step) {
    compute(r, step);
    rank(r).waits.number = 7;
    rank(r).waits.kind = CommKind::barrier;
    rank(r).waits.group[0] = 'g';
  }
  /// Seconds until something is found, -1 when nothing is within `limit`.
  double until_found(std::chrono::milliseconds limit) {
    auto begin = now;
    while (now - begin < limit) {
      now += 100ms;
      for (size_t r = 0; r < says.size(); ++r)
        if (!mute[r]) judge.heard(static_cast<int>(r), says[r], now);
      if (auto f = judge.look(now)) {
        found = *f;
        return std::chrono::duration<double>(now - begin).count();
      }
    }
    return -1;
  }
  JobJudge::Time now = JobJudge::Time() + 1000s;
  JobJudge judge;
  std::vector<RankStatus> says;
  std::vector<bool> mute;
  WatchFinding found;
};

TEST_CASE("judge: a lost rank is dead, named with its machine and what all were doing") {
  Job job(4);
  for (int r = 0; r < 4; ++r) job.wait(r, 17);
  job.compute(2, 16);
  REQUIRE(job.until_found(1s) == -1);
  job.judge.lost(2, job.now);
  job.mute[2] = true;
  double took = job.until_found(5s);
  CHECK(took >= 0.15);
  CHECK(took <= 0.3);
  CHECK(job.found.ranks == std::vector<int>{2});
  CHECK(has(job.found.message, "rank 2 on b has died"));
  CHECK(has(job.found.message, "ranks 0-1 on a: 17 steps done, in barrier (#7 of group 'g')"));
  CHECK(has(job.found.message,
            "rank 2 on b, when last heard of: 16 steps done, computing before any call"));
  CHECK(has(job.found.message, "rank 3 on b: 17 steps done, in barrier"));
}

TEST_CASE("judge: a rank that has said farewell is not dead") {
  Job job(2);
  job.rank(1).ended = true;
  REQUIRE(job.until_found(300ms) == -1);
  job.judge.lost(1, job.now);
  job.mute[1] = true;
  CHECK(job.until_found(20s) == -1);
}

TEST_CASE(
    "judge: a process that gives no sign of life is found in time for the job to end within the "
    "limit") {
  for (bool saving : {false, true}) {
    Job job(3);
    for (int r = 0; r < 3; ++r) job.wait(r, 3);
    if (saving) std::snprintf(job.rank(1).doing, sizeof(job.rank(1).doing), "saving");
    REQUIRE(job.until_found(1s) == -1);
    job.mute[1] = true;
    double took = job.until_found(20s);
    CHECK(took > 2.5);
    CHECK(took < 4);
    CHECK(job.found.ranks == std::vector<int>{1});
    CHECK(has(job.found.message, "rank 1 on a has sent no heartbeat for 3."));
  }
}

TEST_CASE("judge: when the judge itself was stopped, nobody else is to blame") {
  Job job(3);
  REQUIRE(job.until_found(1s) == -1);
  job.now += 60s;  // a suspended machine
  CHECK_FALSE(job.judge.look(job.now));
  CHECK(job.until_found(10s) == -1);
}

TEST_CASE("judge: who computes on while others wait is stuck after 5 s or three slow steps") {
  for (bool processes : {true, false})
    for (double slow_step : {0.1, 4.0}) {
      Job job(3, processes);
      for (auto& s : job.says) s.slow_step = slow_step;
      for (int r = 0; r < 3; ++r) job.wait(r, 30);
      job.compute(1, 30);
      double limit = std::max(5.0, 3 * slow_step), took = job.until_found(60s);
      CHECK(took > limit - 1.5);
      CHECK(took < limit - 0.5);
      CHECK(job.found.ranks == std::vector<int>{1});
      CHECK(has(job.found.message, "rank 1 on a has not reached its next call for"));
    }
}

TEST_CASE(
    "judge: nobody is stuck who announces something long, whose steps are not known, or whom "
    "nobody waits "
    "for") {
  Job saving(3, true, {5s, 1min});
  for (int r = 0; r < 3; ++r) saving.wait(r, 30);
  saving.compute(0, 30);
  std::snprintf(saving.rank(0).doing, sizeof(saving.rank(0).doing), "saving a checkpoint");
  CHECK(saving.until_found(58s) == -1);
  CHECK(saving.until_found(5s) > 0);  // the time limit holds all the same
  CHECK(has(saving.found.message, "30 steps done, saving a checkpoint, computing"));

  Job early(2, true, {5s, 1min});
  early.wait(0, 2);
  early.compute(1, 2);
  early.rank(0).slow_step = early.rank(1).slow_step = 0;
  CHECK(early.until_found(58s) == -1);
  CHECK(early.until_found(5s) > 0);

  Job all_compute(2);
  all_compute.compute(0, 40);
  all_compute.compute(1, 40);
  CHECK(all_compute.until_found(5min) == -1);
}

TEST_CASE("judge: ranks that wait for each other, and for one that has ended") {
  Job cycle(3);
  for (int r = 0; r < 3; ++r) cycle.wait(r, 30);
  CHECK(cycle.until_found(60s) > 3.5);
  CHECK(cycle.found.ranks.empty());
  CHECK(has(cycle.found.message, "all ranks have waited for each other"));

  Job moving(2);  // a transfer that takes long is not a deadlock
  moving.wait(0, 30);
  moving.wait(1, 30);
  for (int i = 0; i < 30; ++i) {
    ++moving.rank(1).progress;
    CHECK(moving.until_found(1s) == -1);
  }

  Job over(2);
  over.wait(0, 30);
  over.compute(1, 30);
  over.rank(1).ended = true;
  CHECK(over.until_found(60s) > 3.5);
  CHECK(has(over.found.message, "rank 1 on a has ended, and others wait for it"));
}

TEST_CASE(
    "judge: a rank that is twice as slow is reported once within 20 steps; one slow step is not "
    "reported") {
  RankActivity activity[3];
  Job job(3);
  auto steps = [&](int count, const std::vector<double>& seconds) {
    static int64_t done = 0;
    std::string reported;
    for (int i = 0; i < count; ++i) {
      ++done;
      for (size_t r = 0; r < 3; ++r) {
        activity[r].end_step(done, seconds[r]);
        job.judge.heard(static_cast<int>(r), activity[r].status(), job.now += 10ms);
      }
      if (auto slow = job.judge.slow_rank()) reported += *slow + "\n";
    }
    return reported;
  };
  CHECK(steps(40, {0.1, 0.11, 0.09}).empty());
  CHECK(steps(1, {0.1, 0.1, 0.15}).empty());
  CHECK(steps(20, {0.1, 0.1, 0.1}).empty());
  std::string reported = steps(20, {0.1, 0.1, 0.2});
  CHECK(has(reported, "rank 2 on b is slow"));
  CHECK(has(reported, "times as long as that of the others"));
  CHECK(steps(100, {0.1, 0.1, 0.2}).empty());
  CHECK(steps(40, {0.1, 0.1, 0.1}).empty());
  CHECK(has(steps(20, {0.1, 0.1, 0.2}), "rank 2 on b is slow"));
  CHECK(steps(40, {0.001, 0.001, 0.002}).empty());  // a millisecond is no news
}

TEST_CASE("activity: what a rank reports of itself") {
  RankActivity activity;
  CHECK(activity.status().step == -1);
  CHECK(activity.status().slow_step == 0);
  CommCall call{.kind = CommKind::all_reduce, .dtype = DType::f32, .count = 8};
  activity.begin_wait(call, 3, "a group with a name that is longer than what is kept of it");
  RankStatus s = activity.status();
  CHECK(has(describe(s.waits), "all_reduce sum of 8 fp32 (#3 of group 'a group with a name"));
  uint64_t before = s.progress;
  activity.end_wait();
  activity.finished(call, 3, "tp");
  s = activity.status();
  CHECK(s.progress > before);
  CHECK(brief(s.waits) == "nothing");
  CHECK(brief(s.last) == "all_reduce #3 of group 'tp'");
  for (int i = 1; i <= 300; ++i) activity.end_step(i, i == 250 ? 9.0 : 1.0);
  CHECK(activity.status().slow_step == 1.0);  // one of 256 is above the 99th percentile
  for (int i = 301; i <= 304; ++i) activity.end_step(i, 9.0);
  CHECK(activity.status().slow_step == 9.0);
  {
    LongOperation saving(&activity, "saving");
    CHECK(std::string(activity.status().doing) == "saving");
  }
  CHECK(activity.status().doing[0] == '\0');
}

}  // namespace
}  // namespace mtrain
