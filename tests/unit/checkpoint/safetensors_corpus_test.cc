// Malformed safetensors files: each must be refused with Error(checkpoint) that names the file and
// says what is wrong.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "checkpoint_testing.h"
#include "mtrain/checkpoint/safetensors.h"

using namespace mtrain;
using namespace mtrain::testing;
using namespace std::string_literals;

namespace {

std::string prefix(uint64_t n) {
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(n >> (8 * i));
  return out;
}
std::string file(const std::string& header, size_t data_bytes) {
  return prefix(header.size()) + header + std::string(data_bytes, '\x01');
}
/// A header with one tensor 't'.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                size_t data_bytes) {
  return file(R"({"t":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
                  offsets + "}}",
              data_bytes);
}
/// A header with one tensor of a given name, already escaped.
std::string named(const std::string& name) {
  return file("{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
}
std::string two(const std::string& a, const std::string& b, size_t data_bytes) {
  return file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
                  R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}",
              data_bytes);
}

/// Two U8 tensors of `size` bytes, 't' and one named `second`.
std::string twins(const std::string& second, const std::string& size, const std::string& a,
                  const std::string& b, size_t data_bytes) {
  std::string entry = "{\"dtype\":\"U8\",\"shape\":[" + size + "],\"data_offsets\":";
  return file("{\"t\":" + entry + a + "},\"" + second + "\":" + entry + b + "}}", data_bytes);
}

struct Case {
  const char* what;
  std::string bytes;
  const char* expected;
};

const std::string kGood = one("U8", "[4]", "[0,4]", 4);

std::vector<Case> sizes_and_text() {
  std::string tensor = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  return {
      {"empty file", "", "at least 8 bytes, got 0"},
      {"seven bytes", "\1\0\0\0\0\0\0"s, "at least 8 bytes, got 7"},
      {"no header", prefix(0), "malformed JSON"},
      {"length one too far", prefix(3) + "{}", "exceeds the size of the file"},
      {"length past the end", prefix(1000) + "{}", "exceeds the size of the file"},
      {"length 100,000,001", prefix(100'000'001) + "{}", "limit of 100000000"},
      {"length 2^63", prefix(uint64_t{1} << 63) + "{}", "limit of 100000000"},
      {"length 2^64-1", prefix(~uint64_t{0}) + "{}", "limit of 100000000"},
      {"length 2^64-8: 8+N wraps to 0", prefix(~uint64_t{0} - 7) + "{}", "limit of 100000000"},
      {"not UTF-8", named("a\xFF"), "malformed JSON"},
      {"overlong UTF-8", named("\xC0\x80"), "malformed JSON"},
      {"UTF-8 surrogate", named("\xED\xA0\x80"), "malformed JSON"},
      {"lone surrogate escape", named("\\ud800"), "malformed JSON"},
      {"byte-order mark", file("\xEF\xBB\xBF{}", 0), "byte-order mark"},
      {"UTF-16", file("{\0}\0"s, 0), "NUL byte"},
      {"array", file("[]", 0), "must be an object, got an array"},
      {"string", file("\"x\"", 0), "must be an object, got the string"},
      {"number", file("1", 0), "must be an object, got the number 1"},
      {"null", file("null", 0), "must be an object, got null"},
      {"second value", file("{}{}", 0), "malformed JSON"},
      {"text after the value", file("{} x", 0), "malformed JSON"},
      {"hidden after NUL", file("{}\0hidden"s, 0), "NUL byte"},
      {"comment", file("{}//", 0), "malformed JSON"},
      {"truncated in the middle", file(R"({"t":{"dtype":"U8")", 4), "malformed JSON"},
      {"trailing comma", file("{\"t\":" + tensor + ",}", 4), "malformed JSON"},
      {"single quotes", file("{'t':1}", 0), "malformed JSON"},
      {"control character in a string", named("a\nb"), "malformed JSON"},
      {"a million nested arrays", file("{\"t\":" + std::string(1'000'000, '['), 0),
       "must be an object, got an array"},
      {"a million nested objects",
       [] {
         std::string deep;
         for (int i = 0; i < 1'000'000; ++i) deep += "{\"a\":";
         return file(deep, 0);
       }(),
       "unknown field \"a\""},
  };
}

