// OrderedPool: runs work on several threads and returns results in the order of push(), so the
// output does not depend on the number of threads. One thread calls push() and pop(); `work` runs
// on the pool's threads, each with its own state. Owns its threads and waits for them in the
// destructor.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace mtrain {

template <class In, class Out>
class OrderedPool {
 public:
  using Work = std::function<Out(In&)>;
  /// Calls `make_work` once on each thread, for that thread's work function. pop() rethrows
  /// exceptions of both.
  OrderedPool(int threads, const std::function<Work()>& make_work) {
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back(
          [this, make_work](const std::stop_token& stop) { run(make_work, stop); });
  }
  ~OrderedPool() {
    for (auto& thread : threads_) thread.request_stop();
  }
  OrderedPool(const OrderedPool&) = delete;
  OrderedPool& operator=(const OrderedPool&) = delete;

  void push(In in) {
    auto job = std::make_shared<Job>();
    job->in = std::move(in);
    order_.push_back(job);
    {
      std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(job));
    }
    given_.notify_one();
  }
  /// The number of items that were pushed and not yet popped.
  size_t size() const { return order_.size(); }
  /// Waits for the result of the oldest item and returns it. REQUIRES: size() > 0.
  Out pop() {
    auto job = std::move(order_.front());
    order_.pop_front();
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return job->done; });
    if (job->fault) std::rethrow_exception(job->fault);
    return std::move(job->out);
  }

 private:
  struct Job {
    In in;
    Out out;
    std::exception_ptr fault;
    bool done =
        false;  // guarded by mutex_; the other members belong to the thread that holds the job
  };

  void run(const std::function<Work()>& make_work, const std::stop_token& stop) {
    Work work;
    for (;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock lock(mutex_);
        if (!given_.wait(lock, stop, [&] { return !waiting_.empty(); }) || stop.stop_requested())
          return;
        job = std::move(waiting_.front());
        waiting_.pop_front();
      }
      try {
        if (!work) work = make_work();
        job->out = work(job->in);
        job->in = In();
      } catch (...) {
        job->fault = std::current_exception();
      }
      {
        std::lock_guard lock(mutex_);
        job->done = true;
      }
      done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any given_;
  std::condition_variable done_;
  std::deque<std::shared_ptr<Job>> waiting_;  // guarded by mutex_
  std::deque<std::shared_ptr<Job>> order_;    // used only by the thread that pushes and pops
  std::vector<std::jthread>
      threads_;  // declared last, so threads end before the members that they use
};

}  // namespace mtrain
