#include "mtrain/data/indexed_file.h"

#include <doctest/doctest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "data_files.h"
#include "mtrain/data/indexed_writer.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

template <class T>
void poke(std::string& bytes, size_t at, T value) {
  REQUIRE(at + sizeof(T) <= bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

// Three documents of 2, 0 and 1 sequences; lengths 3, 0, 2.
void write_quantized(const fs::path& prefix, DType dtype = DType::u16, bool modes = false) {
  IndexedWriter writer(prefix, dtype, {.modes = modes, .overwrite = true});
  writer.add_sequence(std::vector<int32_t>{1, 2, 3}, 1);
  writer.add_sequence(std::vector<int32_t>{}, 0);
  writer.end_document();
  writer.end_document();
  writer.add_sequence(std::vector<int32_t>{7, 250}, 1);
  writer.end_document();
  writer.finish();
}

std::vector<int32_t> tokens_of(const IndexedFile& file, int64_t sequence) {
  std::vector<int32_t> out(static_cast<size_t>(file.length(sequence)));
  file.read(sequence, 0, out);
  return out;
}

constexpr size_t kLengths = 34, kPointers = kLengths + 3 * 4, kBounds = kPointers + 3 * 8,
                 kEnd = kBounds + 4 * 8;

}  // namespace

TEST_CASE("files of Megatron's builder are read and written byte for byte") {
  fs::path folder = shared_data("megatron");
  if (folder.empty()) return;
  auto documents = nlohmann::json::parse(read_file(folder / "expected_docs.json"));
  ScratchFolder scratch;
  for (std::string file_name : {"gpt2_int32", "gpt2_uint16", "mm_modes_int32"}) {
    CAPTURE(file_name);
    IndexedFile file(folder / file_name);
    REQUIRE(file.num_documents() == static_cast<int64_t>(documents.size()));
    CHECK(file.num_tokens() == 2404);
    CHECK(file.has_modes() == (file_name == "mm_modes_int32"));
    IndexedWriter writer(scratch / file_name, file.dtype(), {.modes = file.has_modes()});
    for (int64_t d = 0; d < file.num_documents(); ++d) {
      std::vector<std::vector<int32_t>> got;
      for (int64_t s = file.document_begin(d); s < file.document_begin(d + 1); ++s) {
        got.push_back(tokens_of(file, s));
        CHECK(file.document_of(s) == d);
        writer.add_sequence(got.back(), file.mode(s));
      }
      CHECK(got == documents[static_cast<size_t>(d)].get<std::vector<std::vector<int32_t>>>());
      writer.end_document();
    }
    writer.finish();
    for (const char* suffix : {".idx", ".bin"})
      CHECK(read_file(scratch / (file_name + suffix)) == read_file(folder / (file_name + suffix)));
  }
}

TEST_CASE("every element type that can be written reads back") {
  ScratchFolder scratch;
  for (DType dtype : {DType::u8, DType::u16, DType::i32}) {
    write_quantized(scratch / "x", dtype);
    IndexedFile file(scratch / "x");
    CHECK(file.dtype() == dtype);
    CHECK(tokens_of(file, 0) == std::vector<int32_t>{1, 2, 3});
    CHECK(tokens_of(file, 1).empty());
    CHECK(tokens_of(file, 2) == std::vector<int32_t>{7, 250});
    CHECK(file.document_begin(1) == 2);
    CHECK(file.document_begin(2) == 2);
    CHECK(file.document_of(2) == 2);
  }
  CHECK(token_dtype(65499) == DType::u16);
  CHECK(token_dtype(65500) == DType::i32);
}

TEST_CASE("int64 ids are narrowed, and refused by document and position when they do not fit") {
  ScratchFolder scratch;
  write_quantized(scratch / "x", DType::i32);
  auto idx = read_file(scratch / "x.idx");
  poke<uint8_t>(idx, 17, 5);
  for (size_t i = 0; i < 3; ++i) {
    int64_t pointer;
    std::memcpy(&pointer, idx.data() + kPointers + 8 * i, 8);
    poke<int64_t>(idx, kPointers + 8 * i, pointer * 2);
  }
  put(scratch / "x.idx", idx);
  std::vector<int64_t> ids = {1, -2, 3, 4, int64_t{1} << 40};
  put(scratch / "x.bin", {reinterpret_cast<const char*>(ids.data()), 40});
  IndexedFile file(scratch / "x");
  CHECK(tokens_of(file, 0) == std::vector<int32_t>{1, -2, 3});
  expect_error(ErrorClass::data, {"x.bin", "document 2", "token 1", "1099511627776"},
               [&] { tokens_of(file, 2); });
}

TEST_CASE("a malformed index is refused by name and place") {
  struct Fault {
    const char* what;
    std::function<void(std::string&)> harm;
    std::vector<std::string> says;
  };
  const std::vector<Fault> faults = {
      {"empty", [](auto& b) { b.clear(); }, {"0 bytes"}},
      {"header truncated", [](auto& b) { b.resize(33); }, {"33 bytes"}},
      {"magic", [](auto& b) { b[0] = 'X'; }, {"offset 0", "MMIDIDX"}},
      {"magic end", [](auto& b) { b[8] = 1; }, {"offset 0"}},
      {"version 0", [](auto& b) { poke<uint64_t>(b, 9, 0); }, {"offset 9", "version 0"}},
      {"version 2", [](auto& b) { poke<uint64_t>(b, 9, 2); }, {"offset 9", "version 2"}},
      {"big-endian version",
       [](auto& b) { poke<uint64_t>(b, 9, uint64_t{1} << 56); },
       {"offset 9"}},
      {"type 0", [](auto& b) { poke<uint8_t>(b, 17, 0); }, {"offset 17", "code 0"}},
      {"type 9", [](auto& b) { poke<uint8_t>(b, 17, 9); }, {"offset 17", "code 9"}},
      {"type 255", [](auto& b) { poke<uint8_t>(b, 17, 255); }, {"offset 17", "code 255"}},
      {"floats", [](auto& b) { poke<uint8_t>(b, 17, 7); }, {"offset 17", "fp32"}},
      {"doubles", [](auto& b) { poke<uint8_t>(b, 17, 6); }, {"offset 17", "fp64"}},
      {"other width", [](auto& b) { poke<uint8_t>(b, 17, 4); }, {"sequence 1", "byte 6", "12"}},
      {"one sequence too many",
       [](auto& b) { poke<uint64_t>(b, 18, 4); },
       {"offset 18", "4 sequences"}},
      {"no sequences", [](auto& b) { poke<uint64_t>(b, 18, 0); }, {"offset 18", "0 sequences"}},
      {"2^64-1 sequences", [](auto& b) { poke<uint64_t>(b, 18, ~uint64_t{0}); }, {"offset 18"}},
      {"12 S wraps to 36",
       [](auto& b) { poke<uint64_t>(b, 18, (uint64_t{1} << 62) + 3); },
       {"more bytes than can be counted"}},
      {"8 D wraps to 32",
       [](auto& b) { poke<uint64_t>(b, 26, (uint64_t{1} << 61) + 4); },
       {"more bytes than can be counted"}},
      {"no bounds", [](auto& b) { poke<uint64_t>(b, 26, 0); }, {"offset 18"}},
      {"no bounds, right size",
       [](auto& b) { poke<uint64_t>(b, 26, 0), b.resize(kBounds); },
       {"offset 26"}},
      {"negative length",
       [](auto& b) { poke<int32_t>(b, kLengths + 4, -1); },
       {"sequence 1", "length -1"}},
      {"longer", [](auto& b) { poke<int32_t>(b, kLengths, 4); }, {"sequence 1"}},
      {"longer last",
       [](auto& b) { poke<int32_t>(b, kLengths + 8, 1 << 30); },
       {"x.bin", "10 bytes"}},
      {"negative pointer",
       [](auto& b) { poke<int64_t>(b, kPointers + 16, -2); },
       {"sequence 2", "-2"}},
      {"odd pointer",
       [](auto& b) { poke<int64_t>(b, kPointers + 16, 5); },
       {"sequence 2", "byte 5"}},
      {"first pointer", [](auto& b) { poke<int64_t>(b, kPointers, 2); }, {"sequence 0", "byte 2"}},
      {"pointer 2^63-1",
       [](auto& b) { poke<int64_t>(b, kPointers + 8, INT64_MAX); },
       {"sequence 1"}},
      {"first bound", [](auto& b) { poke<int64_t>(b, kBounds, 1); }, {"document 0", "not 0"}},
      {"falling bounds",
       [](auto& b) { poke<int64_t>(b, kBounds + 16, 1); },
       {"document 2", "before document 1"}},
      {"negative bound", [](auto& b) { poke<int64_t>(b, kBounds + 8, -1); }, {"document 1", "-1"}},
      {"bound beyond", [](auto& b) { poke<int64_t>(b, kBounds + 8, 4); }, {"document 1", "4 of 3"}},
      {"last bound short",
       [](auto& b) { poke<int64_t>(b, kBounds + 24, 2); },
       {"ends at sequence 2", "3"}},
      {"a byte more", [](auto& b) { b += '\0'; }, {"offset 18"}},
      {"a byte of modes missing", [](auto& b) { b += std::string(2, '\0'); }, {"offset 18"}},
  };
  ScratchFolder scratch;
  write_quantized(scratch / "x");
  const auto good = read_file(scratch / "x.idx");
  REQUIRE(good.size() == kEnd);
  for (const Fault& fault : faults) {
    CAPTURE(fault.what);
    auto bytes = good;
    fault.harm(bytes);
    put(scratch / "x.idx", bytes);
    expect_error(ErrorClass::data, {scratch.path().string()},
                 [&] { IndexedFile file(scratch / "x"); });
    for (const auto& says : fault.says)
      expect_error(ErrorClass::data, {says}, [&] { IndexedFile file(scratch / "x"); });
  }
}

TEST_CASE("every truncation and every changed size of either file is refused") {
  ScratchFolder scratch;
  write_quantized(scratch / "x", DType::u16, true);
  const auto idx = read_file(scratch / "x.idx"), bin = read_file(scratch / "x.bin");
  int64_t without_modes = 0;
  for (size_t size = 0; size < idx.size(); ++size) {
    put(scratch / "x.idx", std::string_view(idx).substr(0, size));
    if (size == idx.size() - 3) {  // exactly the modes removed: a valid file without modes
      IndexedFile file(scratch / "x");
      without_modes += !file.has_modes();
      continue;
    }
    expect_error(ErrorClass::data, {"x.idx"}, [&] { IndexedFile file(scratch / "x"); });
  }
  CHECK(without_modes == 1);
  put(scratch / "x.idx", idx);
  for (size_t size = 0; size < bin.size() + 4; ++size) {
    if (size == bin.size()) continue;
    auto bytes = bin;
    bytes.resize(size);
    put(scratch / "x.bin", bytes);
    expect_error(ErrorClass::data, {"x.bin", cat(size, " bytes"), "describes 10"},
                 [&] { IndexedFile file(scratch / "x"); });
  }
}

TEST_CASE("flipped bits never lead outside the files") {
  ScratchFolder scratch;
  write_quantized(scratch / "x", DType::u16, true);
  const auto good = read_file(scratch / "x.idx");
  int opened = 0;
  auto attempt = [&](const std::string& bytes) {
    put(scratch / "x.idx", bytes);
    try {
      IndexedFile file(scratch / "x");
      ++opened;
      int64_t tokens = 0;
      for (int64_t s = 0; s < file.num_sequences(); ++s)
        tokens += static_cast<int64_t>(tokens_of(file, s).size());
      CHECK(tokens == file.num_tokens());
      CHECK(file.document_begin(file.num_documents()) == file.num_sequences());
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::data);
      CHECK(error.message().find("x.") != std::string::npos);
    }
  };
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    attempt(bytes);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    auto bytes = good;
    for (int n = 0; n < 4; ++n) bytes[random() % bytes.size()] = static_cast<char>(random());
    attempt(bytes);
  }
  CHECK(opened >= 24);  // the modes are free, and a document bound may move within its neighbours
}

