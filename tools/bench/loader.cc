// Times the loading of samples: bench_loader [TOKENS_IN_MILLIONS] [SEQ_LENGTH]. Writes a temporary
// pair with this number of 16-bit ids, in documents of about 1000, and reads it in the gpt
// dataset's order from the page cache. Prints one JSON object: tokens/s of one thread, and, for
// training steps of 20 ms, the time in ms that a step waits for its batch of 8 samples (median,
// 99th percentile, maximum).
#include "mtrain/data/loader.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "mtrain/base/rng.h"
#include "mtrain/data/gpt_source.h"
#include "mtrain/data/indexed_writer.h"

namespace {

using namespace mtrain;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void write(const fs::path& prefix, int64_t tokens) {
  IndexedWriter writer(prefix, DType::u16, {.overwrite = true});
  RngStream random(1, "bench.loader");
  std::vector<int32_t> ids;
  for (uint64_t at = 0; writer.num_tokens() < tokens; ++at) {
    ids.resize(500 + random.words(at)[0] % 1000);
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int32_t>((at * 7919 + i * 31) % 50000);
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

GptSource open(const fs::path& prefix, int64_t seq_length) {
  auto file = std::make_shared<IndexedFile>(prefix);
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < file->num_sequences(); ++i) lengths.push_back(file->length(i));
  GptIndex index = build_gpt_index(lengths, 0, {.seq_length = seq_length, .seed = 1});
  return {file, std::move(index), {.seq_length = seq_length, .vocab_size = 50257}};
}

int bench(int64_t millions, int64_t seq_length) {
  const fs::path prefix =
      fs::temp_directory_path() /
      ("mtrain-bench-loader-" + std::to_string(Clock::now().time_since_epoch().count()));
  write(prefix, millions * 1'000'000);
  {
    GptSource source = open(prefix, seq_length);
    const LoaderConfig config{.seq_length = seq_length, .micro_batch_size = 8, .prefetch = false};
    const int64_t steps = source.size() / 8;
    double best = 0;
    for (int pass = 0; pass < 4; ++pass) {  // the first brings the file into the page cache
      Loader loader(source, config);
      auto begin = Clock::now();
      for (int64_t i = 0; i < steps; ++i) loader.next();
      best = std::max(best, static_cast<double>(steps * 8 * seq_length) / seconds_since(begin));
    }
    LoaderConfig ahead = config;
    ahead.prefetch = true;
    Loader loader(source, ahead);
    loader.next();
    std::vector<double> waits;
    for (int64_t i = 0; i < std::min<int64_t>(100, steps - 1); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      auto begin = Clock::now();
      loader.next();
      waits.push_back(1e3 * seconds_since(begin));
    }
    std::sort(waits.begin(), waits.end());
    std::printf(
        "{\"tokens\": %lld, \"seq_length\": %lld, \"tokens_per_second\": %.4g, \"wait_ms\": "
        "{\"median\": %.4f, \"p99\": %.4f, "
        "\"largest\": %.4f}}\n",
        static_cast<long long>(millions * 1'000'000), static_cast<long long>(seq_length), best,
        waits[waits.size() / 2], waits[waits.size() * 99 / 100], waits.back());
  }
  fs::remove(bin_path(prefix));
  fs::remove(idx_path(prefix));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return bench(argc > 1 ? std::atoll(argv[1]) : 100, argc > 2 ? std::atoll(argv[2]) : 2048);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
