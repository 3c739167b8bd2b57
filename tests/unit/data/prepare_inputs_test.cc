// What prepare_dataset reads from and how it shares the work: compressed files, folders, several
// fields, sentences, workers.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <random>

#include "data_files.h"
#include "mtrain/data/indexed_file.h"
#include "mtrain/data/json_line.h"
#include "mtrain/data/prepare.h"
#include "mtrain/data/sentences.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

/// One id for each byte; refuses texts with "forbidden" in them.
class Bytes final : public Tokenizer {
 public:
  std::string name() const override { return "bytes"; }
  int64_t vocab_size() const override { return 257; }
  std::optional<int32_t> eod() const override { return 256; }
  void encode_to(std::string_view text, std::vector<int32_t>& ids) const override {
    for (char c : text) ids.push_back(static_cast<unsigned char>(c));
    MT_USER_CHECK(text.find("forbidden") == text.npos, ErrorClass::data, "gives up",
                  "shorten the text");
  }
  std::string decode_bytes(std::span<const int32_t> ids) const override {
    std::string out;
    for (int32_t id : ids) out += id == 256 ? '$' : static_cast<char>(id);
    return out;
  }
  std::string identity() const override { return "bytes"; }
};

/// The sequences of each document, joined by bars.
std::vector<std::string> documents_of(const fs::path& prefix) {
  IndexedFile file(prefix);
  std::vector<std::string> out;
  for (int64_t d = 0; d < file.num_documents(); ++d) {
    std::string text;
    for (int64_t s = file.document_begin(d); s < file.document_begin(d + 1); ++s) {
      std::vector<int32_t> ids(static_cast<size_t>(file.length(s)));
      file.read(s, 0, ids);
      text += (s > file.document_begin(d) ? "|" : "") + Bytes().decode_bytes(ids);
    }
    out.push_back(text);
  }
  return out;
}

using Texts = std::vector<std::string>;

