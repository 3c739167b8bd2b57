// The copy of a state that a save makes during other work: of the moment when the save began, with
// the device's work of before in it, and given up or failed without harm.
#include "mtrain/train/state_io.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "mtrain/base/error.h"
#include "unit/checkpoint/checkpoint_testing.h"

using namespace mtrain;
using testing::TempDir;

namespace {

/// A device that is late: what a stream is given happens when it is waited for, and copies to the
/// host on a stream of their own may be held up or fail.
class LateBackend final : public Backend {
 public:
  class LateStream final : public Stream {
   public:
    void synchronize() override {
      for (auto& work : queue) work();
      queue.clear();
    }
    std::vector<std::function<void()>> queue;
  };

  std::string_view name() const override { return "late"; }
  Probe probe() const override { return {1, ""}; }
  bool host_memory() const override { return false; }
  void* allocate(Device, size_t bytes) override {
    return ::operator new (bytes, std::align_val_t{64});
  }
  void deallocate(Device, void* data, size_t) override {
    ::operator delete (data, std::align_val_t{64});
  }
  std::unique_ptr<Stream> stream(Device) override { return std::make_unique<LateStream>(); }
  std::unique_ptr<Stream> copy_stream(Device) override { return std::make_unique<Stream>(); }
  const KernelTable& kernels() const override { return kernels_; }
  void copy(Stream& stream, void* to, const void* from, size_t bytes) override {
    if (auto* late = dynamic_cast<LateStream*>(&stream)) {
      auto* begin = static_cast<const char*>(from);
      late->queue.push_back([to, kept = std::vector<char>(begin, begin + bytes)] {
        std::memcpy(to, kept.data(), kept.size());
      });
      return;
    }
    std::unique_lock lock(mutex_);
    ++copies_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
    if (copies_ == fails_at) throw std::bad_alloc();
    std::memcpy(to, from, bytes);
  }
  void fill_zero(Stream&, void* data, size_t bytes) override { std::memset(data, 0, bytes); }

  void hold(bool held) {
    std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  int copies() const {
    std::lock_guard lock(mutex_);
    return copies_;
  }
  void await_copy(int number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return copies_ >= number; });
  }
  int fails_at = 0;

 private:
  KernelTable kernels_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int copies_ = 0;
  bool held_ = false;
};

/// Whether a thread of this process waits for something.
bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text[name_end + 2] == 'S';
}

/// Three parameters and a buffer, all of one number.
struct Model {
  explicit Model(Backend& backend) : ctx(backend) {
    for (const char* name : {"a", "b", "c"}) {
      Parameter p;
      p.name = name;
      p.global = p.local = {3, 5};
      p.master = p.value = ctx.empty(p.local, DType::f32);
      parameters.add(std::move(p));
    }
    parameters.add_buffer({.name = "biases", .values = std::vector<float>(4)});
  }
  void set(float value) {
    std::vector<float> values(15, value);
    for (Parameter& p : parameters.all()) ctx.upload(p.master, values.data());
    parameters.buffers()[0].values.assign(4, value);
  }
  /// The number of a saved step; -1 when it has several.
  static float saved(const CheckpointStore& store, int64_t step) {
    LateBackend backend;
    Model other(backend);
    other.set(-2);
    load_state(store, step, other.parameters, nullptr);
    other.ctx.stream().synchronize();
    float first = other.parameters.buffers()[0].values[0];
    for (float value : other.parameters.buffers()[0].values) first = value == first ? first : -1;
    for (Parameter& p : other.parameters.all())
      for (int64_t i = 0; i < p.numel(); ++i)
        first = p.master.data<float>()[i] == first ? first : -1;
    return first;
  }
  ExecutionContext ctx;
  ParamList parameters;
};

CheckpointMeta at_step(int64_t step) {
  CheckpointMeta meta;
  meta.state.step = step, meta.saved = "{}";
  return meta;
}

}  // namespace

TEST_CASE("a save holds the moment when it began, once the copy is waited for") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{});
  LateBackend backend;
  Model model(backend);
  model.set(7);  // late: nothing of it is in memory yet
  backend.hold(true);
  StateSave save(store, model.parameters, nullptr, at_step(1));
  model.parameters.buffers()[0].values.assign(4, 9);  // these are copied at once
  backend.await_copy(1);                              // on another thread
  CHECK_FALSE(save.copied());
  CHECK_FALSE(save.poll());
  backend.hold(false);
  save.wait_copied();
  CHECK(save.copied());
  CHECK(backend.copies() == 3);
  model.set(8);
  model.ctx.stream().synchronize();
  save.wait();
  CHECK(Model::saved(store, 1) == 7);
}

TEST_CASE("a copy for which there is no memory is a failed save, and the next one is good") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{});
  LateBackend backend;
  Model model(backend);
  model.set(7);
  backend.fails_at = 2;
  {
    StateSave save(store, model.parameters, nullptr, at_step(1));
    save.wait_copied();  // also where it failed
    std::string why;
    try {
      save.wait();
    } catch (const Error& error) {
      CHECK(error.error_class() == ErrorClass::io);
      why = error.what();
    }
    CHECK_MESSAGE(why.find("not enough memory") != std::string::npos, why);
  }
  CHECK(store.list().empty());
  StateSave(store, model.parameters, nullptr, at_step(2)).wait();
  CHECK(Model::saved(store, 2) == 7);
}

