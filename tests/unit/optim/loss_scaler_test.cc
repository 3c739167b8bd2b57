#include "mtrain/optim/loss_scaler.h"

#include <doctest/doctest.h>

#include <string_view>
#include <vector>

namespace mtrain {
namespace {

/// The scales of steps that went well (+) or overflowed (-).
std::vector<double> scales(const LossScaleRule& rule, std::string_view steps) {
  LossScaler scaler(rule);
  std::vector<double> out;
  for (char step : steps) {
    out.push_back(scaler.scale());
    scaler.update(step == '+');
  }
  out.push_back(scaler.scale());
  return out;
}

}  // namespace

TEST_CASE("a loss scale is constant without an interval of growth") {
  CHECK(scales({.start = 1024}, "+-+") == std::vector<double>{1024, 1024, 1024, 1024});
  CHECK(!LossScaler({.start = 1024}).dynamic());
}

TEST_CASE(
    "a loss scale doubles after good steps in a row and halves after overflows, down to its "
    "floor") {
  LossScaleRule rule{.start = 16, .least = 8, .growth_interval = 2};
  CHECK(scales(rule, "++++") == std::vector<double>{16, 16, 32, 32, 64});
  CHECK(scales(rule, "+-++") == std::vector<double>{16, 16, 8, 8, 16});
  CHECK(scales(rule, "---") == std::vector<double>{16, 8, 8, 8});
  CHECK(LossScaler({.start = LossScaler::kLargest, .growth_interval = 1}).scale() ==
        LossScaler::kLargest);
  CHECK(scales({.start = LossScaler::kLargest, .growth_interval = 1}, "+").back() ==
        LossScaler::kLargest);
}

TEST_CASE("an overflow may be the scale's doing as long as it can fall") {
  LossScaler scaler({.start = 16, .least = 8, .growth_interval = 2});
  CHECK(scaler.can_fall());
  scaler.update(false);
  CHECK_FALSE(scaler.can_fall());
  CHECK_FALSE(LossScaler({.start = 16}).can_fall());
}

TEST_CASE("a loss scale forgives overflows until its hysteresis is used up, which growth renews") {
  LossScaleRule rule{.start = 16, .growth_interval = 2, .hysteresis = 3};
  CHECK(scales(rule, "----") == std::vector<double>{16, 16, 16, 8, 4});
  CHECK(scales(rule, "-+-+-") == std::vector<double>{16, 16, 16, 16, 16, 8});
  CHECK(scales(rule, "--++--") == std::vector<double>{16, 16, 16, 16, 32, 32, 32});
}

TEST_CASE("a loss scale continues where it was; a constant one is what the recipe says") {
  LossScaleRule rule{.start = 16, .growth_interval = 2, .hysteresis = 2};
  LossScaler scaler(rule);
  scaler.restore(64, 1, 1);
  scaler.update(true);
  CHECK(scaler.scale() == 128);
  scaler.restore(64, 1, 1);
  scaler.update(false);
  CHECK(scaler.scale() == 32);
  LossScaler constant({.start = 8});
  constant.restore(64, 0, 0);
  CHECK(constant.scale() == 8);
}

}  // namespace mtrain
