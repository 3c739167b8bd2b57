#include "mtrain/optim/lr_schedule.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

#include "mtrain/config/read_items.h"
#include "mtrain/config/yaml_load.h"

namespace mtrain {
namespace {

constexpr double kLr = 3e-4;

ScheduleConfig of(const char* type, int64_t warmup = 10, double min_lr = 3e-5) {
  ScheduleConfig c;
  c.type = type;
  c.warmup_steps = warmup;
  c.min_lr = min_lr;
  c.gamma = 0.5;
  c.milestones = {50, 60};
  c.cycle_steps = 30;
  c.cycle_factor = 2;
  return c;
}

bool near(double got, double want) {
  return std::fabs(got - want) <= 1e-12 * std::max(1.0, std::fabs(want));
}

const char* const kTypes[] = {"constant",     "linear",      "cosine",    "polynomial",     "wsd",
                              "inverse_sqrt", "exponential", "multistep", "cosine_restarts"};

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

TEST_CASE("schedule: no type leaves [min_lr, lr], and only restarts rise after warmup") {
  for (const char* type : kTypes)
    for (int64_t total : {11, 12, 100, 1000}) {
      const bool restarts = std::string_view(type) == "cosine_restarts";
      double before = kLr;
      for (int64_t step = 10; step < total + 200; ++step) {
        double lr = learning_rate(of(type), kLr, step, total);
        CHECK(lr <= before * (1 + 1e-12));
        CHECK(lr >= 3e-5 * (1 - 1e-12));
        if (!restarts) before = lr;
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

TEST_CASE("schedule: warmup rises from its initial rate, in its shape") {
  ScheduleConfig c = of("constant");
  c.warmup_init_lr = 1e-4;
  CHECK(near(learning_rate(c, kLr, 0, 100), 1.2e-4));
  CHECK(near(learning_rate(c, kLr, 4, 100), 2e-4));
  CHECK(near(learning_rate(c, kLr, 9, 100), kLr));
  c.warmup_shape = "cosine";
  CHECK(near(learning_rate(c, kLr, 4, 100), 2e-4));
  CHECK(near(learning_rate(c, kLr, 0, 100),
             1e-4 + 2e-4 * 0.5 * (1 - std::cos(std::numbers::pi / 10))));
  CHECK(near(learning_rate(c, kLr, 9, 100), kLr));
}

TEST_CASE("schedule: rates without an end fall to min_lr and no further") {
  for (const char* type : {"exponential", "multistep"}) {
    ScheduleConfig c = of(type, 0);
    c.milestones = {1, 2, 3, 4, 5};
    for (int64_t step = 0; step < 4; ++step)
      CHECK(near(learning_rate(c, kLr, step, 5), std::max(3e-5, kLr * std::pow(0.5, step))));
    CHECK(near(learning_rate(c, kLr, 1'000'000, 5), 3e-5));
  }
}

TEST_CASE("schedule: after the last stage its end remains, and warmup comes before the first") {
  ScheduleConfig c = of("stages", 2);
  c.stages = parse_yaml(
      "[{type: constant, steps: 3}, {steps: 4, to: 0.5}, {type: exponential, "
      "steps: 2, to: 0.125}]",
      "stages");
  const double wanted[] = {0.5, 1, 1, 1, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.25, 0.125, 0.125};
  for (int64_t step = 0; step < 13; ++step)
    CHECK(near(learning_rate(c, kLr, step, 100), kLr * wanted[step]));
}

TEST_CASE("schedule: faults of stages are found") {
  auto fault = [](const char* item) {
    Report report;
    read_items<ScheduleStage>(parse_yaml(item, "r.yaml"), "scheduler.stages", report);
    return report.text();
  };
  CHECK(fault("[{steps: 5, to: 0.1}]").empty());
  CHECK(fault("[{type: constant, steps: 5}]").empty());
  CHECK(fault("[{steps: 5}]").find("needs to") != std::string::npos);
  CHECK(fault("[{to: 1}]").find("scheduler.stages[0].steps") != std::string::npos);
  CHECK(fault("[{type: exponential, steps: 5, to: 0}]").find("ends at 0") != std::string::npos);
  CHECK(fault("[{type: constant, steps: 5, from: 1, to: 0}]").find("one rate") !=
        std::string::npos);
}

}  // namespace
}  // namespace mtrain