std::vector<Case> duplicates_and_fields() {
  std::string tensor = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  return {
      {"same name, same range", file("{\"t\":" + tensor + ",\"t\":" + tensor + "}", 4),
       "'t' occurs twice"},
      {"same name, empty ranges", twins("t", "0", "[0,0]", "[0,0]", 0), "'t' occurs twice"},
      {"same name, next range", twins("t", "4", "[0,4]", "[4,8]", 8), "'t' occurs twice"},
      {"same name by escape", twins("\\u0074", "4", "[0,4]", "[4,8]", 8), "'t' occurs twice"},
      {"dtype twice",
       file(R"({"t":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4),
       "\"dtype\" occurs twice"},
      {"shape twice",
       file(R"({"t":{"dtype":"U8","shape":[4],"shape":[4],"data_offsets":[0,4]}})", 4),
       "\"shape\" occurs twice"},
      {"offsets twice",
       file(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"data_offsets":[0,4]}})", 4),
       "\"data_offsets\" occurs twice"},
      {"two metadata", file(R"({"__metadata__":{},"__metadata__":{},"t":)" + tensor + "}", 4),
       "\"__metadata__\" occurs twice"},
      {"metadata key twice", file(R"({"__metadata__":{"a":"1","a":"2"}})", 0), "\"a\" twice"},
      {"metadata number", file(R"({"__metadata__":{"a":1}})", 0),
       "must contain only strings, got the number 1"},
      {"metadata object", file(R"({"__metadata__":{"a":{}}})", 0),
       "must contain only strings, got an object"},
      {"metadata array", file(R"({"__metadata__":{"a":[]}})", 0),
       "must contain only strings, got an array"},
      {"metadata null", file(R"({"__metadata__":{"a":null}})", 0),
       "must contain only strings, got null"},
      {"metadata no object", file(R"({"__metadata__":"pt"})", 0),
       "must be an object, got the string"},
      {"tensor no object", file(R"({"t":[0,4]})", 4), "must be an object, got an array"},
      {"tensor null", file(R"({"t":null})", 0), "must be an object, got null"},
      {"empty tensor", file(R"({"t":{}})", 0), "no field \"dtype\""},
      {"no shape", file(R"({"t":{"dtype":"U8","data_offsets":[0,4]}})", 4), "no field \"shape\""},
      {"no offsets", file(R"({"t":{"dtype":"U8","shape":[4]}})", 4), "no field \"data_offsets\""},
      {"unknown field",
       file(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"scale":2}})", 4),
       "unknown field \"scale\""},
      {"unknown dtype", one("F128", "[4]", "[0,4]", 4),
       "unknown dtype \"F128\"; known dtypes are F32, BF16"},
      {"dtype in lower case", one("f32", "[1]", "[0,4]", 4), "unknown dtype \"f32\""},
      {"empty dtype", one("", "[1]", "[0,4]", 4), "unknown dtype \"\""},
      {"dtype number", file(R"({"t":{"dtype":1,"shape":[4],"data_offsets":[0,4]}})", 4),
       "dtype must be a string"},
      {"dtype array", file(R"({"t":{"dtype":["U8"],"shape":[4],"data_offsets":[0,4]}})", 4),
       "dtype must be a string"},
      {"shape string", one("U8", "\"4\"", "[0,4]", 4), "shape must be an array"},
      {"shape number", one("U8", "4", "[0,4]", 4), "shape must be an array"},
      {"shape nested", one("U8", "[[4]]", "[0,4]", 4), "got an array"},
      {"rank 9", one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]", 1), "limit of 8"},
      {"one offset", one("U8", "[4]", "[4]", 4), "must have 2 numbers, got 1"},
      {"no offset", one("U8", "[4]", "[]", 4), "must have 2 numbers, got 0"},
      {"three offsets", one("U8", "[4]", "[0,4,4]", 4), "must have 2 numbers, got more"},
  };
}

