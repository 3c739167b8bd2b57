#include "mtrain/comm/thread_world.h"

#include <exception>
#include <numeric>
#include <thread>
#include <vector>

#include "mtrain/comm/thread_communicator.h"
#include "mtrain/comm/thread_watch.h"

namespace mtrain {

struct ThreadWorld::Shared {
  std::shared_ptr<ThreadState> state;
  std::shared_ptr<ThreadGroup> group;
  std::unique_ptr<ThreadWatch> watch;  // null: no watch
};

ThreadWorld::ThreadWorld(int size, const CommContext& context)
    : shared_(std::make_shared<Shared>()) {
  MT_CHECK(size > 0, "a world of ", size, " ranks");
  shared_->state = std::make_shared<ThreadState>(size, context);
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  shared_->group = std::make_shared<ThreadGroup>(shared_->state, "world", std::move(ranks));
  if (context.watch.silence.count() > 0 && size > 1)
    shared_->watch = std::make_unique<ThreadWatch>(shared_->state);
}

ThreadWorld::~ThreadWorld() = default;

int ThreadWorld::size() const { return shared_->state->size; }

std::unique_ptr<Communicator> ThreadWorld::make(int rank) {
  MT_CHECK(rank >= 0 && rank < size(), "rank ", rank, " of ", size());
  return std::make_unique<ThreadCommunicator>(shared_->group, rank);
}

void ThreadWorld::leave(int rank) { shared_->state->leave(rank); }

int ThreadWorld::failed_rank() const {
  return shared_->state->failed() ? shared_->state->failure().rank : -1;
}

void run_ranks(int size, const std::function<void(Communicator&)>& fn, const CommContext& context) {
  ThreadWorld world(size, context);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  auto body = [&](int rank) {
    auto comm = world.make(rank);
    try {
      fn(*comm);
      world.leave(rank);
    } catch (const Error& e) {
      errors[static_cast<size_t>(rank)] = std::current_exception();
      comm->abort(e.message(), e.error_class());
    } catch (const std::exception& e) {
      errors[static_cast<size_t>(rank)] = std::current_exception();
      comm->abort(e.what(), ErrorClass::bug);
    } catch (...) {
      errors[static_cast<size_t>(rank)] = std::current_exception();
      comm->abort("an exception of unknown type");
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(size));
  try {
    for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  } catch (const std::exception& e) {  // the system has no more threads: release those that run
    world.make(static_cast<int>(threads.size()))->abort(e.what());
    for (auto& thread : threads) thread.join();
    throw;
  }
  for (auto& thread : threads) thread.join();
  // The errors of other ranks are consequences of the first. A mismatch has no single cause, and
  // all ranks report the same.
  if (int first = world.failed_rank(); first >= 0 && errors[static_cast<size_t>(first)])
    std::rethrow_exception(errors[static_cast<size_t>(first)]);
  for (auto& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace mtrain
