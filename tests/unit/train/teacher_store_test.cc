// A teacher's most likely ids: their selection, also from a vocabulary that is sharded over ranks,
// and the folder that stores them: it gives back what was written, and refuses damaged files and
// those of something else.
#include "mtrain/train/teacher_store.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>

#include "has.h"
#include "mtrain/base/error.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/dist/mesh.h"
#include "mtrain/nn/parallel.h"
#include "mtrain/tensor/execution_context.h"
#include "temp_dir.h"

using namespace mtrain;

namespace {

constexpr int64_t kIds = 23, kTokens = 5;

float teacher_logit(int64_t token, int64_t id) {
  // Ties, and values far apart.
  return static_cast<float>((id * 7 + token * 3) % 11) * (token == 2 ? 20.0f : 0.5f);
}

/// Columns [first, first + columns) of the logits.
Tensor teacher_logits(ExecutionContext& ctx, int64_t first, int64_t columns) {
  std::vector<float> values;
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t i = first; i < first + columns; ++i)
      values.push_back(i < kIds ? teacher_logit(t, i) : 1000.0f);  // padding
  return ctx.from_host<float>(values, {kTokens, columns});
}

TopKRows select_on_one_rank(int64_t k, double temperature) {
  const auto backend = make_cpu_backend(1);
  ExecutionContext ctx(*backend, {}, 1);
  return most_likely(teacher_logits(ctx, 0, kIds + 2), kIds, k, temperature, nullptr, kIds + 2);
}

/// Two rows of six tokens; the second is padded.
MicroBatch stored_batch(int32_t shift = 0) {
  MicroBatch batch{.tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, 0},
                   .targets = {2, 3, -1, 5, 6, 7, -1, -1, 1, 2, -1, -1},
                   .positions = {0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 5},
                   .cu_seqlens = {0, 3, 6, 12}};
  batch.tokens[0] += shift;
  batch.rows = 2, batch.seq_length = 6, batch.num_target_tokens = 7;
  return batch;
}

TopKRows stored_rows(int64_t k) {
  const TopKRows five = select_on_one_rank(k, 1);
  TopKRows out(k, 12);
  for (int64_t t = 0; t < 12; ++t) out.set(t, five, t % kTokens);
  return out;
}

TeacherIdentity identity(int64_t k = 4) {
  return {.teacher = "abc", .tokenizer = "def", .k = k, .vocabulary = kIds, .seq_length = 6};
}

void write_store(const fs::path& folder, int32_t shift = 0, const char* name = "a") {
  fs::create_directories(folder);
  TeacherStoreWriter writer(folder, identity(), name);
  const MicroBatch batch = stored_batch(shift);
  for (int64_t row = 0; row < batch.rows; ++row) writer.add(batch, row, stored_rows(4));
  writer.flush();
  writer.flush();  // there is nothing more
}

std::string store_refusal(const std::function<void()>& of, ErrorClass wanted) {
  try {
    of();
  } catch (const Error& error) {
    CHECK(error.error_class() == wanted);
    CHECK_FALSE(error.hint().empty());
    return error.message() + "\n" + error.hint();
  }
  return "not refused";
}

}  // namespace

TEST_CASE("the most likely ids: ties go to the smaller one, the rest has what is left") {
  for (double temperature : {1.0, 2.5})
    for (int64_t k : {int64_t{1}, int64_t{4}, kIds - 1, kIds}) {
      const TopKRows top = select_on_one_rank(k, temperature);
      REQUIRE(top.tokens() == kTokens);
      for (int64_t t = 0; t < kTokens; ++t) {
        double total = 0, rest = 0;
        std::vector<std::pair<float, int64_t>> order;
        for (int64_t i = 0; i < kIds; ++i) {
          total += std::exp(static_cast<double>(teacher_logit(t, i)) / temperature);
          order.emplace_back(-teacher_logit(t, i), i);
        }
        std::ranges::sort(order);
        std::vector<int64_t> wanted;
        for (int64_t i = 0; i < kIds; ++i)
          if (i < k)
            wanted.push_back(order[static_cast<size_t>(i)].second);
          else
            rest +=
                std::exp(-static_cast<double>(order[static_cast<size_t>(i)].first) / temperature);
        std::ranges::sort(wanted);
        for (int64_t j = 0; j < k; ++j) {
          const auto at = static_cast<size_t>(t * k + j);
          CHECK(top.ids[at] == wanted[static_cast<size_t>(j)]);
          const double log =
              static_cast<double>(teacher_logit(t, top.ids[at])) / temperature - std::log(total);
          CHECK(static_cast<double>(top.log_probabilities[at]) ==
                doctest::Approx(log).epsilon(1e-6));
        }
        const auto log_rest = static_cast<double>(top.log_rest[static_cast<size_t>(t)]);
        if (k < kIds)
          CHECK(log_rest == doctest::Approx(std::log(rest / total)).epsilon(1e-6));
        else
          CHECK(log_rest == static_cast<double>(kLeastLogProbability));
      }
    }
}

TEST_CASE("the most likely ids of a sharded vocabulary are those of the whole one") {
  for (int ranks : {2, 3, 4})
    for (int64_t k : {int64_t{1}, int64_t{9}, kIds}) {
      const TopKRows want = select_on_one_rank(k, 1.5);
      run_ranks(ranks, [&](Communicator& world) {
        const Mesh mesh(world, MeshLayout({{"tp", ranks}}));
        const auto backend = make_cpu_backend(1);
        ExecutionContext ctx(*backend, {}, 1);
        const ShardPiece piece = even_piece(kIds + 2, &mesh["tp"]);
        const Tensor own = teacher_logits(ctx, piece.global, piece.size);
        const TopKRows got = most_likely(own, kIds, k, 1.5, &mesh["tp"], kIds + 2);
        MT_CHECK(got.ids == want.ids, "ids of rank ", world.rank());
        for (size_t i = 0; i < want.ids.size(); ++i)
          MT_CHECK(std::abs(got.log_probabilities[i] - want.log_probabilities[i]) < 1e-5f, i);
        for (size_t t = 0; t < want.log_rest.size(); ++t)
          MT_CHECK(std::abs(got.log_rest[t] - want.log_rest[t]) < 1e-5f, t);
      });
    }
}

