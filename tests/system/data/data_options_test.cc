// Options and settings of `mtrain data` that have no effect on an input are refused by name.
#include <doctest/doctest.h>

#include <tuple>

#include "../cli/shell.h"
#include "data_files.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

/// x.jsonl: three records, of 10, 11 and 12 tokens. x: a pair of three documents.
void put_inputs(const ScratchFolder& scratch) {
  put(scratch / "x.jsonl",
      "{\"prompt\": \"0\", \"completion\": \"abcdefgh\"}\n"
      "{\"prompt\": \"00\", \"completion\": \"abcdefgh\"}\n"
      "{\"prompt\": \"000\", \"completion\": \"abcdefgh\"}\n");
  put(scratch / "x.txt", "one\ntwo\nthree\n");
  auto done = cli_in(scratch.path(), "data prepare -i x.txt -o x -t byte --split-on lines");
  REQUIRE_MESSAGE(done.status == 0, done.err);
}

/// Each command fails as a mistake in its use, says `says` and prints no result.
void expect_refused(const ScratchFolder& scratch, const std::string& command,
                    const std::string& says) {
  CAPTURE(command);
  auto refused = cli_in(scratch.path(), command);
  CHECK(refused.status == 2);
  CHECK_MESSAGE(has(refused.err, says), refused.err);
  CHECK(refused.out.empty());
}

}  // namespace

TEST_CASE("show refuses the options of records for a pair, and that of pairs for records") {
  ScratchFolder scratch;
  put_inputs(scratch);
  for (const auto& [words, name] : {std::pair{"--seq-length 3", "--seq-length"},
                                    {"--dataset sft", "--dataset"},
                                    {"dataset.train_on=last", "dataset.train_on"}}) {
    expect_refused(scratch, cat("data show x -t byte ", words),
                   cat(name, " has no effect on the pair x"));
    const auto records = cli_in(scratch.path(), cat("data show x.jsonl -t byte ", words));
    CHECK_MESSAGE(records.status == 0, records.err);
  }
  expect_refused(scratch, "data show x.jsonl -t byte --any-tokenizer",
                 "--any-tokenizer has no effect on records");
  CHECK(cli_in(scratch.path(), "data show x -t byte --any-tokenizer --ids -d 0 -n 2").status == 0);
}

TEST_CASE("messages on settings of records quote the user's words") {
  ScratchFolder scratch;
  put_inputs(scratch);
  for (const char* command : {"data show x.jsonl", "data pack x.jsonl"}) {
    const auto bad = cli_in(scratch.path(), cat(command, " -t byte dataset.train_on=answers"));
    CHECK_MESSAGE(bad.status == 10, bad.err);
    CHECK_MESSAGE(has(bad.err, "command line: dataset.train_on=answers"), bad.err);
    expect_refused(scratch, cat(command, " -t byte model.seq_length=3"), "write --seq-length 3");
    expect_refused(scratch, cat(command, " -t byte optimizer.lr=3"), "optimizer.lr has no effect");
  }
}

TEST_CASE("show reads a file of records under any name, unless there is a pair of this name") {
  ScratchFolder scratch;
  put_inputs(scratch);
  fs::copy(scratch / "x.jsonl", scratch / "chats.txt");
  const auto shown = cli_in(scratch.path(), "data show chats.txt -t byte dataset.train_on=last");
  CHECK_MESSAGE(shown.status == 0, shown.err);
  CHECK_MESSAGE(has(shown.out, "chats.txt (prompt_completion): 3 of 3 records"), shown.out);
  fs::copy(scratch / "x.jsonl", scratch / "x");
  CHECK(has(cli_in(scratch.path(), "data show x -t byte").out, "document 0"));
  expect_refused(scratch, "data show - -t byte", "not the standard input");
}

TEST_CASE("pack refuses --force without files to write") {
  ScratchFolder scratch;
  put_inputs(scratch);
  expect_refused(scratch, "data pack x.jsonl -t byte --force", "--output");
  CHECK(cli_in(scratch.path(), "data pack x.jsonl -t byte --force -o p").status == 0);
}

