#include "mtrain/optim/lr_schedule.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

namespace mtrain {
namespace {

constexpr double kLr = 3e-4;

ScheduleConfig of(const char* type, int64_t warmup = 10, double min_lr = 3e-5) {
  ScheduleConfig c;
  c.type = type;
  c.warmup_steps = warmup;
  c.min_lr = min_lr;
  return c;
}

bool near(double got, double want) {
  return std::fabs(got - want) <= 1e-12 * std::max(1.0, std::fabs(want));
}

const char* const kTypes[] = {"constant", "linear", "cosine", "wsd", "inverse_sqrt"};

TEST_CASE("schedule: every type warms up linearly and reaches the peak with the last warmup step") {
  for (const char* type : kTypes) {
    INFO(std::string(type));
    for (int64_t step = 0; step < 10; ++step)
      CHECK(
          near(learning_rate(of(type), kLr, step, 100), kLr * static_cast<double>(step + 1) / 10));
    CHECK(near(learning_rate(of(type), kLr, 10, 100), kLr));
    CHECK(learning_rate(of(type, 0), kLr, 0, 100) == doctest::Approx(kLr));
  }
}

TEST_CASE("schedule: no type leaves [min_lr, lr] or rises after warmup") {
  for (const char* type : kTypes)
    for (int64_t total : {11, 12, 100, 1000}) {
      double before = kLr;
      for (int64_t step = 10; step < total + 200; ++step) {
        double lr = learning_rate(of(type), kLr, step, total);
        CHECK(lr <= before * (1 + 1e-12));
        CHECK(lr >= 3e-5 * (1 - 1e-12));
        before = lr;
      }
    }
}

TEST_CASE("schedule: warmup that does not fit before the end of the decay ends there") {
  for (const char* type : {"linear", "cosine", "wsd"})
    for (int64_t step = 0; step < 50; ++step)
      CHECK(near(learning_rate(of(type, 60), kLr, step, 50),
                 kLr * static_cast<double>(step + 1) / 50));
  for (const char* type : {"constant", "inverse_sqrt"})
    CHECK(near(learning_rate(of(type, 60), kLr, 49, 50), kLr * 50 / 60));
  ScheduleConfig early = of("linear", 60);
  early.decay_steps = 20;
  CHECK(near(learning_rate(early, kLr, 19, 100), kLr));
  for (int64_t step : {20, 21, 60}) CHECK(near(learning_rate(early, kLr, step, 100), 3e-5));
}

TEST_CASE("schedule: constant") {
  for (int64_t step : {10, 50, 99, 5000})
    CHECK(learning_rate(of("constant"), kLr, step, 100) == kLr);
}

TEST_CASE("schedule: linear falls straight to min_lr at the end, or at decay_steps, and stays") {
  ScheduleConfig c = of("linear");
  for (int64_t step = 10; step <= 100; ++step)
    CHECK(near(learning_rate(c, kLr, step, 100),
               kLr + (3e-5 - kLr) * static_cast<double>(step - 10) / 90));
  CHECK(near(learning_rate(c, kLr, 500, 100), 3e-5));
  c.decay_steps = 60;
  CHECK(near(learning_rate(c, kLr, 35, 100), (kLr + 3e-5) / 2));
  CHECK(near(learning_rate(c, kLr, 60, 100), 3e-5));
  CHECK(near(learning_rate(c, kLr, 99, 100), 3e-5));
}

TEST_CASE("schedule: cosine is half a cosine") {
  ScheduleConfig c = of("cosine");
  for (int64_t step = 10; step <= 100; ++step) {
    double share = static_cast<double>(step - 10) / 90;
    CHECK(near(learning_rate(c, kLr, step, 100),
               3e-5 + (kLr - 3e-5) * (1 + std::cos(std::numbers::pi * share)) / 2));
  }
  CHECK(near(learning_rate(c, kLr, 55, 100), (kLr + 3e-5) / 2));
  CHECK(near(learning_rate(c, kLr, 101, 100), 3e-5));
}

TEST_CASE(
    "schedule: warmup-stable-decay holds the peak for 80 % of what follows, or for stable_steps") {
  for (bool cosine : {true, false}) {
    ScheduleConfig c = of("wsd");
    c.wsd_decay = cosine ? "cosine" : "linear";
    for (int64_t step = 10; step <= 82; ++step) CHECK(near(learning_rate(c, kLr, step, 100), kLr));
    CHECK(learning_rate(c, kLr, 83, 100) < kLr);
    CHECK(near(learning_rate(c, kLr, 91, 100), (kLr + 3e-5) / 2));
    double quarter = cosine ? (1 + std::cos(std::numbers::pi / 4)) / 2 : 0.75;
    c.stable_steps = 50;  // decay from 60 to 100
    CHECK(near(learning_rate(c, kLr, 60, 100), kLr));
    CHECK(near(learning_rate(c, kLr, 70, 100), 3e-5 + (kLr - 3e-5) * quarter));
    CHECK(near(learning_rate(c, kLr, 100, 100), 3e-5));
    c.stable_steps = 0;
    CHECK(near(learning_rate(c, kLr, 55, 100), (kLr + 3e-5) / 2));
  }
}

TEST_CASE("schedule: shapes of the final decay") {
  ScheduleConfig c = of("wsd");
  c.stable_steps = 50;  // decay from 60 to 100
  auto share = [&](const char* shape, int64_t step) {
    c.wsd_decay = shape;
    return (learning_rate(c, kLr, step, 100) - 3e-5) / (kLr - 3e-5);
  };
  for (const char* shape : {"linear", "cosine", "exponential", "minus_sqrt"}) {
    CHECK(near(share(shape, 60), 1));
    CHECK(std::abs(share(shape, 100)) < 1e-12);
    for (int64_t step = 61; step <= 100; ++step) CHECK(share(shape, step) < share(shape, step - 1));
  }
  CHECK(near(share("exponential", 80), 2 / std::numbers::sqrt2 - 1));
  CHECK(near(share("minus_sqrt", 70), 0.5));
}

TEST_CASE("schedule: inverse square root never falls below min_lr") {
  ScheduleConfig c = of("inverse_sqrt");
  CHECK(near(learning_rate(c, kLr, 40, 100), kLr / 2));
  CHECK(near(learning_rate(c, kLr, 90, 100), kLr / 3));
  CHECK(near(learning_rate(c, kLr, 1'000'000, 100), 3e-5));
  c.warmup_steps = 0;
  CHECK(near(learning_rate(c, kLr, 3, 100), kLr / 2));
}

TEST_CASE("schedule: degenerate lengths stay finite and within bounds") {
  for (const char* type : kTypes)
    for (int64_t warmup : {0, 5, 100})
      for (int64_t decay : {0, 1, 5})
        for (int64_t stable : {-1, 0, 1000})
          for (int64_t total : {0, 1, 5})
            for (int64_t step : {0, 1, 4, 5, 99, 100, 101}) {
              ScheduleConfig c = of(type, warmup);
              c.decay_steps = decay;
              c.stable_steps = stable;
              double lr = learning_rate(c, kLr, step, total);
              CHECK(std::isfinite(lr));
              CHECK(lr > 0);
              CHECK(lr <= kLr * (1 + 1e-12));
            }
}

}  // namespace
}  // namespace mtrain