TEST_CASE("a teacher whose logits are not numbers is named") {
  const auto backend = make_cpu_backend(1);
  ExecutionContext ctx(*backend, {}, 1);
  const Tensor logits = ctx.from_host<float>(std::vector<float>{0, 1, NAN, 2}, {1, 4});
  CHECK(testing::has(
      store_refusal([&] { most_likely(logits, 4, 2, 1, nullptr, 4); }, ErrorClass::numeric),
      "objective.teacher"));
}

TEST_CASE("a store gives back the distributions of a sample, wherever it is") {
  const testing::TempDir folder;
  CHECK(TeacherStore(folder / "none", identity()).samples() == 0);
  write_store(folder / "s");
  write_store(folder / "s", 5, "b");
  TeacherIdentity any = identity();
  any.teacher.clear(), any.vocabulary = 0;
  const TeacherStore store(folder / "s", any);
  CHECK(store.samples() == 3);  // the second rows are the same
  CHECK(store.identity().teacher == "abc");
  CHECK(store.identity().vocabulary == kIds);
  CHECK_FALSE(fs::exists(folder / "s/a-0.safetensors.tmp"));
  const TopKRows want = stored_rows(4);
  MicroBatch batch = stored_batch();
  const TopKRows got = store.read(batch);
  for (size_t t = 0; t < batch.targets.size(); ++t)
    for (size_t j = 4 * t; j < 4 * t + 4; ++j) {
      CHECK(got.ids[j] == (batch.targets[t] < 0 ? -1 : want.ids[j]));
      if (batch.targets[t] < 0 || want.log_probabilities[j] < -30) continue;
      CHECK(std::abs(got.log_probabilities[j] - want.log_probabilities[j]) < 4e-3f);
    }
  for (size_t t : {0, 5, 9}) {  // rounding has not changed the sum
    double sum = std::exp(static_cast<double>(got.log_rest[t]));
    for (size_t j = 4 * t; j < 4 * t + 4; ++j)
      sum += std::exp(static_cast<double>(got.log_probabilities[j]));
    CHECK(sum == doctest::Approx(1).epsilon(1e-6));
  }
  // Another text, other targets and other bounds of its sequences are other samples.
  for (int change : {0, 1, 2}) {
    MicroBatch other = stored_batch();
    (change == 0 ? other.tokens : change == 1 ? other.targets : other.positions)[4] = 3;
    CHECK(testing::has(store_refusal([&] { (void)store.read(other); }, ErrorClass::data),
                       "no distributions for sample 0"));
  }
}

TEST_CASE("a store of something else is refused, with what to do") {
  const testing::TempDir folder;
  write_store(folder / "s");
  auto says = [&](const TeacherIdentity& wanted, const char* part, const char* remedy) {
    const std::string said =
        store_refusal([&] { TeacherStore(folder / "s", wanted); }, ErrorClass::config);
    CHECK_MESSAGE(testing::has(said, part), said);
    CHECK_MESSAGE(testing::has(said, remedy), said);
    CHECK_MESSAGE(testing::has(said, "objective.store"), said);
  };
  TeacherIdentity other = identity(5);
  says(other, "another objective.top_k: there 4, now 5", "set objective.top_k=4");
  other = identity(), other.temperature = 2;
  says(other, "another objective.temperature", "set objective.temperature=1.0");
  other = identity(), other.teacher = "xyz";
  says(other, "a teacher of other weights: there abc, now xyz", "choose another folder");
  other = identity(), other.tokenizer = "xyz";
  says(other, "another tokenizer", "tokenizer section");
  other = identity(), other.vocabulary = 24;
  says(other, "another number of ids", "model.vocab_size");
  other = identity(), other.seq_length = 12;
  says(other, "another model.seq_length: there 6, now 12", "set model.seq_length=6");
  std::ofstream(folder / "file") << "x";
  CHECK(testing::has(
      store_refusal([&] { TeacherStore(folder / "file", identity()); }, ErrorClass::config),
      "is not a folder"));
}

TEST_CASE("a damaged file of a store is found, wherever a byte is wrong") {
  const testing::TempDir folder;
  write_store(folder / "s");
  const fs::path file = folder / "s/a-0.safetensors";
  const std::string whole = read_file(file);
  const auto read_all = [&] { (void)TeacherStore(folder / "s", identity()).read(stored_batch()); };
  read_all();
  for (size_t size : {size_t{0}, size_t{7}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(file, std::ios::trunc | std::ios::binary) << whole.substr(0, size);
    const std::string said = store_refusal(read_all, ErrorClass::data);
    CHECK_MESSAGE(testing::has(said, "is damaged"), said);
    CHECK_MESSAGE(testing::has(said, "delete this file"), said);
  }
  const uint64_t start = [&] {
    std::ofstream(file, std::ios::trunc | std::ios::binary) << whole;
    return SafetensorsFile(file).data_start();
  }();
  for (size_t at = start; at < whole.size(); at += 5) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    std::ofstream(file, std::ios::trunc | std::ios::binary) << changed;
    CHECK_MESSAGE(testing::has(store_refusal(read_all, ErrorClass::data), "is damaged"), at);
  }
}
