#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mtrain/base/file.h"
#include "mtrain/train/observers/tensorboard.h"

using namespace mtrain;

namespace {

struct EventsFolder {
  fs::path path;
  EventsFolder() {
    std::string name = fs::temp_directory_path() / "mtrain-events-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~EventsFolder() { fs::remove_all(path); }
};

// A reader that shares nothing with the writer: the checksum bit by bit, the wire format from its
// description.
uint32_t slow_crc32c(std::string_view data) {
  uint32_t crc = ~0u;
  for (unsigned char byte : data) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
  }
  return ~crc;
}

uint32_t unmask(uint32_t masked) {
  uint32_t rotated = masked - 0xa282ead8u;
  return rotated >> 17 | rotated << 15;
}

template <class T>
T take(std::string_view& in) {
  REQUIRE(in.size() >= sizeof(T));
  T out;
  std::memcpy(&out, in.data(), sizeof(T));
  in.remove_prefix(sizeof(T));
  return out;
}

uint64_t take_varint(std::string_view& in) {
  uint64_t out = 0;
  for (int shift = 0;; shift += 7) {
    REQUIRE(shift < 70);
    auto byte = take<uint8_t>(in);
    out |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return out;
  }
}

struct Field {
  uint64_t number = 0;  // varint, fixed64 or fixed32 as raw bits
  std::string_view bytes;
};

std::multimap<int, Field> fields(std::string_view in) {
  std::multimap<int, Field> out;
  while (!in.empty()) {
    uint64_t key = take_varint(in);
    Field field;
    switch (key & 7) {
      case 0:
        field.number = take_varint(in);
        break;
      case 1:
        field.number = take<uint64_t>(in);
        break;
      case 5:
        field.number = take<uint32_t>(in);
        break;
      case 2: {
        uint64_t size = take_varint(in);
        REQUIRE(size <= in.size());
        field.bytes = in.substr(0, size);
        in.remove_prefix(size);
        break;
      }
      default:
        FAIL("wire type ", key & 7);
    }
    out.emplace(static_cast<int>(key >> 3), field);
  }
  return out;
}

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  std::optional<int64_t> session_status;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

/// The string of a Summary.Value of the plugin `text`: one, with the shape [1].
std::string text_of(const std::multimap<int, Field>& value) {
  const auto metadata = fields(value.find(9)->second.bytes);
  CHECK(metadata.find(4)->second.number == 2);  // DATA_CLASS_TENSOR
  CHECK(fields(metadata.find(1)->second.bytes).find(1)->second.bytes == "text");
  const auto tensor = fields(value.find(8)->second.bytes);
  CHECK(tensor.find(1)->second.number == 7);  // DT_STRING
  const auto shape = fields(tensor.find(2)->second.bytes);
  REQUIRE(shape.size() == 1);
  CHECK(fields(shape.find(2)->second.bytes).find(1)->second.number == 1);
  REQUIRE(tensor.count(8) == 1);
  return std::string(tensor.find(8)->second.bytes);
}

Event parse_event(std::string_view payload) {
  Event out;
  for (const auto& [number, field] : fields(payload)) {
    if (number == 1) out.wall_time = std::bit_cast<double>(field.number);
    if (number == 2) out.step = static_cast<int64_t>(field.number);
    if (number == 3) out.version = field.bytes;
    if (number == 7)
      out.session_status = static_cast<int64_t>(fields(field.bytes).find(1)->second.number);
    if (number != 5) continue;
    for (const auto& [inner, value] : fields(field.bytes)) {
      REQUIRE(inner == 1);
      auto parts = fields(value.bytes);
      REQUIRE(parts.count(1) == 1);
      if (parts.count(8) == 1) {
        out.texts[std::string(parts.find(1)->second.bytes)] = text_of(parts);
        continue;
      }
      REQUIRE(parts.count(2) == 1);
      out.scalars[std::string(parts.find(1)->second.bytes)] =
          std::bit_cast<float>(static_cast<uint32_t>(parts.find(2)->second.number));
    }
  }
  return out;
}

std::vector<Event> read_events(const fs::path& path) {
  std::string content = read_file(path);
  std::vector<Event> out;
  for (std::string_view in = content; !in.empty();) {
    std::string_view head = in.substr(0, 8);
    auto size = take<uint64_t>(in);
    REQUIRE(unmask(take<uint32_t>(in)) == slow_crc32c(head));
    REQUIRE(size <= in.size());
    std::string_view payload = in.substr(0, size);
    in.remove_prefix(size);
    REQUIRE(unmask(take<uint32_t>(in)) == slow_crc32c(payload));
    out.push_back(parse_event(payload));
  }
  return out;
}

std::vector<fs::path> event_files(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

StepMetrics events_of_step(int64_t step) {
  return {.step = step,
          .loss = 5.0 / static_cast<double>(step),
          .grad_norm = 0.5,
          .lr = 3e-4,
          .step_seconds = 0.0125,
          .tokens_per_second = 327680,
          .tflops = 0.25,
          .mfu = 0.5,
          .memory_bytes = 1ull << 33};
}

}  // namespace

TEST_CASE("the test's own checksum is CRC-32C") { CHECK(slow_crc32c("123456789") == 0xE3069283u); }

TEST_CASE("an event file decodes to what was logged") {
  EventsFolder folder;
  auto board = make_tensorboard(folder.path / "tb");
  board->on_start({.total_steps = 300});
  for (int64_t step = 1; step <= 300; ++step) board->on_step(events_of_step(step));
  board->on_eval({.step = 300, .split = "valid", .loss = 1.5});
  board->on_eval({.step = 300, .split = "test", .loss = 1.25});
  auto found = event_files(folder.path / "tb");
  REQUIRE(found.size() == 1);
  CHECK(found[0].filename().string().starts_with("events.out.tfevents."));

  auto events = read_events(found[0]);
  REQUIRE(events.size() == 303);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[0].step == 0);
  double before = 0;
  for (int64_t step = 1; step <= 300; ++step) {
    const Event& event = events[static_cast<size_t>(step)];
    CHECK(event.step == step);
    CHECK(event.wall_time >= before);
    CHECK(event.wall_time > 1.6e9);
    before = event.wall_time;
    CHECK(event.scalars.size() == 8);
    CHECK(event.scalars.at("train/loss") == static_cast<float>(5.0 / static_cast<double>(step)));
    CHECK(event.scalars.at("train/lr") == 3e-4f);
    CHECK(event.scalars.at("train/step_ms") == 12.5f);
    CHECK(event.scalars.at("train/memory_bytes") == 0x1p33f);
    CHECK_FALSE(event.session_status.has_value());
  }
  CHECK(events[301].scalars == std::map<std::string, float>{{"valid/loss", 1.5f}});
  CHECK(events[302].scalars == std::map<std::string, float>{{"test/loss", 1.25f}});
}