TEST_CASE("missing halves are distinguished") {
  ScratchFolder scratch;
  expect_error(ErrorClass::data, {"nowhere.idx does not exist", "typo"},
               [&] { IndexedFile file(scratch / "nowhere"); });
  write_quantized(scratch / "x");
  fs::remove(scratch / "x.idx");
  expect_error(ErrorClass::data, {"x.idx does not exist, though", "x.bin does", "interrupted"},
               [&] { IndexedFile file(scratch / "x"); });
  write_quantized(scratch / "y");
  fs::remove(scratch / "y.bin");
  expect_error(ErrorClass::data, {"y.bin does not exist"},
               [&] { IndexedFile file(scratch / "y.idx"); });
}

TEST_CASE("the identity follows the content") {
  ScratchFolder scratch;
  write_quantized(scratch / "x");
  auto before = IndexedFile(scratch / "x").identity();
  CHECK(nlohmann::json::parse(before)["bin_bytes"] == 10);
  fs::last_write_time(scratch / "x.bin", fs::file_time_type::clock::now());
  CHECK(IndexedFile(scratch / "x.bin").identity() == before);
  auto bin = read_file(scratch / "x.bin");
  bin[4] ^= 1;
  put(scratch / "x.bin", bin);
  CHECK(IndexedFile(scratch / "x").identity() != before);
}

