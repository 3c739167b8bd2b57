#include "mtrain/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/plugin_call.h"
#include "mtrain/data/mismatched.h"
#include "mtrain/data/sample_check.h"

namespace mtrain {
namespace {

void add_sequences(const Sample& sample, int64_t row, int64_t seq_length, MicroBatch& batch) {
  const auto base = static_cast<int32_t>(row * seq_length);
  int32_t previous = -1;
  for (int32_t start : sample.starts) {
    if (previous >= 0) batch.max_seqlen = std::max(batch.max_seqlen, start - previous);
    batch.cu_seqlens.push_back(base + start);
    previous = start;
  }
  batch.max_seqlen = std::max(batch.max_seqlen, static_cast<int32_t>(seq_length) - previous);
}

}  // namespace

// Two sets of buffers: the user reads one while the worker fills the other.
class Loader::Worker {
 public:
  Worker(const SampleSource& source, LoaderConfig config, int64_t consumed)
      : source_(source), config_(config), consumed_(consumed) {
    MT_CHECK(config.seq_length > 0 && config.micro_batch_size > 0 && config.num_micro_batches > 0,
             "sizes must be positive");
    MT_CHECK(config.dp_size > 0 && config.dp_rank >= 0 && config.dp_rank < config.dp_size, "rank ",
             config.dp_rank, " of ", config.dp_size);
    MT_CHECK(config.micro_batch_size <= INT32_MAX / config.seq_length, "micro-batch of ",
             config.micro_batch_size);
    MT_CHECK(consumed >= 0, "cursor ", consumed);
    for (auto& set : sets_) {
      set.resize(static_cast<size_t>(config.num_micro_batches));
      for (MicroBatch& batch : set) allocate(batch, config.micro_batch_size);
    }
    if (config.mismatched) {
      allocate(before_, 1);
      for (auto& set : others_) set.resize(static_cast<size_t>(config.num_micro_batches));
    }
    if (config.prefetch) thread_ = std::thread([this] { run(); });
  }

  ~Worker() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  std::span<const MicroBatch> next() {
    if (!thread_.joinable()) {
      fill(0, consumed_);
      consumed_ += config_.global_batch_size();
      return sets_[0];
    }
    std::unique_lock lock(mutex_);
    if (!wanted_ && !ready_) ask(consumed_);
    changed_.wait(lock, [this] { return ready_; });
    ready_ = false;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    std::swap(front_, back_);
    consumed_ += config_.global_batch_size();
    if (has(consumed_)) ask(consumed_);
    return sets_[front_];
  }