TEST_CASE("a save that is dropped copies no further tensor, and is through when it is gone") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{});
  LateBackend backend;
  Model model(backend);
  model.set(7);
  backend.hold(true);
  std::optional<StateSave> save;
  save.emplace(store, model.parameters, nullptr, at_step(1));
  backend.await_copy(1);
  std::thread later(
      [&, waiting = ::getpid()] {  // the copy goes on when the main thread waits for it
        while (!sleeps(waiting)) std::this_thread::yield();
        backend.hold(false);
      });
  save.reset();
  CHECK(backend.copies() == 1);
  later.join();
  CHECK(store.list().empty());
}

TEST_CASE(
    "a buffer that may begin anew stays as it is where the checkpoint has none like it, and is "
    "named") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{});
  LateBackend backend;
  Model model(backend);
  model.set(7);
  save_state(store, model.parameters, nullptr, at_step(1));
  Model other(backend);
  other.set(5);
  auto& buffers = other.parameters.buffers();
  for (const bool is_primary : {true, false})
    other.parameters.add_buffer({.name = is_primary ? "amax" : "of another rank",
                                 .values = std::vector<float>(2, 3.0F),
                                 .is_primary = is_primary,
                                 .optional_in_checkpoint = true});
  CHECK(load_state(store, 1, other.parameters, nullptr) == std::vector<std::string>{"amax"});
  CHECK(buffers[0].values == std::vector<float>(4, 7.0F));
  CHECK(buffers[1].values == std::vector<float>(2, 3.0F));
  other.ctx.stream().synchronize();
  CHECK(other.parameters.all()[0].master.data<float>()[0] == 7);
  buffers[0].values.assign(3, 5);
  CHECK_THROWS_WITH_AS(load_state(store, 1, other.parameters, nullptr), doctest::Contains("biases"),
                       Error);
  buffers[0].optional_in_checkpoint = true;
  CHECK(load_state(store, 1, other.parameters, nullptr) ==
        std::vector<std::string>{"biases", "amax"});
  CHECK(buffers[0].values == std::vector<float>(3, 5.0F));
  buffers[1].optional_in_checkpoint = false;
  CHECK_THROWS_WITH_AS(load_state(store, 1, other.parameters, nullptr), doctest::Contains("amax"),
                       Error);
}

TEST_CASE(
    "a model that has only a part of the saved parameters is refused; buffers may be absent") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{});
  LateBackend backend;
  Model model(backend);
  Parameter vector;  // without optimizer state, it looks like a buffer
  vector.name = "d";
  vector.global = vector.local = {3};
  vector.master = vector.value = model.ctx.empty(vector.local, DType::f32);
  model.parameters.add(std::move(vector));
  model.set(7);
  save_state(store, model.parameters, nullptr, at_step(1));
  CHECK_NOTHROW(require_all_parameters_read(store, 1, model.parameters));
  ParamList part;
  Parameter only;
  only.name = "a";
  only.global = only.local = {3, 5};
  part.add(std::move(only));
  CHECK_THROWS_WITH_AS(require_all_parameters_read(store, 1, part),
                       doctest::Contains("2 parameters that this model does not have:\n  b [3, "
                                         "5]\n  c [3, 5]"),
                       Error);
}

namespace {
/// Keeps `rows` numbers for each matrix, and nothing else.
class RowOptimizer final : public Optimizer {
 public:
  explicit RowOptimizer(int64_t extra = 0) : extra_(extra) {}
  std::vector<std::string> state_names(const ParamInfo& /*param*/) const override { return {}; }
  std::vector<MatrixState> matrix_state(const ParamInfo& /*param*/,
                                        const LogicalMatrix& matrix) const override {
    return {{"rows", {matrix.num_rows() + extra_}}};
  }
  void update(const ParamUpdate& /*update*/) override {}

 private:
  int64_t extra_;
};

struct WithOptimizer {
  explicit WithOptimizer(Backend& backend, int64_t extra = 0) : model(backend), rows(extra) {
    for (Parameter& p : model.parameters.all()) {
      p.matrices = plain_matrices(p.global);
      p.leaf = std::make_shared<Leaf>();
    }
    model.parameters.allocate_gradients(model.ctx);
    state.emplace(model.ctx, model.parameters, rows);
  }
  Model model;
  RowOptimizer rows;
  std::optional<OptimizerState> state;
};
}  // namespace

TEST_CASE("state of matrices in shapes of their own is saved and loaded by name") {
  TempDir dir;
  CheckpointStore store(dir.path(), StoreOptions{});
  LateBackend backend;
  WithOptimizer saved(backend);
  saved.model.set(7);
  const std::vector<float> rows = {1, 2, 3};
  REQUIRE(saved.state->matrix_entries().size() == 3);
  for (const auto& entry : saved.state->matrix_entries())
    saved.model.ctx.upload(entry.tensor, rows.data());
  save_state(store, saved.model.parameters, &*saved.state, at_step(1));

  WithOptimizer loaded(backend);
  load_state(store, 1, loaded.model.parameters, &*loaded.state);
  loaded.model.ctx.stream().synchronize();
  std::vector<std::string> names;
  for (const auto& entry : loaded.state->matrix_entries()) {
    names.push_back(entry.name);
    const float* values = entry.tensor.data<float>();
    CHECK(std::vector<float>(values, values + 3) == rows);
  }
  CHECK(names == std::vector<std::string>{"a.rows", "b.rows", "c.rows"});

  WithOptimizer larger(backend, 1);
  CHECK_THROWS_WITH_AS(load_state(store, 1, larger.model.parameters, &*larger.state),
                       doctest::Contains("a.rows"), Error);
}