std::vector<Case> numbers_and_ranges() {
  return {
      {"dimension -1", one("U8", "[-1]", "[0,4]", 4), "got the number -1"},
      {"dimension -0", one("U8", "[-0]", "[0,0]", 0), "got the number 0"},
      {"dimension 1.0", one("U8", "[4.0]", "[0,4]", 4), "got the number 4.0"},
      {"dimension 4e0", one("U8", "[4e0]", "[0,4]", 4), "got the number 4e0"},
      {"dimension as string", one("U8", "[\"4\"]", "[0,4]", 4), "got the string"},
      {"dimension true", one("U8", "[true]", "[0,1]", 1), "got true"},
      {"dimension 2^63", one("U8", "[9223372036854775808]", "[0,4]", 4), "overflows"},
      {"dimension 2^64", one("U8", "[18446744073709551616]", "[0,4]", 4),
       "got the number 18446744073709551616"},
      {"leading zero", one("U8", "[04]", "[0,4]", 4), "malformed JSON"},
      {"hexadecimal", one("U8", "[0x4]", "[0,4]", 4), "malformed JSON"},
      {"NaN", one("U8", "[NaN]", "[0,4]", 4), "malformed JSON"},
      {"offset -4", one("U8", "[4]", "[-4,0]", 4), "got the number -4"},
      {"offset 4.5", one("U8", "[4]", "[0,4.5]", 4), "got the number 4.5"},
      {"offset 1e400", one("U8", "[4]", "[0,1e400]", 4), "malformed JSON"},
      {"offset 2^64-1", one("U8", "[4]", "[0,18446744073709551615]", 4), "truncated"},
      {"product wraps to 0", one("F32", "[4294967296,4294967296]", "[0,0]", 0), "overflows"},
      {"product wraps to something small",
       one("F32", "[4194305,4194305,211106198978564]", "[0,4]", 4), "overflows"},
      {"bytes overflow", one("F64", "[2305843009213693952]", "[0,0]", 0), "overflows"},
      {"strides overflow though empty", one("F32", "[0,4294967296,4294967296]", "[0,0]", 0),
       "overflows"},
      {"too few bytes", one("F32", "[2]", "[0,4]", 4), "needs 8 bytes, data_offsets [0, 4] give 4"},
      {"too many bytes", one("F32", "[1]", "[0,8]", 8), "needs 4 bytes"},
      {"rank 0 without bytes", one("F32", "[]", "[0,0]", 0), "needs 4 bytes"},
      {"empty with bytes", one("F32", "[0]", "[0,4]", 4), "needs 0 bytes"},
      {"F4 with half a byte", one("F4", "[3]", "[0,2]", 2), "not a whole number of bytes"},
      {"F6 with a broken byte", one("F6_E2M3", "[3]", "[0,3]", 3), "not a whole number of bytes"},
      {"reversed", two("[4,0]", "[4,8]", 8), "reversed"},
      {"overlap", two("[0,4]", "[2,6]", 6), "they overlap"},
      {"same range", two("[0,4]", "[0,4]", 4), "they overlap"},
      {"hole between", two("[0,4]", "[5,9]", 9), "a hole"},
      {"hole at the start", one("U8", "[4]", "[1,5]", 5), "a hole"},
      {"all past the end", two("[0,4]", "[4,8]", 0), "truncated"},
      {"last byte missing", one("U8", "[4]", "[0,4]", 3), "truncated"},
      {"one byte more", one("U8", "[4]", "[0,4]", 5), "1 bytes follow the last tensor"},
      {"data without tensors", file("{}", 1), "1 bytes follow"},
      {"ZIP appended", kGood + "PK\x03\x04 and so on", "follow the last tensor"},
      {"PDF appended", kGood + "%PDF-1.7", "follow the last tensor"},
      {"pickle appended", kGood + "\x80\x04K\x01.", "follow the last tensor"},
      {"second safetensors appended", kGood + kGood, "follow the last tensor"},
  };
}

