#include "mtrain/data/tokenizer_record.h"

#include "data_files.h"
#include "mtrain/data/indexed_merge.h"
#include "mtrain/data/prepare.h"
#include "mtrain/data/prepared_data.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

/// Bytes as ids, under a name of its own.
class NamedBytes final : public Tokenizer {
 public:
  explicit NamedBytes(std::string identity) : identity_(std::move(identity)) {}
  std::string name() const override { return "bytes"; }
  int64_t vocab_size() const override { return 256; }
  void encode_to(std::string_view text, std::vector<int32_t>& ids) const override {
    for (char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  std::string decode_bytes(std::span<const int32_t> /*ids*/) const override { return {}; }
  std::string identity() const override { return cat(identity_, ", 3 extra"); }
  std::string text_identity() const override { return identity_; }

 private:
  std::string identity_;
};

void prepare_text(const ScratchFolder& scratch, const char* name, const Tokenizer& tokenizer,
                  const char* text = "some text\n") {
  put(scratch / "x.txt", text);
  prepare_dataset(tokenizer,
                  {.inputs = {scratch / "x.txt"}, .output = scratch / name, .overwrite = true});
}

void open(const ScratchFolder& scratch, const char* name, const Tokenizer& tokenizer,
          bool any = false) {
  PreparedSettings settings;
  settings.path = name;
  settings.any_tokenizer = any;
  const DatasetContext context{
      .seq_length = 4, .seed = 0, .base_directory = scratch.path(), .tokenizer = &tokenizer};
  PreparedData(settings, context, {.dataset = "gpt", .tokens = 4});
}

}  // namespace

TEST_CASE("a file of text is refused with the command that prepares it, or the dataset for it") {
  ScratchFolder scratch;
  const NamedBytes bytes("mine");
  put(scratch / "a.jsonl", "{\"text\": \"a\", \"prompt\": \"b\"}\n");
  put(scratch / "body.jsonl", "{\"id\": 1, \"body\": \"a\"}\n");
  put(scratch / "two.jsonl", "{\"title\": \"t\", \"body\": \"a\"}\n");
  put(scratch / "chat.jsonl", "{\"messages\": []}\n");
  put(scratch / "pairs.jsonl", "{\"chosen\": \"a b\", \"rejected\": \"a c\"}\n");
  put(scratch / "broken.jsonl", "{\n");
  put(scratch / "x.txt", "a");
  auto says = [&](const char* name, std::initializer_list<std::string> parts) {
    CAPTURE(name);
    expect_error(ErrorClass::data, parts, [&] { open(scratch, name, bytes); });
  };
  says("a.jsonl", {"is text", "--tokenizer bytes --append-eod\n"});
  says("body.jsonl", {"is text", "--tokenizer bytes --json-key body --append-eod\n"});
  says("two.jsonl", {"--json-key FIELD --append-eod\n", "(FIELD: one of body, title)"});
  says("chat.jsonl", {"has records for fine-tuning", "as they are: dataset=sft"});
  says("pairs.jsonl", {"has records", "dataset=preference objective=dpo"});
  says("broken.jsonl", {"is text", "--tokenizer bytes --append-eod\n"});
  says("x.txt", {"is text", "--append-eod --split-on blank-lines\n"});
}

TEST_CASE("prepared tokens are refused under another tokenizer than the one that made them") {
  ScratchFolder scratch;
  const NamedBytes mine("mine"), other("other"), nobody("");
  prepare_text(scratch, "a", mine);
  CHECK(read_file(scratch / "a.tokenizer.json").find("\"mine\"") != std::string::npos);
  open(scratch, "a", mine);
  expect_error(ErrorClass::data,
               {"another tokenizer", "then mine", "now other", "tokenizer.type=bytes",
                "dataset.any_tokenizer=true"},
               [&] { open(scratch, "a", other); });
  open(scratch, "a", other, true);
  open(scratch, "a", nobody);

  // Pairs of other programs, and of those whose text is ids already, say nothing.
  prepare_text(scratch, "a", nobody);
  CHECK_FALSE(fs::exists(scratch / "a.tokenizer.json"));
  open(scratch, "a", other);
  // A record that an earlier pair left behind is not believed; one that is damaged is an error.
  prepare_text(scratch, "long", mine, "text of another length\n");
  fs::copy_file(scratch / "long.tokenizer.json", scratch / "a.tokenizer.json");
  open(scratch, "a", other);
  put(scratch / "long.tokenizer.json", "{");
  expect_error(ErrorClass::data, {"long.tokenizer.json", "damaged"},
               [&] { open(scratch, "long", mine); });
}

TEST_CASE("pairs of different tokenizers are merged only when asked to") {
  ScratchFolder scratch;
  const NamedBytes mine("mine"), other("other"), nobody("");
  prepare_text(scratch, "a", mine);
  prepare_text(scratch, "b", other);
  prepare_text(scratch, "c", nobody);
  merge_indexed({scratch / "a", scratch / "a"}, scratch / "aa", {});
  CHECK(read_tokenizer_record(IndexedFile(scratch / "aa"))->identity == "mine");
  expect_error(ErrorClass::data, {"/a: mine", "/b: other", "--any-tokenizer"}, [&] {
    merge_indexed({scratch / "a", scratch / "b"}, scratch / "ab", {});
  });
  CHECK_FALSE(fs::exists(scratch / "ab.idx"));
  for (const char* second : {"b", "c"}) {
    merge_indexed({scratch / "a", scratch / second}, scratch / "ab", {.overwrite = true}, {}, true);
    CHECK_FALSE(fs::exists(scratch / "ab.tokenizer.json"));
  }
}

TEST_CASE("packs are refused under another tokenizer than their manifest names") {
  ScratchFolder scratch;
  const NamedBytes mine("mine"), other("other"), nobody("");
  prepare_text(scratch, "p", nobody);
  const auto manifest = [&](const char* tokenizer, int64_t tokens) {
    put(scratch / "p.packed.json",
        cat("{\"tokenizer\": \"", tokenizer, "\", \"tokens\": ", tokens, "}"));
  };
  const int64_t tokens = IndexedFile(scratch / "p").num_tokens();
  const auto check = [&](const Tokenizer& tokenizer) {
    check_tokenizer(IndexedFile(scratch / "p"), tokenizer);
  };
  manifest("mine, 3 extra", tokens);
  CHECK(read_tokenizer_record(IndexedFile(scratch / "p"))->packed);
  check(mine);
  check(nobody);
  expect_error(ErrorClass::data,
               {"another tokenizer", "then mine, 3 extra", "now other, 3 extra",
                "choose that tokenizer", "dataset.any_tokenizer=true"},
               [&] { check(other); });
  // Datasets of texts would lose the loss mask.
  expect_error(ErrorClass::data, {"packed fine-tuning records", "dataset=sft"},
               [&] { open(scratch, "p", mine); });
  manifest("mine", tokens);  // without the extra ids
  expect_error(ErrorClass::data, {"then mine", "now mine, 3 extra"}, [&] { check(mine); });
  manifest("mine, 3 extra", tokens + 1);  // of other packs
  open(scratch, "p", other);
  put(scratch / "p.packed.json", "{}");
  expect_error(ErrorClass::data, {"p.packed.json", "damaged", "data pack"}, [&] { check(mine); });
  // A pair that replaces packs has its own record.
  manifest("other, 3 extra", tokens);
  prepare_text(scratch, "p", mine);
  CHECK_FALSE(fs::exists(scratch / "p.packed.json"));
  open(scratch, "p", mine);
}