TEST_CASE("a writer leaves no index before its commit, and nothing when it is given up") {
  ScratchFolder scratch;
  {
    IndexedWriter writer(scratch / "x", DType::u16);
    writer.add_sequence(std::vector<int32_t>(2'000'000, 5));
    writer.end_document();
    CHECK(fs::exists(scratch / "x.bin.partial"));
    CHECK_FALSE(fs::exists(scratch / "x.bin"));
    CHECK_FALSE(fs::exists(scratch / "x.idx"));
    expect_error(ErrorClass::io, {"being written by another process"},
                 [&] { IndexedWriter second(scratch / "x", DType::u16); });
  }
  CHECK(fs::is_empty(scratch.path()));
  expect_error(ErrorClass::io, {"cannot create", "missing"},
               [&] { IndexedWriter writer(scratch / "missing/x", DType::u16); });
}

TEST_CASE("a writer refuses to replace what it did not leave behind") {
  ScratchFolder scratch;
  write_quantized(scratch / "x");
  expect_error(ErrorClass::io, {"x.idx exists", "--force"},
               [&] { IndexedWriter writer(scratch / "x", DType::u16); });
  put(scratch / "weights.bin", "precious");
  expect_error(ErrorClass::io, {"weights.bin exists"},
               [&] { IndexedWriter writer(scratch / "weights", DType::u16); });
  CHECK(read_file(scratch / "weights.bin") == "precious");
  // What a kill between the two renames leaves.
  fs::rename(scratch / "x.idx", scratch / "x.idx.partial");
  IndexedWriter writer(scratch / "x", DType::u8);
  writer.add_sequence(std::vector<int32_t>{9});
  writer.end_document();
  writer.finish();
  CHECK(IndexedFile(scratch / "x").num_tokens() == 1);
  CHECK_FALSE(fs::exists(scratch / "x.idx.partial"));
}

TEST_CASE("an id that does not fit is refused, not truncated") {
  ScratchFolder scratch;
  IndexedWriter writer(scratch / "x", DType::u16);
  expect_error(ErrorClass::data, {"65536", "uint16"},
               [&] { writer.add_sequence(std::vector<int32_t>{65536}); });
  expect_error(ErrorClass::data, {"-1"}, [&] { writer.add_sequence(std::vector<int32_t>{-1}); });
}

TEST_CASE("an empty pair is valid") {
  ScratchFolder scratch;
  IndexedWriter(scratch / "x", DType::u16).finish();
  IndexedFile file(scratch / "x");
  CHECK(file.num_sequences() == 0);
  CHECK(file.num_documents() == 0);
  CHECK(file.num_tokens() == 0);
}