std::vector<Case> names_and_formats() {
  return {
      {"empty name", named(""), "name is empty"},
      {"NUL name", named("a\\u0000b"), "control character at its byte 1"},
      {"newline name", named("a\\nb"), "control character"},
      {"escape name", named("\\u001b[31m"), "control character"},
      {"DEL name", named("a\x7F"), "control character"},
      {"C1 name", named("\\u0085"), "control character"},
      {"bidi override name", named("\\u202egpj"), "control character"},
      {"bidi isolate name", named("\\u2066x"), "control character"},
      {"line separator name", named("\\u2028"), "control character"},
      {"name of 1025 bytes", named(std::string(1025, 'n')), "has 1025 bytes; the limit is 1024"},
      {"name of 1 MB", named(std::string(1 << 20, 'n')), "the limit is 1024"},
      {"pickle", "\x80\x04K\x01."s, "a Python pickle"},
      {"pickle of PyTorch",
       "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03."s,
       "a Python pickle"},
      {"ZIP of PyTorch", "PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0 archive/data.pkl"s, "a ZIP archive"},
      {"NumPy", "\x93NUMPY\x01\0v\0{'descr': '<f4', 'fortran_order': False}"s, "a NumPy array"},
      {"GGUF", "GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0"s, "a GGUF file"},
      {"HDF5", "\x89HDF\r\n\x1a\n\0\0\0\0"s, "an HDF5 file"},
      {"gzip", "\x1f\x8b\x08\0\0\0\0\0\0\3"s, "a gzip file"},
      {"LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
       "a Git LFS pointer"},
      {"web page", "<!DOCTYPE html><html>404</html>", "a web page"},
  };
}

void run(const std::vector<Case>& cases) {
  TempDir dir;
  fs::path path = dir / "bad.safetensors";
  for (const auto& bad : cases) {
    CAPTURE(bad.what);
    put_file(path, bad.bytes);
    ErrorClass error_class{};
    std::string message = failure([&] { SafetensorsFile opened(path); }, &error_class);
    CAPTURE(message);
    CHECK(error_class == ErrorClass::checkpoint);
    CHECK(message.find("bad.safetensors") != std::string::npos);
    CHECK(message.find(bad.expected) != std::string::npos);
    CHECK(message.find("help: ") != std::string::npos);
    CHECK(message.size() < 1000);
  }
}

}  // namespace

TEST_CASE("malformed sizes and JSON are refused") { run(sizes_and_text()); }
TEST_CASE("duplicates and wrong fields are refused") { run(duplicates_and_fields()); }
TEST_CASE("wrong numbers and ranges are refused") { run(numbers_and_ranges()); }
TEST_CASE("wrong names and foreign formats are refused") { run(names_and_formats()); }

