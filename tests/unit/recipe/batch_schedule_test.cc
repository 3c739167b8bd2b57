#include "mtrain/recipe/batch_schedule.h"

#include <doctest/doctest.h>

using namespace mtrain;

namespace {

BatchSchedule read(const std::vector<std::string>& items) {
  std::string fault;
  BatchSchedule out = BatchSchedule::parse(items, fault);
  CHECK_MESSAGE(fault.empty(), fault);
  return out;
}

std::string fault_of(const std::vector<std::string>& items) {
  std::string fault;
  BatchSchedule::parse(items, fault);
  return fault;
}

}  // namespace

TEST_CASE("batch schedule: the size of each step, and samples of all before it") {
  const BatchSchedule batches = read({"0:4", " 3 : 6", "10:12"});
  int64_t samples = 0;
  for (int64_t step = 0; step < 20; ++step) {
    CAPTURE(step);
    CHECK(batches.samples_until(step) == samples);
    const int64_t size = step < 3 ? 4 : step < 10 ? 6 : 12;
    CHECK(batches.samples_at(step) == size);
    samples += size;
  }
  CHECK(batches.largest() == 12);
  CHECK(batches.common_divisor() == 2);
  CHECK(batches.text() == "4, from step 4 on 6, from step 11 on 12");
  CHECK(BatchSchedule::constant(256).text() == "256");
}

TEST_CASE("batch schedule: the fewest steps that take so many samples") {
  for (const BatchSchedule& batches : {read({"0:4", "3:6", "10:12"}), BatchSchedule::constant(5)})
    for (int64_t samples = 1; samples < 120; ++samples) {
      CAPTURE(samples);
      const auto steps = static_cast<int64_t>(batches.steps_for(static_cast<double>(samples)));
      CHECK(batches.samples_until(steps) >= samples);
      CHECK(batches.samples_until(steps - 1) < samples);
    }
  CHECK(BatchSchedule::constant(5).steps_for(0) == 0);
}

TEST_CASE("batch schedule: what is no schedule is named") {
  for (const char* item :
       {"", "4", "0:", ":4", "0:0", "0:-4", "-1:4", "0:4:8", "0:4x", "a:4", "0:99999999999", "0;4"})
    CHECK_MESSAGE(
        fault_of({item}).find("does not have the form FINISHED_STEPS:SAMPLES") != std::string::npos,
        item);
  CHECK(fault_of({"5:4"}).find("the first 5 steps have no batch size") != std::string::npos);
  for (const char* second : {"3:8", "2:8"})
    CHECK_MESSAGE(
        fault_of({"0:4", "3:4", second}).find("finished steps must ascend") != std::string::npos,
        second);
}
