#include "mtrain/data/prepare.h"

#include <doctest/doctest.h>

#include "data_files.h"
#include "mtrain/data/indexed_file.h"
#include "mtrain/data/indexed_summary.h"
#include "mtrain/data/json_line.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

// Bytes as ids, 256 as end of document: what the plugin does, without the plugin.
class BytesWithEod final : public Tokenizer {
 public:
  explicit BytesWithEod(bool has_eod = true, int64_t vocab_size = 257)
      : has_eod_(has_eod), vocab_size_(vocab_size) {}
  std::string name() const override { return "bytes"; }
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> eod() const override {
    return has_eod_ ? std::optional<int32_t>(256) : std::nullopt;
  }
  void encode_to(std::string_view text, std::vector<int32_t>& ids) const override {
    for (char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  std::string decode_bytes(std::span<const int32_t> ids) const override {
    std::string out;
    for (int32_t id : ids) out += static_cast<char>(id);
    return out;
  }
  std::string identity() const override { return "bytes"; }

 private:
  bool has_eod_;
  int64_t vocab_size_;
};

using Texts = std::vector<std::string>;

Texts read_documents(const fs::path& prefix) {
  IndexedFile file(prefix);
  Texts out;
  for (int64_t d = 0; d < file.num_documents(); ++d) {
    std::string text;
    for (int64_t s = file.document_begin(d); s < file.document_begin(d + 1); ++s) {
      std::vector<int32_t> ids(static_cast<size_t>(file.length(s)));
      file.read(s, 0, ids);
      for (int32_t id : ids)
        text += id == 256 ? std::string("<eod>") : std::string(1, static_cast<char>(id));
    }
    out.push_back(text);
  }
  return out;
}

/// Prepares `content` as a file of that name and gives the documents back.
Texts prepare(std::string_view name, std::string_view content, PrepareOptions options = {},
              PrepareReport* report = nullptr) {
  ScratchFolder scratch;
  put(scratch / name, content);
  options.inputs = {scratch / name};
  options.output = scratch / "out";
  auto got = prepare_dataset(BytesWithEod(), options);
  if (report) *report = got;
  auto documents = read_documents(scratch / "out");
  CHECK(got.documents == static_cast<int64_t>(documents.size()));
  CHECK(got.bytes_read == content.size());
  return documents;
}

}  // namespace

TEST_CASE("one document per line of JSON lines, whatever the line ends") {
  for (std::string end : {"\n", "\r\n"}) {
    for (bool final_end : {true, false}) {
      std::string content = R"({"text": "one"})" + end + end +
                            R"({"id": 7, "text": "tw\u00f6\n", "meta": {"text": [1]}})" + end +
                            "  \t" + end + R"( {"text":""} )" + end + R"({"text":"\ud83d\ude00"})";
      if (final_end) content += end;
      CHECK(prepare("x.jsonl", content) == Texts{"one", "tw\xC3\xB6\n", "", "\xF0\x9F\x98\x80"});
      CHECK(prepare("x.jsonl", "\xEF\xBB\xBF" + content).size() == 4);
    }
  }
  CHECK(prepare("x.jsonl", "{\"body\":\"b\",\"text\":\"t\"}",
                {.append_eod = true, .json_keys = {"body"}}) == Texts{"b<eod>"});
  CHECK(prepare("x.json", "{\"text\":\"t\"}", {.format = InputFormat::jsonl}) == Texts{"t"});
}

TEST_CASE("an empty document has no tokens and no end mark") {
  PrepareReport report;
  CHECK(prepare("x.jsonl", "{\"text\":\"\"}\n{\"text\":\"a\"}\n", {.append_eod = true}, &report) ==
        Texts{"", "a<eod>"});
  CHECK(report.empty_documents == 1);
  CHECK(report.tokens == 2);
  CHECK(report.bytes_written == 4);
}

TEST_CASE("text files are divided as asked, and nothing is lost") {
  const std::string text = "\n  \nAlpha\nbeta\n\n\nGamma\n\ndelta";
  CHECK(prepare("x.txt", text) == Texts{text});
  CHECK(prepare("x.txt", text, {.split_on = SplitOn::blank_lines}) ==
        Texts{"\n  \nAlpha\nbeta\n\n\n", "Gamma\n\n", "delta"});
  CHECK(prepare("x.txt", text, {.split_on = SplitOn::lines}) ==
        Texts{"\n  \nAlpha\n", "beta\n\n\n", "Gamma\n\n", "delta"});
  CHECK(prepare("x.txt", text, {.document_bytes = 12}) ==
        Texts{"\n  \nAlpha\nbeta\n\n\n", "Gamma\n\ndelta"});
  CHECK(prepare("x.txt", "a\r\nb\r\n\r\nc\rd\r\n", {.split_on = SplitOn::blank_lines}) ==
        Texts{"a\nb\n\n", "c\rd\n"});
  CHECK(prepare("x.TXT", "\xEF\xBB\xBFhi", {.append_eod = true}) == Texts{"hi<eod>"});
}

TEST_CASE("a zero byte makes a line of a text invalid") {
  const std::string text("a\0b\nc\n", 6);
  CHECK(prepare("x.txt", text, {.on_bad = OnBad::replace}) == Texts{"a\xEF\xBF\xBD"
                                                                    "b\nc\n"});
  CHECK(prepare("x.txt", text, {.on_bad = OnBad::skip}) == Texts{"c\n"});
  expect_error(ErrorClass::data, {"x.txt:1", "zero byte at byte 1", "--bad-lines"},
               [&] { prepare("x.txt", text); });
}

TEST_CASE("a text may begin with the name of a format") {
  for (const std::string text : {"PAR1 is a magic\n", "GGUF files\n", "ORC\n", "BZh9 and so on\n",
                                 "SQLite format\n", "ARROW1\n", "PK\n", "hi"})
    CHECK(prepare("x.txt", text) == Texts{text});
}

TEST_CASE("files that are no text are refused by their format's name, with a conversion") {
  struct Case {
    std::string start, name, says, help;
  };
  const Case cases[] = {
      {"PAR1\x15\x04", "x.parquet", "a Parquet file", "pd.read_parquet('"},
      {std::string("ARROW1\0\0", 8), "x.arrow", "an Arrow file", "datasets.Dataset.from_file('"},
      {"PK\x03\x04..", "x.zip", "a ZIP archive", "unzip "},
      {std::string("\xFD"
                   "7zXZ\0",
                   6),
       "x.xz", "compressed by xz", "xz -dc "},
      {"BZh91AY&SY", "x.bz2", "compressed by bzip2", "bzip2 -dc "},
      {"%PDF-1.4\n", "x.pdf", "a PDF document", "pdftotext "},
      {"\x93NUMPY\x01", "x.npy", "NumPy arrays", "JSON lines from which"},
      {"a,b\n1,2\n", "x.csv", "a table (CSV)", "pd.read_csv('"},
      {"a\tb\n1\t2\n", "x.tsv", "a table (TSV)", "sep='\\t'"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    ScratchFolder scratch;
    put(scratch / c.name, c.start);   // by its name
    put(scratch / "y.txt", c.start);  // by its content
    auto attempt = [&](const std::string& name, InputFormat format, ErrorClass error_class) {
      expect_error(error_class, {name, c.says, c.help}, [&] {
        prepare_dataset(BytesWithEod(), {.inputs = {scratch / name},
                                         .output = scratch / "out",
                                         .format = format,
                                         .on_bad = OnBad::replace});
      });
      CHECK_FALSE(fs::exists(scratch / "out.idx"));
    };
    attempt(c.name, InputFormat::by_extension, ErrorClass::config);
    if (c.says.starts_with("a table")) {  // the user says that it is meant as a text
      CHECK(prepare(c.name, c.start, {.format = InputFormat::text}) == Texts{c.start});
      continue;
    }
    attempt("y.txt", InputFormat::by_extension, ErrorClass::data);
    attempt(c.name, InputFormat::text, ErrorClass::data);
    attempt(c.name, InputFormat::jsonl, ErrorClass::data);
    fs::create_directory(scratch / "folder");
    put(scratch / "folder" / c.name, c.start);
    attempt("folder", InputFormat::by_extension, ErrorClass::data);
  }
}

TEST_CASE("several inputs become one pair, in order") {
  ScratchFolder scratch;
  put(scratch / "a.txt", "A");
  put(scratch / "b.jsonl", "{\"text\":\"B\"}\n{\"text\":\"C\"}");
  std::vector<PrepareReport> reports;
  PrepareOptions options{.inputs = {scratch / "a.txt", scratch / "b.jsonl"},
                         .output = scratch / "out"};
  auto report = prepare_dataset(BytesWithEod(), options,
                                [&](const PrepareReport& r) { reports.push_back(r); });
  CHECK(read_documents(scratch / "out") == Texts{"A", "B", "C"});
  CHECK(report.bytes_read == 26);
  CHECK(report.bytes_total == 26);
  REQUIRE(!reports.empty());
  CHECK(reports.back().tokens == 3);
  CHECK(IndexedFile(scratch / "out").dtype() == DType::u16);
  prepare_dataset(BytesWithEod(true, 70000),
                  {.inputs = {scratch / "a.txt"}, .output = scratch / "wide"});
  CHECK(IndexedFile(scratch / "wide").dtype() == DType::i32);
}

TEST_CASE("broken JSON lines are reported with file and line, and leave no pair") {
  struct Fault {
    std::string line, says;
  };
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  for (const Fault& fault : {Fault{"{\"text\": 1}", "a number in the field 'text'"},
                             {"{\"text\": null}", "null in the field"},
                             {"{\"text\": true}", "a boolean"},
                             {"{\"text\": [\"a\", 1]}", "a number in the list in the field 'text'"},
                             {"{\"text\": [\"a\", [\"b\"]]}", "a list in the list"},
                             {"{\"text\": {\"text\": \"a\"}}", "an object"},
                             {"{\"txt\": \"a\"}", "no field 'text'"},
                             {"{}", "no field 'text'"},
                             {"{\"text\":\"a\",\"text\":\"b\"}", "twice"},
                             {"[\"a\"]", "is a list, not an object"},
                             {"\"a\"", "is a string, not an object"},
                             {"12", "is a number, not an object"},
                             {"{\"text\": \"a\"", "not valid JSON"},
                             {"{\"text\": \"a\"} x", "not valid JSON"},
                             {"{\"text\": \"a\"}{\"text\": \"b\"}", "not valid JSON"},
                             {"{'text': 'a'}", "not valid JSON"},
                             {"{\"text\": \"a\\x\"}", "not valid JSON"},
                             {"{\"text\": \"\\ud800\"}", "not valid JSON"},
                             {std::string("{\"text\": \"a\0\"}", 14), "not valid JSON"},
                             {"{\"text\": \"a\xFF\"}", "not valid UTF-8 at byte 11"},
                             {"{\"text\": \"a\xED\xA0\x80\"}", "not valid UTF-8"},
                             {"{\"x\": " + deep + ", \"text\": \"a\"}", "deeper than 64"}}) {
    CAPTURE(fault.line);
    ScratchFolder scratch;
    put(scratch / "x.jsonl", "{\"text\":\"good\"}\n\n" + fault.line + "\n{\"text\":\"good\"}\n");
    PrepareOptions options{.inputs = {scratch / "x.jsonl"}, .output = scratch / "out"};
    expect_error(ErrorClass::data, {(scratch / "x.jsonl").string() + ":3", fault.says},
                 [&] { prepare_dataset(BytesWithEod(), options); });
    CHECK(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()) == 1);
    options.on_bad = OnBad::skip;
    CHECK(prepare_dataset(BytesWithEod(), options).skipped == 1);
    CHECK(read_documents(scratch / "out") == Texts{"good", "good"});
    options.max_bad = 0;
    options.overwrite = true;
    expect_error(ErrorClass::data, {":3", "more than 0 invalid", fault.says},
                 [&] { prepare_dataset(BytesWithEod(), options); });
    CHECK(read_documents(scratch / "out") ==
          Texts{"good", "good"});  // the failed run left the old pair alone
  }
}

TEST_CASE("broken UTF-8 can be replaced") {
  PrepareReport report;
  CHECK(prepare("x.txt",
                "ok\na\xFF\xFE"
                "b\n",
                {.on_bad = OnBad::replace}, &report) == Texts{"ok\na\xEF\xBF\xBD\xEF\xBF\xBD"
                                                              "b\n"});
  CHECK(report.replaced == 1);
  CHECK(prepare("x.txt", "ok\na\xFF\nend", {.on_bad = OnBad::skip}, &report) == Texts{"ok\nend"});
  CHECK(report.skipped == 1);
  CHECK(prepare("x.jsonl", "{\"text\":\"a\\ud800b\xFF\"}", {.on_bad = OnBad::replace}) ==
        Texts{"a\xEF\xBF\xBD"
              "b\xEF\xBF\xBD"});
}

TEST_CASE("lone surrogate escapes are found, pairs and escaped backslashes kept") {
  struct Case {
    std::string in, out;
    bool changed;
  };
  for (const Case& c : {Case{R"(\ud83d\ude00)", R"(\ud83d\ude00)", false},
                        {R"(\ud83d)", R"(\uFFFD)", true},
                        {R"(\ude00\ud83d)", R"(\uFFFD\uFFFD)", true},
                        {R"(\\ud83d)", R"(\\ud83d)", false},
                        {R"(\\\ud83d)", R"(\\\uFFFD)", true},
                        {R"(\ud83dx)", R"(\uFFFDx)", true},
                        {R"(\ud83d\u0041)", R"(\uFFFD\u0041)", true},
                        {R"(\ud8)", R"(\ud8)", false},
                        {R"(\)", R"(\)", false},
                        {R"(\ud83d\ud83d\ude00)", R"(\uFFFD\ud83d\ude00)", true},
                        {R"(\uDBFF\uDFFF)", R"(\uDBFF\uDFFF)", false}}) {
    std::string out;
    CHECK(repair_surrogates(c.in, out) == c.changed);
    CHECK(out == c.out);
  }
}

TEST_CASE("long lines and documents stop at the limit, at any place in the buffer") {
  const std::string filler(3'000'000, 'x');
  PrepareOptions options{.max_document_bytes = 3'000'100};
  CHECK(prepare("x.txt", filler + "\n" + filler,
                {.split_on = SplitOn::lines, .max_document_bytes = 3'000'100})
            .size() == 2);
  CHECK(prepare("x.jsonl", "{\"text\":\"" + filler + "\"}", options)[0] == filler);
  for (size_t size : {size_t{3'000'101}, size_t{5'000'000}}) {
    for (std::string end : {"", "\n", "\nmore\n"}) {
      ScratchFolder scratch;
      put(scratch / "x.txt", "a\n" + std::string(size, 'x') + end);
      options.inputs = {scratch / "x.txt"};
      options.output = scratch / "out";
      options.split_on = SplitOn::lines;
      expect_error(ErrorClass::data, {"x.txt:2", "--max-document-bytes"},
                   [&] { prepare_dataset(BytesWithEod(), options); });
    }
  }
  ScratchFolder scratch;
  put(scratch / "x.txt", filler + "\n" + filler);
  expect_error(ErrorClass::data, {"x.txt:2", "--split-on"}, [&] {
    prepare_dataset(BytesWithEod(), {.inputs = {scratch / "x.txt"},
                                     .output = scratch / "out",
                                     .max_document_bytes = 5'000'000});
  });
}

TEST_CASE("inputs that cannot be text are reported before any work") {
  ScratchFolder scratch;
  put(scratch / "good.txt", "good");
  auto attempt = [&](const fs::path& path, ErrorClass error_class,
                     std::initializer_list<std::string> parts) {
    expect_error(error_class, parts, [&] {
      prepare_dataset(BytesWithEod(),
                      {.inputs = {scratch / "good.txt", path}, .output = scratch / "out"});
    });
  };
  attempt(scratch / "absent.txt", ErrorClass::io,
          {"absent.txt", "there is no such file or folder"});
  fs::create_directory(scratch / "folder.txt");
  attempt(scratch / "folder.txt", ErrorClass::data, {"folder.txt", "holds no text"});
  put(scratch / "a.bin", "x");
  attempt(scratch / "a.bin", ErrorClass::config, {"a.bin", "--format"});
  put(scratch / "wide.txt", std::string("\xFF\xFE"
                                        "a\0",
                                        4));
  attempt(scratch / "wide.txt", ErrorClass::data, {"UTF-16", "iconv"});
  put(scratch / "z.jsonl", "\x1F\x8B\x08");
  attempt(scratch / "z.jsonl", ErrorClass::data, {"z.jsonl", "ends inside its compressed stream"});
  attempt("-", ErrorClass::config, {"standard input", "--format"});
  for (const char* nothing : {"", "\n\n  \n", "\xEF\xBB\xBF"}) {
    put(scratch / "none.txt", nothing);
    expect_error(ErrorClass::data, {"no text", "none.txt"}, [&] {
      prepare_dataset(BytesWithEod(),
                      {.inputs = {scratch / "none.txt"}, .output = scratch / "out"});
    });
  }
  expect_error(ErrorClass::config, {"no end-of-document"}, [&] {
    prepare_dataset(
        BytesWithEod(false),
        {.inputs = {scratch / "good.txt"}, .output = scratch / "out", .append_eod = true});
  });
  CHECK_FALSE(fs::exists(scratch / "out.idx"));
  CHECK_FALSE(fs::exists(scratch / "out.bin.partial"));
}

TEST_CASE("a preparation that is given up leaves nothing, also when all is read") {
  for (size_t bytes : {size_t{3}, size_t{20'000'000}}) {
    ScratchFolder scratch;
    put(scratch / "x.txt", std::string(bytes, 'a') + "\n");
    PrepareOptions options{
        .inputs = {scratch / "x.txt"}, .output = scratch / "out", .split_on = SplitOn::lines};
    CHECK_THROWS_WITH(
        prepare_dataset(BytesWithEod(), options,
                        [](const PrepareReport&) { throw std::runtime_error("stop"); }),
        "stop");
    CHECK_FALSE(fs::exists(scratch / "out.idx"));
    CHECK_FALSE(fs::exists(scratch / "out.bin"));
  }
}

TEST_CASE("summaries and scans") {
  ScratchFolder scratch;
  put(scratch / "x.jsonl",
      "{\"text\":\"abc\"}\n{\"text\":\"\"}\n{\"text\":\"z\"}\n{\"text\":\"hello\"}\n");
  prepare_dataset(BytesWithEod(), {.inputs = {scratch / "x.jsonl"}, .output = scratch / "out"});
  IndexedFile file(scratch / "out");
  auto summary = summarize(file);
  CHECK(summary.documents == 4);
  CHECK(summary.sequences == 3);
  CHECK(summary.tokens == 9);
  CHECK(summary.empty_documents == 1);
  CHECK(summary.shortest == 0);
  CHECK(summary.median == 3);
  CHECK(summary.longest == 5);
  auto range = scan_tokens(file);
  CHECK(range.smallest == 'a');
  CHECK(range.largest == 'z');
  expect_error(ErrorClass::data, {"document 2", "token 0", "id 122", "vocabulary of 122"},
               [&] { scan_tokens(file, 'z'); });
  // The first invalid id, not the largest.
  expect_error(ErrorClass::data, {"document 0", "token 1", "id 98", "vocabulary of 98"},
               [&] { scan_tokens(file, 'b'); });
}

TEST_CASE("real texts survive the round trip") {
  fs::path folder = shared_data("text");
  if (folder.empty()) return;
  for (const char* name : {"tinyshakespeare.txt", "wagahaiwa_nekodearu.ja.txt"}) {
    auto text = read_file(folder / name);
    std::string wanted;
    for (char c : text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text)
      if (c == '\n' && !wanted.empty() && wanted.back() == '\r')
        wanted.back() = '\n';
      else
        wanted += c;
    for (SplitOn split : {SplitOn::file, SplitOn::lines, SplitOn::blank_lines}) {
      auto documents = prepare(name, text, {.split_on = split});
      std::string joined;
      for (const auto& document : documents) joined += document;
      CHECK(joined == wanted);
    }
  }
  auto text = read_file(folder / "c4_demo.jsonl");
  CHECK(prepare("c4.jsonl", text).size() == 300);
}