TEST_CASE("inspect and verify refuse a vocabulary without ids") {
  ScratchFolder scratch;
  put_inputs(scratch);
  for (const char* command : {"data inspect x --vocab-size ", "data verify x --vocab-size "}) {
    for (const char* size : {"0", "-1"})
      expect_refused(scratch, cat(command, size), "--vocab-size");
    CHECK(cli_in(scratch.path(), cat(command, 257)).status == 0);
    CHECK(cli_in(scratch.path(), cat(command, 1)).status == 11);  // reads the tokens
  }
}

TEST_CASE("render refuses settings without a tokenizer, and --name where there is one template") {
  ScratchFolder scratch;
  put(scratch / "x.jsonl",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
      "\n");
  put(scratch / "t.jinja", "{% for m in messages %}{{ m.content }};{% endfor %}");
  put(scratch / "several.json", R"({"chat_template": [{"name": "default", "template": "d"},
                                                     {"name": "other", "template": "{{ messages[0].content }}{{ messages[1].content }}"}]})");
  for (const char* setting : {"foo=3", "extra_ids=2"})
    expect_refused(scratch, cat("data render x.jsonl --template vicuna ", setting),
                   cat(setting, " is a setting of a tokenizer, but no tokenizer is given"));
  CHECK(
      cli_in(scratch.path(), "data render x.jsonl --template vicuna -t byte extra_ids=2").status ==
      0);
  for (const char* name : {"vicuna", "t.jinja"})
    for (const char* which : {"other", "default"})
      expect_refused(scratch, cat("data render x.jsonl --template ", name, " --name ", which),
                     cat("--name has no effect on the chat template ", name));
  auto other = cli_in(scratch.path(), "data render x.jsonl --template several.json --name other");
  CHECK_MESSAGE(has(other.out, R"("text":"ab")"), other.out, other.err);
}

TEST_CASE("pack refuses dataset.packing=none") {
  ScratchFolder scratch;
  put_inputs(scratch);
  expect_refused(scratch, "data pack x.jsonl -t byte dataset.packing=none -o p",
                 "dataset.packing=none: data pack packs the records");
  CHECK_FALSE(fs::exists(scratch / "p.idx"));
  auto packed = cli_in(scratch.path(), "data pack x.jsonl -t byte dataset.packing=offline");
  CHECK_MESSAGE(packed.status == 0, packed.err);
  CHECK(cli_in(scratch.path(), "data show x.jsonl -t byte dataset.packing=none").status == 0);
}

TEST_CASE("show and pack refuse settings that name or divide other records than their file's") {
  ScratchFolder scratch;
  put_inputs(scratch);
  for (const char* command : {"data show", "data pack"})
    for (const char* setting :
         {"path=x.jsonl", "valid_path=gone", "test_path=x.jsonl", "split=90,10,0"}) {
      const std::string text = setting;
      expect_refused(scratch, cat(command, " x.jsonl -t byte dataset.", setting),
                     cat("dataset.", text.substr(0, text.find('=')),
                         " has no effect here: the command reads all records of x.jsonl"));
    }
  expect_refused(scratch, "data show x.jsonl -t byte --dataset preference dataset.split=90,10,0",
                 "dataset.split has no effect");
}

TEST_CASE(
    "prepare refuses --document-bytes with documents of one line, and --max-bad without skips") {
  ScratchFolder scratch;
  put(scratch / "x.txt", "one\ntwo\nthree\n");
  const std::string command = "data prepare -i x.txt -o o -t byte ";
  expect_refused(scratch, command + "--split-on lines --document-bytes 5",
                 "--document-bytes has no effect with --split-on lines");
  expect_refused(scratch, command + "--document-bytes 0 --split-on lines",
                 "--document-bytes has no effect with --split-on lines");
  for (const char* refuse : {"", " --bad-lines refuse"})
    expect_refused(scratch, cat(command, "--max-bad 5", refuse),
                   "--max-bad has no effect with --bad-lines refuse");
  CHECK_FALSE(fs::exists(scratch / "o.idx"));
  for (const char* fine :
       {"--split-on blank-lines --document-bytes 5", "--document-bytes 5", "--split-on lines",
        "--bad-lines skip --max-bad 5", "--bad-lines replace --max-bad 5", "--bad-lines refuse"})
    CHECK_MESSAGE(cli_in(scratch.path(), cat(command, "-f ", fine)).status == 0, fine);
}