TEST_CASE("odd but valid files are read") {
  TempDir dir;
  fs::path path = dir / "good.safetensors";
  auto opened = [&](const std::string& bytes) {
    put_file(path, bytes);
    return SafetensorsFile(path);
  };
  CHECK(opened(file("{}", 0)).tensors().empty());
  CHECK(opened(file(" \n\t{} \n ", 0)).tensors().empty());
  CHECK(opened(file("  {\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}   ", 4))
            .at("t")
            .data.size() == 4);
  CHECK(opened(file(R"({"__metadata__":{"format":"pt","é":""}})", 0)).metadata().size() == 2);
  CHECK(opened(file(R"({"t":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}})", 4))
            .at("t")
            .shape.rank() == 0);
  CHECK(opened(one("F32", "[0,9223372036854775807]", "[0,0]", 0)).at("t").data.empty());
  CHECK(opened(one("U8", "[1,1,1,1,1,1,1,4]", "[0,4]", 4)).at("t").shape.rank() == 8);
  CHECK(opened(named(std::string(1024, 'n'))).tensors()[0].name.size() == 1024);
  CHECK(opened(named("../../etc/passwd")).tensors()[0].name ==
        "../../etc/passwd");  // a name, never a path
  CHECK(opened(one("F4", "[2]", "[0,1]", 1)).at("t").data.size() == 1);
  CHECK(opened(one("F6_E3M2", "[4]", "[0,3]", 3)).at("t").data.size() == 3);
  for (const char* raw : {"BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "U8", "I8"})
    CHECK(opened(one(raw, "[4]", "[0,4]", 4)).at("t").file_dtype == raw);
  CHECK_FALSE(opened(one("F8_E4M3", "[4]", "[0,4]", 4)).at("t").dtype.has_value());
  CHECK(opened(one("I8", "[4]", "[0,4]", 4)).at("t").dtype == DType::i8);
  // empty tensors share their place with others, whatever the order of the text
  auto mixed = opened(file(R"({"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                           R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                           R"("z":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
                           4));
  CHECK(mixed.tensors()[0].name == "a");
  CHECK(mixed.at("b").data.size() == 4);
}

TEST_CASE("what is no regular file is refused without waiting") {
  TempDir dir;
  CHECK(failure([&] { SafetensorsFile file(dir / "absent.safetensors"); }).find("No such file") !=
        std::string::npos);
  CHECK(failure([&] { SafetensorsFile file(dir.path()); }).find("got a folder") !=
        std::string::npos);
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  CHECK(failure([&] { SafetensorsFile file(dir / "pipe"); }).find("pipe or socket") !=
        std::string::npos);
}

TEST_CASE("a header of more tensors than a file may have is refused") {  // how the work grows:
                                                                         // tests/growth
  TempDir dir;
  fs::path path = dir / "huge.safetensors";
  std::string header = "{";
  for (int i = 0; i <= 1'000'000; ++i)
    header += cat(i ? "," : "", "\"", i, R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  header += "}";
  put_file(path, file(header, 0));
  std::string message = failure([&] { SafetensorsFile opened(path); });
  CHECK(message.find("more than 1000000 tensors") != std::string::npos);
}

TEST_CASE("a file that shrinks while open is an error, not a signal") {
  TempDir dir;
  fs::path path = dir / "shrinks.safetensors";
  put_file(path, one("U8", "[100000]", "[0,100000]", 100000));
  SafetensorsFile file(path);
  fs::resize_file(path, 100);
  std::vector<std::byte> out(100000);
  ErrorClass error_class{};
  std::string message = failure([&] { file.read(file.at("t"), out); }, &error_class);
  CHECK(error_class == ErrorClass::io);
  CHECK(message.find("shrinks.safetensors") != std::string::npos);
}

TEST_CASE("truncated or altered files cause at most an error") {
  TempDir dir;
  fs::path path = dir / "mutant.safetensors";
  std::string good = file(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})",
      26);
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    put_file(path, good.substr(0, bytes));
    ErrorClass error_class{};
    failure([&] { SafetensorsFile opened(path); }, &error_class);
    CHECK(error_class == ErrorClass::checkpoint);
  }
  std::mt19937 random(7);
  int refused = 0;
  constexpr int kMutants = 20000;
  for (int i = 0; i < kMutants; ++i) {
    std::string bytes = good;
    for (unsigned changes = 1 + random() % 3; changes; --changes) {
      size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 1:
          bytes[at] = static_cast<char>(random());
          break;
        case 2:
          bytes.erase(at, 1 + random() % 4);
          break;
        default:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 8));
      }
      if (bytes.empty()) bytes = "x";
    }
    put_file(path, bytes);
    ErrorClass error_class = ErrorClass::checkpoint;
    refused += failure(
                   [&] {
                     SafetensorsFile opened(path);
                     uint64_t total = 0;
                     for (const auto& tensor : opened.tensors()) total += tensor.data.size();
                     CHECK(total == bytes.size() - opened.data_start());
                   },
                   &error_class)
                       .empty()
                   ? 0
                   : 1;
    CHECK(error_class == ErrorClass::checkpoint);
  }
  MESSAGE(refused, " of ", kMutants, " mutants were refused, the others are valid files");
  CHECK(refused > kMutants / 2);
}
