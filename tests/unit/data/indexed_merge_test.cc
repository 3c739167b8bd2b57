#include "mtrain/data/indexed_merge.h"

#include "data_files.h"
#include "mtrain/data/indexed_summary.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

void write_pair(const fs::path& prefix, DType dtype,
                const std::vector<std::vector<int32_t>>& documents) {
  IndexedWriter writer(prefix, dtype);
  for (const auto& ids : documents) {
    if (!ids.empty()) writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

}  // namespace

TEST_CASE("merged pairs are the pair that was never apart, byte for byte") {
  ScratchFolder scratch;
  write_pair(scratch / "a", DType::u16, {{1, 2, 3}, {}});
  write_pair(scratch / "b", DType::u16, {{4}, {5, 6}});
  write_pair(scratch / "whole", DType::u16, {{1, 2, 3}, {}, {4}, {5, 6}});
  int64_t reported = 0;
  MergeReport report = merge_indexed({scratch / "a", scratch / "b"}, scratch / "out", {},
                                     [&](int64_t, int64_t all) { reported = all; });
  CHECK(report.documents == 4);
  CHECK(report.tokens == 6);
  CHECK(reported == 6);
  for (const char* end : {".bin", ".idx"})
    CHECK(read_file(scratch / (std::string("out") + end)) ==
          read_file(scratch / (std::string("whole") + end)));
}

TEST_CASE("a pair of wider ids makes the merged one as wide") {
  ScratchFolder scratch;
  write_pair(scratch / "a", DType::u16, {{1}});
  write_pair(scratch / "b", DType::i32, {{70000}});
  merge_indexed({scratch / "a", scratch / "b"}, scratch / "out", {});
  IndexedFile out(scratch / "out");
  CHECK(out.dtype() == DType::i32);
  CHECK(scan_tokens(out).largest == 70000);
}

TEST_CASE("a pair cannot be merged into itself, and a failure leaves nothing") {
  ScratchFolder scratch;
  write_pair(scratch / "a", DType::u16, {{1}});
  expect_error(ErrorClass::usage, {"is one of the pairs"}, [&] {
    merge_indexed({scratch / "a", scratch / "a"}, scratch / "a", {.overwrite = true});
  });
  CHECK(IndexedFile(scratch / "a").num_documents() == 1);
  CHECK_THROWS_AS(
      merge_indexed({scratch / "a"}, scratch / "b", {}, [](int64_t, int64_t) { throw 1; }), int);
  CHECK_FALSE(fs::exists(scratch / "b.bin"));
  CHECK_FALSE(fs::exists(scratch / "b.idx"));
  expect_error(ErrorClass::data, {"c"}, [&] {
    merge_indexed({scratch / "a", scratch / "c"}, scratch / "b", {});
  });
}

TEST_CASE("lengths are counted by powers of two, and documents that come again are found") {
  ScratchFolder scratch;
  write_pair(scratch / "a", DType::u16, {{}, {1}, {1, 2}, {1, 2, 3}, {1, 2}, {}, {1}, {2, 1}});
  IndexedFile file(scratch / "a");
  std::vector<LengthClass> classes = length_histogram(file);
  REQUIRE(classes.size() == 3);
  CHECK(classes[0].documents == 2);
  CHECK(classes[1].documents == 2);
  CHECK(classes[2].documents == 4);
  CHECK(classes[2].tokens == 9);
  Duplicates copies = count_duplicates(file);
  CHECK(copies.documents == 2);
  CHECK(copies.tokens == 3);
}
