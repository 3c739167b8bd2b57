// Schedules, indices of samples, headers of checkpoints and words: linear work in their size.
#include <filesystem>
#include <fstream>
#include <random>

#include "growth/work.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/safetensors.h"
#include "mtrain/data/gpt_index.h"
#include "mtrain/nn/parameter.h"
#include "mtrain/pipeline/lower.h"
#include "mtrain/pipeline/simulate.h"
#include "mtrain/tokenize/bpe.h"

using namespace mtrain;
using testing::check_linear;
using testing::work_of;

TEST_CASE("planning a pipeline is linear work in its micro-batches, its ranks and its stages") {
  auto planning = [](int ranks, int each, int64_t micro_batches) {
    Plan plan{.stages = ranks * each, .micro_batches = micro_batches, .virtual_stages = each};
    return work_of([&] {
      Schedule made = interleaved(plan);
      Simulated run = simulate(made, plan);
      CHECK(run.faults.empty());
      CHECK(lower(std::move(made), StageMap::looping(ranks, each)).size() ==
            static_cast<size_t>(ranks));
    });
  };
  check_linear("micro-batches", 64, [&](int64_t n) { return planning(4, 4, n); });
  check_linear("ranks", 4, [&](int64_t n) { return planning(static_cast<int>(n), 2, 64); });
  check_linear("stages of a rank", 4,
               [&](int64_t n) { return planning(4, static_cast<int>(n), 64); });
}

TEST_CASE("a model's parameters are listed in linear work in its blocks") {
  check_linear("blocks", 1000, [](int64_t blocks) {
    return work_of([&] {
      ParamList list;
      for (int64_t i = 0; i < blocks; ++i)
        for (const char* part :
             {"attn.qkv.weight", "attn.out.weight", "mlp.up.weight", "mlp.down.weight"}) {
          Parameter parameter;
          parameter.name = cat("layers.", i, ".", part);
          list.add(std::move(parameter));
        }
      CHECK(list.find(cat("layers.", blocks - 1, ".mlp.up.weight")) != nullptr);
      CHECK(list.find("layers.0.mlp") == nullptr);
    });
  });
}

TEST_CASE("the order of samples is made in linear work") {
  check_linear("documents", 20000, [](int64_t count) {
    std::vector<int32_t> lengths;
    for (int64_t i = 0; i < count; ++i)
      lengths.push_back(static_cast<int32_t>(i * 7919 % 1013 + 1));
    return work_of([&] {
      GptIndex index =
          build_gpt_index(lengths, 0, {.seq_length = 1024, .num_samples = count, .seed = 1});
      CHECK(index.shuffle.size() >= static_cast<size_t>(count));
    });
  });
}

TEST_CASE("the header of a checkpoint's file is read in linear work") {
  namespace fs = std::filesystem;
  check_linear("tensors", 5000, [](int64_t count) {
    std::string header = "{";
    for (int64_t i = 0; i < count; ++i)
      header += cat(i ? "," : "", "\"", (i * 7919) % count,
                    R"(":{"dtype":"U8","shape":[1],"data_offsets":[)", i, ",", i + 1, "]}");
    header += "}";
    std::string bytes(8, '\0');
    for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
    fs::path path = fs::temp_directory_path() / cat("mtrain-growth-", ::getpid(), ".safetensors");
    std::ofstream(path, std::ios::binary)
        << bytes << header << std::string(static_cast<size_t>(count), '\1');
    uint64_t work = work_of([&] {
      SafetensorsFile file(path);
      CHECK(file.tensors().size() == static_cast<size_t>(count));
    });
    fs::remove(path);
    return work;
  });
}

TEST_CASE("a word is encoded in linear work, however long it is") {
  for (int letter : {int{'a'}, 0xE0}) {  // merged in windows, and by longest matches
    tokenize::TokenTable tokens;
    for (int b = 0; b < 256; ++b) {
      const char c = static_cast<char>(b);
      tokens.add({&c, 1}, b, "test");
    }
    std::vector<tokenize::BpeMerge> merges;  // of tokens of this letter alone, of up to 32 of them
    std::vector<int32_t> pool = {letter};
    std::mt19937 random(5);
    while (merges.size() < 20) {
      const int32_t a = pool[random() % pool.size()], b = pool[random() % pool.size()];
      std::string joined = std::string(tokens.text(a)) + std::string(tokens.text(b));
      if (joined.size() > 32 || tokens.find(joined) >= 0) continue;
      const auto id = static_cast<int32_t>(tokens.size());
      tokens.add(joined, id, "test");
      pool.push_back(id);
      merges.push_back({a, b, id, static_cast<uint32_t>(merges.size())});
    }
    tokenize::Bpe bpe(tokens, merges, {.by_bytes = true}, "test");
    tokenize::Bpe whole(tokens, merges, {.end_suffix = "\x01"}, "test");  // uses no windows
    for (const auto* encoder : {&bpe, &whole})
      check_linear(cat("bytes of value ", letter, encoder == &whole ? ", merged whole" : ""),
                   1 << 18, [&](int64_t bytes) {
                     const std::string word(static_cast<size_t>(bytes), static_cast<char>(letter));
                     return work_of([&] {
                       tokenize::WordTokens out;
                       encoder->encode(word, out);
                       CHECK(out.ids.size() < word.size() + 2);
                     });
                   });
  }
}
