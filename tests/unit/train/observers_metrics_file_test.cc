#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "mtrain/train/observers/generations_file.h"
#include "mtrain/train/observers/metrics_file.h"

using namespace mtrain;
using Json = nlohmann::json;

namespace {

struct MetricsFolder {
  fs::path path;
  MetricsFolder() {
    std::string name = fs::temp_directory_path() / "mtrain-metrics-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~MetricsFolder() { fs::remove_all(path); }
};

std::vector<Json> lines(const fs::path& path) {
  std::vector<Json> out;
  std::string text = read_file(path);
  if (!text.empty()) CHECK(text.back() == '\n');
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  return out;
}

StepMetrics metrics_of_step(int64_t step, double loss) {
  return {.step = step,
          .loss = loss,
          .grad_norm = 0.1 * static_cast<double>(step),
          .lr = 3e-4,
          .tokens = step * 4096,
          .step_seconds = 0.0125,
          .tokens_per_second = 327680,
          .tflops = 0.25,
          .mfu = 0.5,
          .memory_bytes = 1ull << 33};
}

const std::set<std::string> kKeys = {
    "step",    "loss",   "grad_norm", "lr",           "tokens",  "tokens_per_second",
    "step_ms", "tflops", "mfu",       "memory_bytes", "val_loss"};

std::set<std::string> keys(const Json& line) {
  std::set<std::string> out;
  for (const auto& item : line.items()) out.insert(item.key());
  return out;
}

}  // namespace

TEST_CASE("each step is one object with exactly the published keys, readable at once") {
  MetricsFolder folder;
  fs::path path = folder.path / "metrics.jsonl";
  auto metrics = make_metrics_file(path, 0);
  for (int64_t step = 1; step <= 3; ++step) {
    metrics->on_step(metrics_of_step(step, 1.0 / static_cast<double>(step)));
    CHECK(lines(path).size() == static_cast<size_t>(step));
  }
  Json line = lines(path)[2];
  CHECK(keys(line) == kKeys);
  CHECK(line["step"] == 3);
  CHECK(line["loss"] == 1.0 / 3.0);
  CHECK(line["tokens"] == 12288);
  CHECK(line["step_ms"] == 12.5);
  CHECK(line["mfu"] == 0.5);
  CHECK(line["memory_bytes"] == 1ull << 33);
  CHECK(line["val_loss"].is_null());
}

TEST_CASE("every double comes back bit for bit") {
  MetricsFolder folder;
  fs::path path = folder.path / "metrics.jsonl";
  auto metrics = make_metrics_file(path, 0);
  std::vector<double> values = {
      0.0, -0.0, 5e-324, 1.7976931348623157e308, -2.2250738585072014e-308, 0.1, 1.0, 123456789.0};
  uint64_t state = 88172645463325252u;
  while (values.size() < 2000) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    auto value = std::bit_cast<double>(state);
    if (std::isfinite(value)) values.push_back(value);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    metrics->on_step(metrics_of_step(static_cast<int64_t>(i + 1), values[i]));
    metrics->on_eval({.step = static_cast<int64_t>(i + 1), .split = "valid", .loss = values[i]});
  }
  auto back = lines(path);
  REQUIRE(back.size() == values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    CHECK(std::bit_cast<uint64_t>(back[i]["loss"].get<double>()) ==
          std::bit_cast<uint64_t>(values[i]));
    CHECK(std::bit_cast<uint64_t>(back[i]["val_loss"].get<double>()) ==
          std::bit_cast<uint64_t>(values[i]));
  }
}

TEST_CASE("a figure that is not finite is null and keeps its text") {
  MetricsFolder folder;
  fs::path path = folder.path / "metrics.jsonl";
  auto metrics = make_metrics_file(path, 0);
  StepMetrics m = metrics_of_step(1, std::numeric_limits<double>::quiet_NaN());
  m.grad_norm = std::numeric_limits<double>::infinity();
  m.mfu = 0;
  metrics->on_step(m);
  metrics->on_eval({.step = 1, .split = "valid", .loss = -std::numeric_limits<double>::infinity()});
  Json line = lines(path).at(0);
  CHECK(line["loss"].is_null());
  CHECK(line["loss_text"] == "nan");
  CHECK(line["grad_norm"].is_null());
  CHECK(line["grad_norm_text"] == "inf");
  CHECK(line["mfu"].is_null());  // unknown
  CHECK(line["val_loss"].is_null());
  CHECK(line["val_loss_text"] == "-inf");
}

