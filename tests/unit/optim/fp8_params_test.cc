// Weights whose values are FP8 codes: the same training, half the bytes.
#include <doctest/doctest.h>

#include "mtrain/base/error.h"
#include "zero_fixture.h"

namespace mtrain {
namespace {

using zero::Job;
using zero::Outcome;
using zero::same;
using zero::train;
using Fp8 = Job::Fp8;

Job fp8_job(Fp8 recipe, int ranks, int zero_stage) {
  return {
      .ranks = ranks, .zero_stage = zero_stage, .steps = 4, .dtype = DType::bf16, .fp8 = recipe};
}

Outcome with_codes(Job job) {
  job.codes = true;
  INFO(zero::text(job));
  return train(job);
}

int64_t gathered(const Outcome& o) { return o.bytes[CommKind::all_gather].bytes_sent; }

TEST_CASE("FP8 products are another computation, which learns") {
  Job job = fp8_job(Fp8::none, 2, 1);
  Outcome plain = train(job);
  for (Fp8 recipe : {Fp8::tensorwise, Fp8::delayed}) {
    Outcome fp8 = train(fp8_job(recipe, 2, 1));
    CHECK(fp8.losses.back() < fp8.losses.front());
    CHECK(fp8.losses != plain.losses);
  }
}

TEST_CASE("weights as FP8 codes: the same bits in every stage, on any number of ranks") {
  for (Fp8 recipe : {Fp8::tensorwise, Fp8::delayed})
    for (int ranks : {1, 2, 3, 4})
      for (int zero_stage : {1, 2, 3}) {
        Job job = fp8_job(recipe, ranks, zero_stage);
        INFO(zero::text(job));
        CHECK(same(with_codes(job), train(job)));
      }
}

TEST_CASE(
    "weights as FP8 codes: overlap, recomputation, copies and ways to share out change no bit") {
  for (Fp8 recipe : {Fp8::tensorwise, Fp8::delayed})
    for (int zero_stage : {1, 3}) {
      Job job = fp8_job(recipe, 4, zero_stage);
      Outcome plain = train(job);
      INFO(zero::text(job));
      job.overlap = true;
      CHECK(same(with_codes(job), plain));
      job.recompute = true, job.deferred = false, job.bucket_size = 0;
      CHECK(same(with_codes(job), plain));
      job.hsdp = 2;
      Outcome hybrid = train(job);
      CHECK(same(with_codes(job), hybrid));
      if (zero_stage < 3) continue;
      job.outer_zero = true;
      CHECK(same(with_codes(job), hybrid));
    }
  Job whole = fp8_job(Fp8::tensorwise, 3, 1);
  whole.whole = true;
  CHECK(same(with_codes(whole), train(whole)));
}

TEST_CASE("weights as FP8 codes: ranks send half of their bytes, and hold half of them") {
  for (int ranks : {2, 4})
    for (int zero_stage : {1, 2, 3}) {
      Job job = fp8_job(Fp8::tensorwise, ranks, zero_stage);
      job.micro_batches = 1, job.layers = 5, job.width = 64, job.bucket_size = 0;
      INFO(zero::text(job));
      Outcome wide = train(job), narrow = with_codes(job);
      // A step gathers the values once, with zero 3 before forward and before backward, but the
      // last block's once.
      int64_t once = wide.quantized * (ranks - 1) / ranks,
              saved = gathered(wide) - gathered(narrow);
      REQUIRE(wide.quantized >= 4 * 3 * 64 * 129);
      CHECK(saved >= (zero_stage == 3 ? once + once / 2 : once));
      CHECK(saved <= (zero_stage == 3 ? 2 * once : once));
      // What the scales take: a float for each matrix.
      int64_t scales = narrow.bytes[CommKind::all_reduce].bytes_sent -
                       wide.bytes[CommKind::all_reduce].bytes_sent;
      CHECK(scales > 0);
      CHECK(scales <= 2 * 4 * narrow.matrices);
      int64_t held = zero_stage == 3 ? wide.quantized / ranks : wide.quantized;
      for (size_t r = 0; r < wide.held.size(); ++r) {
        auto fell = static_cast<int64_t>(wide.held[r][MemoryUse::parameters]) -
                    static_cast<int64_t>(narrow.held[r][MemoryUse::parameters]);
        CHECK(fell >= held - 4096);
        CHECK(fell <= held);
      }
    }
}

TEST_CASE("codes are for those who can read them") {
  Job plain{.zero_stage = 1,
            .dtype = DType::bf16,
            .codes = true};  // no products in FP8: nothing is codes
  Outcome kept = train(plain);
  CHECK(kept.quantized == 0);
  Job none = fp8_job(Fp8::tensorwise, 2, 0);  // nothing is gathered
  none.codes = true;
  CHECK(train(none).quantized > 0);
}

}  // namespace
}  // namespace mtrain