std::string gzip(const std::string& text) {
  z_stream state{};
  deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&state, text.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  deflate(&state, Z_FINISH);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

std::string zstandard(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

/// Lines of JSON of every kind that is sound, from a seed.
std::string random_lines(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::string out;
  for (int i = 0; i < count; ++i) {
    std::string text;
    for (uint32_t n = random() % 400; n > 0; --n)
      text += "ab \\n\\\"\\u00e9.\xC3\xA9"[random() % 6];
    while (!text.empty() && text.back() == '\\') text.pop_back();
    std::string clean;
    for (char c : text) clean += c == '\\' || c == '"' || static_cast<signed char>(c) < 0 ? 'x' : c;
    out += random() % 7 == 0 ? "\n" : "";
    out += cat("{\"id\": ", i, ", \"text\": \"", clean,
               "\\u00e9\", \"meta\": {\"text\": [1.5e3, null]}}\n");
  }
  return out;
}

}  // namespace

TEST_CASE("compressed inputs are read as what they hold, several streams laid end to end too") {
  ScratchFolder scratch;
  const std::string lines = random_lines(3000, 1);  // more than a buffer
  put(scratch / "plain.jsonl", lines);
  prepare_dataset(Bytes(), {.inputs = {scratch / "plain.jsonl"}, .output = scratch / "plain"});
  const std::string wanted = read_file(scratch / "plain.bin"),
                    index = read_file(scratch / "plain.idx");
  const size_t half = lines.size() / 2;
  const std::vector<std::pair<std::string, std::string>> files = {
      {"a.jsonl.gz", gzip(lines)},
      {"b.jsonl.gz",
       gzip(lines.substr(0, half)) + gzip(lines.substr(half)) + std::string(100, '\0')},
      {"c.jsonl.zst", zstandard(lines)},
      {"d.jsonl.zst",
       zstandard(lines.substr(0, half)) + zstandard("") + zstandard(lines.substr(half))},
      {"e.jsonl", zstandard(lines)}};  // the bytes say it, not the name
  for (const auto& [name, content] : files) {
    CAPTURE(name);
    put(scratch / name, content);
    auto report = prepare_dataset(
        Bytes(), {.inputs = {scratch / name}, .output = scratch / "out", .overwrite = true});
    CHECK(read_file(scratch / "out.bin") == wanted);
    CHECK(read_file(scratch / "out.idx") == index);
    CHECK(report.bytes_read == content.size());
    CHECK(report.text_bytes == lines.size());
    for (size_t kept_bytes :
         {size_t{5}, content.size() / 3, content.size() - (name == "b.jsonl.gz" ? 101 : 1)}) {
      put(scratch / name, content.substr(0, kept_bytes));
      expect_error(ErrorClass::data, {name, "ends inside its compressed stream"},
                   [&, input = scratch / name] {
                     prepare_dataset(Bytes(), {.inputs = {input}, .output = scratch / "cut"});
                   });
    }
  }
  put(scratch / "bad.jsonl.gz", gzip(lines).replace(1000, 5, "?????"));
  expect_error(ErrorClass::data, {"bad.jsonl.gz", "damaged gzip"}, [&] {
    prepare_dataset(Bytes(), {.inputs = {scratch / "bad.jsonl.gz"}, .output = scratch / "cut"});
  });
  put(scratch / "bad.jsonl.zst", zstandard(lines).replace(4, 1, "\xFF"));
  expect_error(ErrorClass::data, {"bad.jsonl.zst", "damaged Zstandard"}, [&] {
    prepare_dataset(Bytes(), {.inputs = {scratch / "bad.jsonl.zst"}, .output = scratch / "cut"});
  });
  CHECK_FALSE(fs::exists(scratch / "cut.idx"));
}

TEST_CASE(
    "Zstandard of a long window is read, and one beyond its limit is distinguished from damage") {
  ScratchFolder scratch;
  const std::string lines = "{\"text\": \"far\"}\n";
  ZSTD_CCtx* state = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(state, ZSTD_c_windowLog, 28);  // 256 MiB; `zstd --long=28`
  std::string content(1000, '\0');
  ZSTD_inBuffer in{lines.data(), lines.size(), 0};
  ZSTD_outBuffer out{content.data(), content.size(), 0};
  REQUIRE(ZSTD_compressStream2(state, &out, &in, ZSTD_e_continue) ==
          0);  // its end is not known, so the window is as set
  REQUIRE(ZSTD_compressStream2(state, &out, &in, ZSTD_e_end) == 0);
  ZSTD_freeCCtx(state);
  content.resize(out.pos);
  put(scratch / "long.jsonl.zst", content);
  prepare_dataset(Bytes(), {.inputs = {scratch / "long.jsonl.zst"}, .output = scratch / "out"});
  CHECK(documents_of(scratch / "out") == Texts{"far"});

  put(scratch / "longer.jsonl.zst",
      std::string("\x28\xB5\x2F\xFD\x00\xB8\x01\x00\x00", 9));  // 8 GiB
  expect_error(
      ErrorClass::data, {"longer.jsonl.zst", "a window of more than 2 GiB", "zstd --long=31"}, [&] {
        prepare_dataset(Bytes(),
                        {.inputs = {scratch / "longer.jsonl.zst"}, .output = scratch / "cut"});
      });
}

TEST_CASE("a pipe is refused as an input, at once") {
  ScratchFolder scratch;
  REQUIRE(::mkfifo((scratch / "pipe.jsonl").c_str(), 0600) == 0);
  expect_error(ErrorClass::io, {"pipe.jsonl", "wanted a regular file"}, [&] {
    prepare_dataset(Bytes(), {.inputs = {scratch / "pipe.jsonl"}, .output = scratch / "out"});
  });
}

TEST_CASE("a folder is its texts and JSON lines, in the order of their paths") {
  ScratchFolder scratch;
  fs::create_directories(scratch / "in/b/.hidden");
  put(scratch / "in/z.jsonl", "{\"text\": \"last\"}\n");
  put(scratch / "in/a.jsonl.gz", gzip("{\"text\": \"first\"}\n"));
  put(scratch / "in/b/c.txt", "middle");
  put(scratch / "in/b/.hidden/x.txt", "no");
  put(scratch / "in/b/.x.txt", "no");
  put(scratch / "in/README", "no");
  prepare_dataset(Bytes(), {.inputs = {scratch / "in"}, .output = scratch / "out"});
  CHECK(documents_of(scratch / "out") == Texts{"first", "middle", "last"});
  prepare_dataset(
      Bytes(),
      {.inputs = {scratch / "in"}, .output = scratch / "json", .format = InputFormat::jsonl});
  CHECK(documents_of(scratch / "json") == Texts{"first", "last"});
}

TEST_CASE("the pair is the same whatever the number of workers, and so is the reported fault") {
  ScratchFolder scratch;
  const std::string lines = random_lines(8000, 2);
  put(scratch / "x.jsonl", lines);
  put(scratch / "y.txt", std::string(700'000, 'y') + "\nz");
  put(scratch / "bad.jsonl", lines + "{\"text\": 1}\n" + lines + "{\"text\": 2}\n");
  std::string bin, idx;
  for (int workers : {1, 2, 3, 8}) {
    CAPTURE(workers);
    PrepareOptions options{.inputs = {scratch / "x.jsonl", scratch / "y.txt", scratch / "x.jsonl"},
                           .output = scratch / "out",
                           .workers = workers,
                           .append_eod = true,
                           .overwrite = true};
    prepare_dataset(Bytes(), options);
    if (workers == 1) bin = read_file(scratch / "out.bin"), idx = read_file(scratch / "out.idx");
    CHECK(read_file(scratch / "out.bin") == bin);
    CHECK(read_file(scratch / "out.idx") == idx);
    options.inputs = {scratch / "bad.jsonl"};
    const auto line = 1 + std::count(lines.begin(), lines.end(), '\n');
    expect_error(ErrorClass::data, {cat("bad.jsonl:", line, ": has a number")},
                 [&] { prepare_dataset(Bytes(), options); });
    options.on_bad = OnBad::skip;
    options.max_bad = 1;
    expect_error(ErrorClass::data, {cat("bad.jsonl:", 2 * line, ": more than 1")},
                 [&] { prepare_dataset(Bytes(), options); });
    options.max_bad = 2;
    auto report = prepare_dataset(Bytes(), options);
    CHECK(report.skipped == 2);
    REQUIRE(report.bad.size() == 2);
    CHECK(report.bad[0].find(cat(":", line, ": has a number")) != std::string::npos);
  }
}

TEST_CASE("a fault of the input is reported after the faults of the lines before it") {
  ScratchFolder scratch;
  put(scratch / "x.jsonl", "{\"text\": \"a\"}\n{\"text\": 1}\n" + std::string(2'000'000, 'x'));
  expect_error(ErrorClass::data, {"x.jsonl:2: has a number"}, [&] {
    prepare_dataset(
        Bytes(),
        {.inputs = {scratch / "x.jsonl"}, .output = scratch / "out", .max_document_bytes = 1000});
  });
  put(scratch / "x.jsonl", "{\"text\": \"a\"}\n\n" + std::string(2'000'000, 'x'));
  expect_error(ErrorClass::data, {"x.jsonl:3: the line is longer"}, [&] {
    prepare_dataset(
        Bytes(),
        {.inputs = {scratch / "x.jsonl"}, .output = scratch / "out", .max_document_bytes = 1000});
  });
}

TEST_CASE("a text that the tokenizer refuses is a broken line") {
  ScratchFolder scratch;
  put(scratch / "x.jsonl", "{\"text\": \"a\"}\n{\"text\": \"forbidden\"}\n{\"text\": \"b\"}\n");
  PrepareOptions options{
      .inputs = {scratch / "x.jsonl"}, .output = scratch / "out", .append_eod = true};
  expect_error(ErrorClass::data, {"x.jsonl:2: cannot be tokenized: gives up", "shorten"},
               [&] { prepare_dataset(Bytes(), options); });
  options.on_bad = OnBad::skip;
  CHECK(prepare_dataset(Bytes(), options).skipped == 1);
  CHECK(documents_of(scratch / "out") == Texts{"a$", "b$"});
}

TEST_CASE("a pair for each field under Megatron's names, and lists of strings as sequences") {
  ScratchFolder scratch;
  put(scratch / "x.jsonl",
      "{\"title\": \"T\", \"body\": [\"one\", \"\", \"two\"]}\n{\"body\": \"b\", \"title\": \"\"}\n"
      "{\"title\": \"only\", \"body\": []}\n");
  PrepareOptions options{.inputs = {scratch / "x.jsonl"},
                         .output = scratch / "out",
                         .append_eod = true,
                         .json_keys = {"title", "body"},
                         .key_names = true};
  auto report = prepare_dataset(Bytes(), options);
  CHECK(report.outputs ==
        std::vector<fs::path>{scratch / "out_title_document", scratch / "out_body_document"});
  CHECK(documents_of(scratch / "out_title_document") == Texts{"T$", "", "only$"});
  CHECK(documents_of(scratch / "out_body_document") == Texts{"one|two$", "b$", ""});
  CHECK(report.documents == 3);
  CHECK(report.empty_documents == 2);
  CHECK(report.sequences == 5);
  put(scratch / "x.jsonl", "{\"title\": \"T\"}\n");
  expect_error(ErrorClass::data,
               {"x.jsonl:1: has no field 'body'; its fields are title", "--json-key NAME"}, [&] {
                 options.overwrite = true;
                 prepare_dataset(Bytes(), options);
               });
  options.json_keys = {"b", "a", "a"};
  expect_error(ErrorClass::config, {"--json-keys names the field 'a' twice", "each field once"},
               [&] { prepare_dataset(Bytes(), options); });
  options.json_keys = {"a/b", "c"};
  expect_error(ErrorClass::config, {"the field 'a/b' cannot be part of a file's name"},
               [&] { prepare_dataset(Bytes(), options); });
  options.json_keys = {"a"};
  put(scratch / "x.txt", "x");
  options.inputs.push_back(scratch / "x.txt");
  expect_error(ErrorClass::config, {"an input is text"},
               [&] { prepare_dataset(Bytes(), options); });
}

TEST_CASE("sentences are sequences without the blanks between them") {
  ScratchFolder scratch;
  put(scratch / "x.jsonl",
      "{\"text\": \"Is it? It is 3.14.  \\u3042\\u3002\\u3044\\u3002\\nEnd\"}\n{\"text\": \" \\n "
      "\"}\n");
  auto report = prepare_dataset(Bytes(), {.inputs = {scratch / "x.jsonl"},
                                          .output = scratch / "out",
                                          .append_eod = true,
                                          .key_names = true,
                                          .split_sentences = true});
  CHECK(documents_of(scratch / "out_text_sentence") ==
        Texts{"Is it?|It is 3.14.|\xE3\x81\x82\xE3\x80\x82|\xE3\x81\x84\xE3\x80\x82|End$", ""});
  CHECK(report.sequences == 5);
  SentenceSplitter splitter;
  std::vector<std::string_view> out;
  splitter.split("", out);
  CHECK(out.empty());
}

TEST_CASE("lines made to exhaust a reader end soon") {
  const size_t many = 1'000'000;
  const std::string nested =
      "{\"text\": \"a\", \"x\": " + std::string(many, '[') + std::string(many, ']') + "}";
  JsonLine json({"text"});
  CHECK(json.read_exactly(nested) == "is nested deeper than 64");
  const std::string roomy = nested + std::string(64, ' ');
  CHECK_FALSE(json.read_fast(std::string_view(roomy).substr(0, nested.size())));
  CHECK(json.read_exactly(std::string(many, '{')).find("JSON") != std::string::npos);
  for (size_t depth : {30, 31, 32, 33, 62, 63, 64, 65}) {
    CAPTURE(depth);
    const std::string line = "{\"text\": \"a\", \"x\": " + std::string(depth - 1, '[') +
                             std::string(depth - 1, ']') + "}";
    const bool fits = json.read_exactly(line).empty();
    CHECK(fits == (depth <= 64));
    const std::string padded = line + std::string(64, ' ');
    if (json.read_fast(std::string_view(padded).substr(0, line.size()))) CHECK(fits);
  }
  ScratchFolder scratch;
  put(scratch / "x.jsonl",
      "{\"text\": \"" + std::string(many, ' ') + "\"}\n" + std::string(many, ' ') + "\n");
  CHECK(prepare_dataset(Bytes(), {.inputs = {scratch / "x.jsonl"}, .output = scratch / "out"})
            .tokens == static_cast<int64_t>(many));
}

TEST_CASE("the fast parser takes only lines that the exact one takes, with the same texts") {
  std::mt19937 random(3);
  const std::string seeds[] = {R"({"text": "a\u00e9\n", "n": [1, -2.5e3, {"x": null}], "b": true})",
                               R"({"text":"\ud83d\ude00","text2":""})",
                               R"({"a":{"text":"no"},"text":"yes"})",
                               "{\"text\": \"\xE3\x81\x82\", \"k\": 18446744073709551616}"};
  int64_t fast = 0, refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::string line = seeds[random() % 4];
    for (uint32_t edits = random() % 4; edits > 0; --edits) {
      const size_t at = random() % line.size();
      const std::string piece =
          std::string("\"\\,:{}[]0e-utdf \x01\x80\xC3\xED")[random() % 19] + std::string();
      switch (random() % 4) {
        case 0:
          line.replace(at, 1, piece);
          break;
        case 1:
          line.insert(at, piece);
          break;
        case 2:
          line.erase(at, 1 + random() % 3);
          break;
        default:
          line.insert(at, line.substr(random() % line.size(), random() % 8));
          break;
      }
      if (line.empty()) line = "{";
    }
    JsonLine one({"text"}), other({"text"});
    const std::string padded = line + std::string(64, "}\" ,"[random() % 4]);
    const std::string fault = other.read_exactly(line);
    if (!one.read_fast(std::string_view(padded).substr(0, line.size()))) {
      refused += !fault.empty();
      continue;
    }
    ++fast;
    REQUIRE_MESSAGE(fault.empty(), line << ": " << fault);
    REQUIRE_MESSAGE(one.texts(0) == other.texts(0), line);
  }
  CHECK(fast > 20'000);
  CHECK(refused > 20'000);
}