TEST_CASE(
    "a step that was passed over has a line of its own, with a validation where there was one") {
  MetricsFolder folder;
  fs::path path = folder.path / "metrics.jsonl";
  auto metrics = make_metrics_file(path, 0);
  metrics->on_step(metrics_of_step(1, 2.0));
  metrics->on_skipped_step(2, 8192);
  metrics->on_skipped_step(3, 12288);
  metrics->on_eval({.step = 3, .split = "valid", .loss = 1.5});
  auto got = lines(path);
  REQUIRE(got.size() == 3);
  CHECK(keys(got[1]) == kKeys);
  CHECK(got[1]["step"] == 2);
  CHECK(got[1]["tokens"] == 8192);
  CHECK(got[1]["loss"].is_null());
  CHECK(got[1]["val_loss"].is_null());
  CHECK(got[2]["loss"].is_null());
  CHECK(got[2]["val_loss"] == 1.5);
}

TEST_CASE(
    "a validation goes into the line of its step; only one without a step gets a line of its own") {
  MetricsFolder folder;
  fs::path path = folder.path / "metrics.jsonl";
  auto metrics = make_metrics_file(path, 0);
  metrics->on_eval({.step = 0, .split = "valid", .loss = 5.5});
  for (int64_t step = 1; step <= 4; ++step) {
    metrics->on_step(metrics_of_step(step, 2.0));
    if (step % 2 == 0)
      metrics->on_eval(
          {.step = step, .split = "valid", .loss = 1.0 + 0.1 * static_cast<double>(step)});
    if (step == 4) metrics->on_eval({.step = step, .split = "test", .loss = 9.0});
  }
  auto all = lines(path);
  REQUIRE(all.size() == 5);
  for (const auto& line : all) CHECK(keys(line) == kKeys);
  std::ifstream in(path);
  for (std::string line;
       std::getline(in, line);)  // no blanks within an object, whether or not a validation came
    CHECK(line.substr(0, line.find('}')).find(' ') == std::string::npos);
  CHECK(all[0]["step"] == 0);
  CHECK(all[0]["loss"].is_null());
  CHECK(all[0]["val_loss"] == 5.5);
  CHECK(all[1]["val_loss"].is_null());
  CHECK(all[2]["val_loss"] == 1.2);
  CHECK(all[4]["val_loss"] == 1.4);
}

TEST_CASE("figures of a validation follow the line of their step, with every published key") {
  MetricsFolder folder;
  fs::path path = folder.path / "metrics.jsonl";
  auto metrics = make_metrics_file(path, 0);
  const double inf = std::numeric_limits<double>::infinity();
  metrics->on_eval({.step = 0, .split = "valid", .loss = 5.5, .figures = {{"accuracy", 0.25}}});
  metrics->on_step(metrics_of_step(1, 2.0));
  metrics->on_eval({.step = 1, .split = "valid", .loss = 1.5, .figures = {{"accuracy", inf}}});
  metrics->on_step(metrics_of_step(2, 2.0));
  auto all = lines(path);
  REQUIRE(all.size() == 4);
  for (const auto& line : all)
    for (const std::string& key : kKeys) CHECK(line.contains(key));
  CHECK(all[0]["val_accuracy"] == 0.25);
  CHECK(all[0]["val_loss"] == 5.5);
  CHECK(all[1]["val_loss"] == 1.5);
  CHECK(keys(all[1]) == kKeys);
  CHECK(all[2]["step"] == 1);
  CHECK(all[2]["val_accuracy_text"] == "inf");
  CHECK(all[2]["val_loss"].is_null());
  CHECK(keys(all[3]) == kKeys);
}

TEST_CASE("resuming drops later steps and a torn last line, whatever the place of the tear") {
  MetricsFolder folder;
  fs::path path = folder.path / "metrics.jsonl";
  {
    auto metrics = make_metrics_file(path, 0);
    for (int64_t step = 1; step <= 10; ++step) metrics->on_step(metrics_of_step(step, 2.0));
  }
  const std::string whole = read_file(path);
  const size_t line_bytes = whole.find('\n') + 1;
  for (int64_t first = 0; first <= 11; ++first) {
    for (size_t size : {whole.size(), whole.size() - 1, whole.size() - line_bytes / 2,
                        5 * line_bytes + 3, size_t{1}, size_t{0}}) {
      { std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, size); }
      {
        auto metrics = make_metrics_file(path, first);
        metrics->on_step(metrics_of_step(first + 1, 7.0));
      }
      auto all = lines(path);
      size_t complete = static_cast<size_t>(
          std::count(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size), '\n'));
      size_t kept = std::min(complete, static_cast<size_t>(first));
      REQUIRE(all.size() == kept + 1);
      for (size_t i = 0; i < kept; ++i) CHECK(all[i]["step"] == i + 1);
      CHECK(all.back()["step"] == first + 1);
      CHECK(all.back()["loss"] == 7.0);
    }
  }
}