TEST_CASE("generated texts are text summaries with their line ends") {
  EventsFolder folder;
  auto board = make_tensorboard(folder.path);
  board->on_generations(
      {.step = 7,
       .texts = {{.prompt = "a\n# b", .text = "c\n\nd", .tokens = 4, .ended = true},
                 {.prompt = "e", .text = "", .tokens = 0, .ended = false}}});
  const auto events = read_events(event_files(folder.path).at(0));
  REQUIRE(events.size() == 2);
  CHECK(events[1].step == 7);
  CHECK(events[1].scalars.empty());
  CHECK(events[1].texts ==
        std::map<std::string, std::string>{
            {"generated/1", "    a\n    # b\n\n4 tokens, end:\n\n    c\n    \n    d"},
            {"generated/2", "    e\n\n0 tokens, length:\n\n    "}});
}

TEST_CASE("an unknown mfu is left out, a loss that is not finite is kept") {
  EventsFolder folder;
  auto board = make_tensorboard(folder.path);
  StepMetrics m = events_of_step(1);
  m.mfu = 0;
  m.loss = std::numeric_limits<double>::infinity();
  board->on_step(m);
  auto events = read_events(event_files(folder.path).at(0));
  CHECK(events.at(1).scalars.count("train/mfu") == 0);
  CHECK(std::isinf(events.at(1).scalars.at("train/loss")));
}

TEST_CASE("a resumed run writes a second file that starts a new session at its first step") {
  EventsFolder folder;
  make_tensorboard(folder.path)->on_step(events_of_step(1));
  auto board = make_tensorboard(folder.path);  // within the same second, on the same host
  board->on_start({.first_step = 40});
  board->on_step(events_of_step(41));
  auto found = event_files(folder.path);
  REQUIRE(found.size() == 2);
  CHECK(read_events(found[0]).size() == 2);
  auto events = read_events(found[1]);
  REQUIRE(events.size() == 3);
  CHECK(events[1].session_status == 1);
  CHECK(events[1].step == 41);
  CHECK(events[2].step == 41);
}

TEST_CASE("a folder that cannot be written throws nothing") {
  for (const char* path : {"/dev/null/tb", "/proc/none"}) {
    auto board = make_tensorboard(path);
    board->on_start({.first_step = 1});
    board->on_step(events_of_step(2));
    board->on_end(2);
  }
}