  void seek(int64_t consumed) {
    MT_CHECK(consumed >= 0, "cursor ", consumed);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !wanted_; });
    ready_ = false;
    error_ = nullptr;
    consumed_ = consumed;
  }

  std::span<const MicroBatch> mismatched() const {
    return others_[thread_.joinable() ? front_ : 0];
  }

  int64_t consumed() const { return consumed_; }
  const LoaderConfig& config() const { return config_; }

 private:
  void allocate(MicroBatch& batch, int64_t rows) const {
    batch.rows = rows;
    batch.seq_length = config_.seq_length;
    auto count = static_cast<size_t>(batch.rows * batch.seq_length);
    for (auto* values : {&batch.tokens, &batch.targets, &batch.positions}) values->resize(count);
    batch.cu_seqlens.reserve(static_cast<size_t>(batch.rows) + 1);
    batch.padding.reserve(static_cast<size_t>(batch.rows));
    batch.good.reserve(static_cast<size_t>(batch.rows));
    batch.margins.reserve(static_cast<size_t>(batch.rows));
  }

  bool has(int64_t first) const {
    return source_.repeats() || first + config_.global_batch_size() <= source_.size();
  }

  // REQUIRES: mutex_ held.
  void ask(int64_t first) {
    wanted_ = true;
    wanted_first_ = first;
    changed_.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return wanted_ || stop_; });
      if (stop_) return;
      const int set = back_;
      int64_t first = wanted_first_;
      lock.unlock();
      std::exception_ptr error;
      try {
        fill(set, first);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      error_ = error;
      wanted_ = false;
      ready_ = true;
      changed_.notify_all();
    }
  }

  void fill(int set, int64_t first) {
    if (!has(first)) {
      throw Error(ErrorClass::data,
                  cat("the dataset is exhausted: it has ", counted(source_.size(), "sample"),
                      " and the step needs samples ", first, " to ",
                      first + config_.global_batch_size() - 1),
                  "lower train.steps or add data");
    }
    int64_t at = first + config_.dp_rank * config_.micro_batch_size * config_.num_micro_batches;
    for (size_t micro = 0; micro < sets_[set].size(); ++micro) {
      fill_batch(sets_[set][micro], at);
      if (config_.mismatched) {
        fill_batch(before_, sample_before(at, first));
        mismatch(sets_[set][micro], before_, others_[set][micro]);
      }
      at += config_.micro_batch_size;
    }
  }

  /// The sample before `index` in the global batch that begins at `first`, in a circle; of a batch
  /// of one sample, the one before it in the source.
  int64_t sample_before(int64_t index, int64_t first) const {
    if (index > first) return index - 1;
    const int64_t count = config_.global_batch_size();
    MT_USER_CHECK(count > 1 || source_.size() > 1, ErrorClass::data,
                  "there is one sample, and the objective compares with the answers of others",
                  "add records");
    return count > 1 ? first + count - 1 : first > 0 ? first - 1 : source_.size() - 1;
  }

  void fill_batch(MicroBatch& batch, int64_t first) {
    const auto seq = static_cast<size_t>(config_.seq_length);
    batch.first_sample = first;
    batch.cu_seqlens.clear();
    batch.padding.clear();
    batch.good.clear();
    batch.margins.clear();
    batch.max_seqlen = 0;
    for (int64_t row = 0; row < batch.rows; ++row) {
      auto at = static_cast<size_t>(row) * seq;
      sample_.tokens = std::span(batch.tokens).subspan(at, seq);
      sample_.targets = std::span(batch.targets).subspan(at, seq);
      sample_.positions = std::span(batch.positions).subspan(at, seq);
      sample_.padding = 0;
      sample_.good = true;
      sample_.margin = 0;
      const SampleBounds bounds{.tokens = sample_.tokens,
                                .targets = sample_.targets,
                                .positions = sample_.positions,
                                .vocab_size = config_.vocab_size};
      const int64_t index = source_.repeats() ? (first + row) % source_.size() : first + row;
      call_plugin(source_, "get()", [&] { source_.get(index, sample_); });
      check_sample(source_, index, sample_, bounds);
      add_sequences(sample_, row, config_.seq_length, batch);
      batch.padding.push_back(static_cast<int32_t>(sample_.padding));
      batch.good.push_back(sample_.good ? 1 : 0);
      batch.margins.push_back(sample_.margin);
    }
    batch.cu_seqlens.push_back(static_cast<int32_t>(batch.tokens.size()));
    batch.num_target_tokens =
        static_cast<int64_t>(batch.targets.size()) -
        std::count(batch.targets.begin(), batch.targets.end(), kIgnoredTarget);
  }

  const SampleSource& source_;
  const LoaderConfig config_;
  int64_t consumed_;  // used by the caller's thread only
  std::vector<MicroBatch> sets_[2];
  std::vector<MicroBatch> others_[2];  // of LoaderConfig::mismatched, else empty
  MicroBatch before_;                  // one row; used by the thread that fills
  Sample sample_;                      // used by the thread that fills
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_: the worker owns sets_[back_] and others_[back_] while wanted_ is set.
  int front_ = 0, back_ = 1;
  bool wanted_ = false, ready_ = false, stop_ = false;
  int64_t wanted_first_ = 0;
  std::exception_ptr error_;
};

Loader::Loader(const SampleSource& source, LoaderConfig config, int64_t consumed_samples)
    : worker_(std::make_unique<Worker>(source, config, consumed_samples)) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
std::span<const MicroBatch> Loader::next() { return worker_->next(); }
std::span<const MicroBatch> Loader::mismatched() const { return worker_->mismatched(); }
int64_t Loader::consumed_samples() const { return worker_->consumed(); }
void Loader::seek(int64_t consumed_samples) { worker_->seek(consumed_samples); }
const LoaderConfig& Loader::config() const { return worker_->config(); }

}  // namespace mtrain
