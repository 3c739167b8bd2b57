// Times the order of samples: bench_gpt_index SAMPLES SEQ_LENGTH DOCUMENTS [EPOCHS] The lengths of
// the documents are such that EPOCHS epochs fill this number of samples. Prints one JSON object:
// seconds, and bytes of the index per sample.
#include "mtrain/data/gpt_index.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

namespace {

int run(int argc, char** argv) {
  using namespace mtrain;
  const int64_t samples = std::atoll(argv[1]), seq = std::atoll(argv[2]),
                documents = std::atoll(argv[3]);
  const int64_t epochs = argc > 4 ? std::atoll(argv[4]) : 1;
  const int64_t mean = samples * seq / (documents * epochs) + 1;
  std::vector<int32_t> lengths(static_cast<size_t>(documents));
  for (size_t i = 0; i < lengths.size(); ++i)  // from half of the mean to one and a half
    lengths[i] = static_cast<int32_t>(
        mean / 2 + static_cast<int64_t>(i * 2654435761U % 4294967291U) * mean / 4294967291);
  const auto begin = std::chrono::steady_clock::now();
  const GptIndex index =
      build_gpt_index(lengths, 0, {.seq_length = seq, .num_samples = samples, .seed = 1234});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double bytes = static_cast<double>(index.documents.size() * sizeof(index.documents[0]) +
                                           index.samples.size() * sizeof(SampleStart) +
                                           index.shuffle.size() * sizeof(index.shuffle[0]));
  std::printf(
      "{\"samples\": %zu, \"epochs\": %lld, \"seconds\": %.2f, \"bytes_per_sample\": %.2f}\n",
      index.shuffle.size(), static_cast<long long>(index.num_epochs), seconds,
      bytes / static_cast<double>(index.shuffle.size()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: bench_gpt_index SAMPLES SEQ_LENGTH DOCUMENTS [EPOCHS]\n", stderr);
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_gpt_index: %s\n", e.what());
    return 1;
  }
}
