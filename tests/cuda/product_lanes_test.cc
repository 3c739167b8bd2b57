#include "product_lanes.h"

#include <doctest/doctest.h>

#include <set>

using namespace mtrain;
using cuda::is_small_product;
using cuda::memory_of;
using cuda::ProductLanes;

namespace {

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

/// Rows [begin, end) of x times expert e's matrix, as the experts of a layer do it.
GemmArgs expert(int64_t e, int64_t begin, int64_t end) {
  constexpr int64_t kIn = 64, kOut = 32;
  return {.a = at(static_cast<uintptr_t>(0x100000 + begin * kIn * 2)),
          .b = at(static_cast<uintptr_t>(0x800000 + e * kIn * kOut * 2)),
          .c = at(static_cast<uintptr_t>(0x400000 + begin * kOut * 2)),
          .transpose_b = true,
          .m = end - begin,
          .n = kOut,
          .k = kIn,
          .lda = kIn,
          .ldb = kIn,
          .ldc = kOut,
          .dtype = DType::bf16,
          .c_dtype = DType::bf16};
}

}  // namespace

TEST_CASE("the experts of a layer spread over all lanes") {
  ProductLanes lanes;
  std::set<int> seen;
  for (int64_t e = 0; e < 8; ++e)
    seen.insert(lanes.place(memory_of(expert(e, 10 * e, 10 * e + 10))));
  CHECK(seen == std::set<int>{0, 1, 2, 3});
  lanes.joined();
  CHECK_FALSE(lanes.busy());
}

TEST_CASE(
    "a product that needs another's result follows it, and one that needs two waits for all") {
  ProductLanes lanes;
  GemmArgs first = expert(0, 0, 10), second = expert(1, 10, 20);
  int a = lanes.place(memory_of(first)), b = lanes.place(memory_of(second));
  CHECK(a != b);
  GemmArgs reader = first;
  reader.a = first.c, reader.c = at(0x10000000);
  reader.lda = reader.k = 32, reader.ldb = 32;
  CHECK(lanes.place(memory_of(reader)) == a);
  GemmArgs both = reader;
  both.m = 20, both.c = at(0x20000000);  // rows of both results
  CHECK(lanes.place(memory_of(both)) == ProductLanes::kMain);
}

TEST_CASE("writing what another reads, or writes, is a conflict; reading the same is none") {
  for (int which = 0; which < 4; ++which) {
    ProductLanes lanes;
    GemmArgs first = expert(0, 0, 10), second = expert(1, 10, 20);
    if (which == 0) second.a = first.a, second.b = first.b;  // both read the same
    if (which == 1) second.c = const_cast<void*>(first.a);   // into what the first reads
    if (which == 2) second.c = first.c;                      // into the first's result
    if (which == 3)
      second.bias = first.c, second.bias_dtype = DType::bf16;  // a bias made by the first
    int a = lanes.place(memory_of(first)), b = lanes.place(memory_of(second));
    CHECK((a == b) == (which != 0));
  }
}

TEST_CASE("the memory of transposed, strided and batched products ends at their last element") {
  GemmArgs g{.a = at(1000),
             .b = at(100000),
             .c = at(200000),
             .transpose_a = true,
             .m = 3,
             .n = 5,
             .k = 7,
             .lda = 4,
             .ldb = 6,
             .ldc = 9,
             .batch = 2,
             .stride_a = 100,
             .stride_b = 50,
             .stride_c = 40,
             .dtype = DType::bf16,
             .c_dtype = DType::f32};
  auto use = memory_of(g);
  REQUIRE(use.reads.size() == 2);
  CHECK(use.reads[0].end == 1000 + 2 * (100 + 6 * 4 + 3));
  CHECK(use.reads[1].end == 100000 + 2 * (50 + 6 * 6 + 5));
  CHECK(use.write.end == 200000 + 4 * (40 + 2 * 9 + 5));
}

TEST_CASE("only products that leave half of the device idle leave the main stream") {
  GemmArgs g = expert(0, 0, 10);
  CHECK(is_small_product(g, 132));
  g.m = 8192, g.n = 4096;
  CHECK_FALSE(is_small_product(g, 132));
}
