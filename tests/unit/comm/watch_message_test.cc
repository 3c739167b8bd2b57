// What watching processes believe of each other's messages.
#include "mtrain/comm/watch_message.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <limits>

namespace mtrain {
namespace {

TEST_CASE("watch: a status from elsewhere is never success") {
  for (int known : {2, 10, 11, 12, 13, 14, 15, 18, 70})
    CHECK(static_cast<int>(error_class_of(known)) == known);
  for (int64_t odd : {int64_t{0}, int64_t{1}, int64_t{256}, int64_t{512}, int64_t{-1}, int64_t{99},
                      int64_t{1} << 40})
    CHECK(error_class_of(odd) == ErrorClass::peer);
  for (int odd : {0, 256, -256, 1 << 30}) {
    FailureMessage message;
    message.failure = {.rank = 3, .reason = "why", .error_class = static_cast<ErrorClass>(odd)};
    message.ranks = {1, 2};
    auto read = read_failure(bytes_of(message));
    REQUIRE(read);
    CHECK(read->failure.error_class == ErrorClass::peer);
    CHECK(read->failure.rank == 3);
    CHECK(read->failure.reason == "why");
    CHECK(read->ranks == std::vector<int>{1, 2});
  }
}

TEST_CASE("watch: a failure that is truncated or counts more ranks than it has is none") {
  FailureMessage message;
  message.ranks = {1, 2};
  std::string bytes = bytes_of(message);
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK_FALSE(read_failure(bytes.substr(0, size)));
  for (int32_t count : {-1, 3, 1 << 30, std::numeric_limits<int32_t>::min()}) {
    std::memcpy(bytes.data() + 8, &count, sizeof count);
    CHECK_FALSE(read_failure(bytes));
  }
}

TEST_CASE("watch: a status that makes no sense is none") {
  RankStatus status;
  status.step = 7;
  status.waits.number = 3;
  std::memcpy(status.waits.group, "dp", 3);
  const std::string good = bytes_of(status);
  REQUIRE(read_status(good));
  CHECK(read_status(good)->step == 7);
  CHECK_FALSE(read_status(good.substr(0, good.size() - 1)));
  auto refused_with = [&](size_t at, const std::string& bytes) {
    std::string bad = good;
    bad.replace(at, bytes.size(), bytes);
    CHECK_FALSE(read_status(bad));
  };
  constexpr size_t kWaits = offsetof(RankStatus, waits);
  refused_with(offsetof(RankStatus, ended), "\2");
  refused_with(offsetof(RankStatus, failed), "\xFF");
  refused_with(kWaits + offsetof(CallNote, uneven), "\2");
  refused_with(kWaits + offsetof(CallNote, kind), "\x09");
  refused_with(kWaits + offsetof(CallNote, reduce), "\x03");
  refused_with(kWaits + offsetof(CallNote, dtype), "\x0A");
  refused_with(kWaits + offsetof(CallNote, group), std::string(sizeof(CallNote::group), 'x'));
  refused_with(offsetof(RankStatus, last) + offsetof(CallNote, dtype), "\xFF");
  refused_with(offsetof(RankStatus, doing), std::string(sizeof(RankStatus::doing), 'x'));
  for (double odd : {-1.0, 1e300, std::numeric_limits<double>::infinity(),
                     std::numeric_limits<double>::quiet_NaN()})
    for (size_t at : {offsetof(RankStatus, slow_step), offsetof(RankStatus, busy_step)})
      refused_with(at, std::string(reinterpret_cast<const char*>(&odd), sizeof odd));
}

TEST_CASE("watch: a rank says the job's word and a number of its own") {
  CHECK(read_hello(hello_of("word", 3), "word", 4) == 3);
  for (const char* odd :
       {"", "word", "word ", "word3", "word x", "word 3 ", "word 3x", "word 0", "word 4", "word -1",
        "wort 3", "word  3", "word 99999999999999999999", "wor 3", "words 3"})
    CHECK_FALSE(read_hello(odd, "word", 4));
}

}  // namespace
}  // namespace mtrain