TEST_CASE("show and pack name their own option, or packed_length, where samples are too short") {
  ScratchFolder scratch;
  put_inputs(scratch);
  put(scratch / "p.jsonl", "{\"prompt\": \"0\", \"chosen\": \"abc\", \"rejected\": \"d\"}\n");
  put(scratch / "late.jsonl", "{\"prompt\": \"0000000000\", \"completion\": \"a\"}\n");
  for (const auto& [command, status, says] :
       {std::tuple{"data show x.jsonl -t byte --seq-length 4 dataset.too_long=fail", 11,
                   "raise --seq-length, or set dataset.too_long"},
        {"data pack x.jsonl -t byte --seq-length 4 dataset.too_long=fail", 11,
         "raise --seq-length, or set dataset.too_long"},
        {"data pack x.jsonl -t byte --seq-length 16 dataset.packed_length=4 dataset.too_long=fail",
         11, "raise dataset.packed_length, or set dataset.too_long"},
        {"data show late.jsonl -t byte --seq-length 4", 11, "raise --seq-length"},
        {"data pack late.jsonl -t byte --seq-length 16 dataset.packed_length=4", 11,
         "raise dataset.packed_length"},
        {"data show p.jsonl -t byte --dataset preference --seq-length 4 dataset.too_long=fail", 11,
         "raise --seq-length, or set dataset.too_long=drop"},
        {"data pack x.jsonl -t byte --seq-length 16 dataset.packed_length=32", 10,
         "32 tokens do not fit in a sample of 16"}}) {
    CAPTURE(command);
    auto refused = cli_in(scratch.path(), command);
    CHECK(refused.status == status);
    CHECK_MESSAGE(has(refused.err, says), refused.err);
    CHECK_MESSAGE(!has(refused.err, "model.seq_length"), refused.err);
  }
}

TEST_CASE("every command that reads JSON lines reads compressed ones") {
  ScratchFolder scratch;
  const std::string lines =
      "{\"text\": \"one\", \"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
      "{\"role\": \"assistant\", \"content\": \"b\"}]}\r\n\n"
      "{\"text\": \"two\", \"messages\": [{\"role\": \"user\", \"content\": \"c\"}, "
      "{\"role\": \"assistant\", \"content\": \"d\"}]}";
  put(scratch / "x.jsonl", lines);
  put(scratch / "x.jsonl.gz", stored_gzip(lines));
  put(scratch / "bad.jsonl.gz", stored_gzip(lines + "\n{"));
  using Words = std::pair<const char*, const char*>;  // before and after the file
  for (const auto& [command, options] :
       {Words{"data tokenize -t byte -i ", ""}, Words{"data render ", " --template chatml -t byte"},
        Words{"data show ", " -t byte dataset.chat_template=chatml dataset.format=openai"}}) {
    CAPTURE(std::string(command));
    const auto plain = cli_in(scratch.path(), cat(command, "x.jsonl", options)),
               compressed = cli_in(scratch.path(), cat(command, "x.jsonl.gz", options));
    CHECK_MESSAGE(plain.status == 0, plain.err);
    CHECK_MESSAGE(compressed.status == 0, compressed.err);
    std::string same = compressed.out;
    for (size_t at; (at = same.find("x.jsonl.gz")) != std::string::npos;) same.erase(at + 7, 3);
    CHECK(same == plain.out);
    CHECK_FALSE(plain.out.empty());
    const auto bad = cli_in(scratch.path(), cat(command, "bad.jsonl.gz", options));
    CHECK_MESSAGE(has(bad.err, "bad.jsonl.gz:4: is not valid JSON"), bad.err);
  }
}