TEST_CASE("lines of others before the place of resuming stay") {
  MetricsFolder folder;
  fs::path path = folder.path / "metrics.jsonl";
  for (std::string note :
       {std::string("{\"note\":\"mine\"}\n"), std::string(300'000, 'x') + "\n\n"}) {
    std::string keep = note + "{\"step\":1,\"loss\":2.0}\n";
    { std::ofstream(path) << keep << "{\"step\":2,\"loss\":2.0}\n" << note; }
    make_metrics_file(path, 1);
    CHECK(read_file(path) == keep);
  }
}

TEST_CASE("a file truncated by someone else while the run goes on is not damaged further") {
  MetricsFolder folder;
  fs::path path = folder.path / "metrics.jsonl";
  auto metrics = make_metrics_file(path, 0);
  metrics->on_step(metrics_of_step(1, 2.0));
  metrics->on_step(metrics_of_step(2, 2.0));
  fs::resize_file(path, 0);
  metrics->on_eval({.step = 2, .split = "valid", .loss = 1.5});  // its line is gone
  metrics->on_step(metrics_of_step(3, 2.0));
  auto all = lines(path);
  REQUIRE(all.size() == 2);
  CHECK(all[0]["step"] == 2);
  CHECK(all[0]["val_loss"] == 1.5);
  CHECK(all[1]["step"] == 3);
}

TEST_CASE(
    "a full disk costs lines, never half a line, and writing goes on when there is room again") {
  // A size limit on files truncates a write exactly as a full disk does. It holds for a whole
  // process: use a child.
  MetricsFolder folder;
  fs::path path = folder.path / "metrics.jsonl";
  pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    if (!::freopen("/dev/null", "w", stderr)) ::_exit(99);
    auto metrics = make_metrics_file(path, 0);
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    for (int64_t step = 1; step <= 10; ++step) {
      limit.rlim_cur = step < 4 || step > 7 ? limit.rlim_max : 3 * 250;  // inside a line
      ::setrlimit(RLIMIT_FSIZE, &limit);
      metrics->on_step(metrics_of_step(step, 2.0));
    }
    ::_exit(0);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  std::vector<int64_t> steps;
  for (const auto& line : lines(path)) steps.push_back(line["step"].get<int64_t>());
  CHECK(steps == std::vector<int64_t>{1, 2, 3, 8, 9, 10});
}

TEST_CASE(
    "a folder that is not there, a device that is always full and a directory in the way throw "
    "nothing") {
  MetricsFolder folder;
  fs::create_directories(folder.path / "dir");
  for (const fs::path& path :
       {folder.path / "none" / "metrics.jsonl", fs::path("/dev/full"), folder.path / "dir"}) {
    auto metrics = make_metrics_file(path, 3);
    metrics->on_step(metrics_of_step(4, 2.0));
    metrics->on_eval({.step = 4, .split = "valid", .loss = 1.5});
    metrics->on_end(4);
  }
}

TEST_CASE("generated texts are a line each, and those after the step of a resume are removed") {
  MetricsFolder folder;
  const fs::path path = folder.path / "generations.jsonl";
  auto texts_of = [](int64_t step) {
    return Generations{
        .step = step,
        .texts = {{.prompt = "say \"a\"\n", .text = "b\xff", .tokens = 2, .ended = true},
                  {.prompt = "c", .text = "", .tokens = step, .ended = false}}};
  };
  auto file = make_generations_file(path, 0);
  for (const int64_t step : {5, 10, 15}) file->on_generations(texts_of(step));
  REQUIRE(lines(path).size() == 6);
  const Json first = lines(path)[0], second = lines(path)[1];
  CHECK(keys(first) == std::set<std::string>{"step", "prompt", "text", "tokens", "ended"});
  CHECK(first["step"] == 5);
  CHECK(first["prompt"] == "say \"a\"\n");
  CHECK(first["text"] == "b\xef\xbf\xbd");
  CHECK(first["ended"] == "end");
  CHECK(second["tokens"] == 5);
  CHECK(second["ended"] == "length");
  file = make_generations_file(path, 10);
  CHECK(lines(path).size() == 4);
  file->on_generations(texts_of(15));
  CHECK(lines(path).back()["step"] == 15);
  CHECK(lines(path).size() == 6);
  make_generations_file(path, 0);
  CHECK(lines(path).empty());
  // A file that cannot be written throws nothing.
  make_generations_file("/dev/null/x", 0)->on_generations(texts_of(1));
}
