#include "mtrain/checkpoint/safetensors.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "checkpoint_testing.h"
#include "mtrain/base/error.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

fs::path write_sample(const TempDir& dir) {
  std::vector<TensorSpec> specs = {{"b", DType::f32, {2, 3}},
                                   {"a", DType::i64, {1}},
                                   {"empty", DType::f32, {0, 4}},
                                   {"scalar", DType::bf16, {}},
                                   {"é \"q\" \\ ../x", DType::u8, {3}}};
  fs::path path = dir / "sample.safetensors";
  SafetensorsWriter writer(path, "test", specs);
  std::byte value{1};
  for (const auto& spec : writer.order()) {
    std::vector<std::byte> data(static_cast<size_t>(spec.shape.numel()) * size_of(spec.dtype),
                                value);
    value = static_cast<std::byte>(std::to_integer<int>(value) + 1);
    writer.write(data);
  }
  writer.finish();
  return path;
}

}  // namespace

TEST_CASE("what is written is read back, deterministically") {
  TempDir dir, other;
  fs::path path = write_sample(dir);
  CHECK(read_file(path) == read_file(write_sample(other)));
  SafetensorsFile file(path);
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.data_start() % 8 == 0);
  REQUIRE(file.tensors().size() == 5);
  CHECK(file.tensors()[0].name == "a");  // widest elements first: everything is aligned
  CHECK(file.at("a").data[0] == std::byte{1});
  CHECK(file.at("b").shape == Shape{2, 3});
  CHECK(file.at("b").dtype == DType::f32);
  CHECK(file.at("b").data.size() == 24);
  CHECK(file.at("empty").data.empty());
  CHECK(file.at("scalar").shape.rank() == 0);
  CHECK(file.at("scalar").data.size() == 2);
  CHECK(file.at("é \"q\" \\ ../x").data.size() == 3);
  CHECK(file.find("c") == nullptr);
  std::string message = failure([&] { file.at("scaler"); });
  CHECK(message.find("did you mean scalar") != std::string::npos);
  std::vector<std::byte> copy(24);
  file.read(file.at("b"), copy);
  CHECK(std::memcmp(copy.data(), file.at("b").data.data(), 24) == 0);
}
