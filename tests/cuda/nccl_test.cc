// The NCCL communicator over fakes of NCCL and of the device: what it moves, in which order with
// its rank's stream, and how it fails.
#include <doctest/doctest.h>

#include <chrono>

#include "communicator.h"
#include "contract/comm/fixture.h"
#include "fake_nccl.h"
#include "fake_streams.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/tensor/execution_context.h"

using namespace mtrain;
using namespace mtrain::testing;
using namespace std::chrono_literals;
using contract::for_reducible_types;
using contract::has;
using contract::message_of;
using contract::same_bits;
using contract::values;

namespace {

/// One rank: its communicator upon `host`, and a run on its device.
struct Rank {
  explicit Rank(Communicator& host_in, std::chrono::milliseconds timeout = 600s,
                const std::string& gpu = "", const nccl::Library& library = fake_nccl())
      : host(host_in),
        comm(std::make_shared<nccl::Job>(
                 library,
                 std::make_unique<FakeCalls>(gpu.empty() ? cat("gpu", host_in.rank()) : gpu),
                 std::shared_ptr<Communicator>(&host_in, [](Communicator*) {}), timeout),
             std::shared_ptr<Communicator>(&host_in, [](Communicator*) {})) {}
  template <class T>
  Tensor on_device(const std::vector<T>& v) {
    return ctx.from_host<T>(v, {static_cast<int64_t>(v.size())});
  }
  template <class T>
  std::vector<T> on_host(const Tensor& t) {
    std::vector<T> v(static_cast<size_t>(t.numel()));
    ctx.download(t, v.data());
    return v;
  }
  FakeStream& stream() { return *static_cast<FakeStream*>(ctx.stream().native()); }

  Communicator& host;
  FakeDeviceBackend backend;
  ExecutionContext ctx{backend};
  nccl::NcclCommunicator comm;
};

void on_ranks(int n, const std::function<void(Rank&)>& fn) {
  run_ranks(n, [&](Communicator& host) {
    Rank rank(host);
    fn(rank);
  });
}

constexpr int64_t kCount = 1003;

}  // namespace

TEST_CASE("every call on device memory gives what the same call on host memory gives") {
  for (int n : {2, 3, 4})
    on_ranks(n, [n](Rank& r) {
      int me = r.comm.rank();
      for_reducible_types([&]<class E>(E) {
        using T = typename E::type;
        auto part = values<T>(me, kCount, 1), whole = values<T>(me, kCount * n, 2);
        Tensor data = r.on_device(part), all = r.on_device(whole);
        Tensor gathered = r.ctx.empty({kCount * n}, DTypeOf<T>::value),
               scattered = r.ctx.empty({kCount}, DTypeOf<T>::value);
        std::vector<T> wanted_all(whole.size()), wanted_part(part.size());

        r.comm.all_gather(data, gathered);
        r.host.all_gather(part, wanted_all);
        CHECK(same_bits(r.on_host<T>(gathered), wanted_all));
        r.comm.all_to_all(all, gathered);
        r.host.all_to_all(whole, wanted_all);
        CHECK(same_bits(r.on_host<T>(gathered), wanted_all));
        r.comm.reduce_scatter(all, scattered);
        r.host.reduce_scatter(whole, wanted_part);
        CHECK(same_bits(r.on_host<T>(scattered), wanted_part));
        for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
          r.ctx.upload(data, part.data());
          wanted_part = part;
          r.comm.all_reduce(data, op);
          r.host.all_reduce(wanted_part, op);
          CHECK(same_bits(r.on_host<T>(data), wanted_part));
        }
        r.ctx.upload(data, part.data());
        wanted_part = part;
        r.comm.broadcast(data, n - 1);
        r.host.broadcast(wanted_part, n - 1);
        CHECK(same_bits(r.on_host<T>(data), wanted_part));
      });
    });
}

TEST_CASE(
    "all_to_all_v with blocks of different lengths, some of none, and types that cannot be added") {
  on_ranks(3, [](Rank& r) {
    int me = r.comm.rank();
    std::vector<int64_t> send, recv;
    for (int other = 0; other < 3; ++other)
      send.push_back((me * 5 + other) % 4 * 7), recv.push_back((other * 5 + me) % 4 * 7);
    int64_t out = send[0] + send[1] + send[2], in = recv[0] + recv[1] + recv[2];
    auto bytes = values<uint8_t>(me, out, 4);
    std::vector<uint8_t> wanted(static_cast<size_t>(in));
    r.host.all_to_all_v(bytes, send, wanted, recv);
    Tensor from = r.on_device(bytes), to = r.ctx.empty({in}, DType::u8);
    r.comm.all_to_all_v(from, send, to, recv);
    CHECK(same_bits(r.on_host<uint8_t>(to), wanted));
  });
}

TEST_CASE(
    "a call takes what was queued before it, what comes after it finds its result, and the host "
    "waits for neither") {
  on_ranks(2, [](Rank& r) {
    Tensor x = r.on_device(std::vector<float>(8, 0.0f)),
           y = r.on_device(std::vector<float>(8, 0.0f));
    r.comm.all_reduce(x);  // connects
    r.ctx.stream().synchronize();
    auto* at = x.data<float>();
    auto* copy = y.data<float>();
    r.host.barrier();
    std::atomic<bool> go{false};
    r.stream().give([=, &go] {
      go.wait(false);  // for ever where the host waits for the stream
      for (int i = 0; i < 8; ++i) at[i] = 3;
    });
    Pending sum = r.comm.start_all_reduce(x);
    sum.wait();
    r.stream().give([=] { std::memcpy(copy, at, 8 * sizeof(float)); });
    go = true;
    go.notify_all();
    CHECK(r.on_host<float>(y) == std::vector<float>(8, 6.0f));
  });
}

TEST_CASE(
    "messages: a ring in which all send first, two directions at once, tags taken in another "
    "order") {
  for (int n : {2, 4})
    on_ranks(n, [n](Rank& r) {
      int me = r.comm.rank(), next = (me + 1) % n, before = (me + n - 1) % n;
      for (uint64_t round = 0; round < 3; ++round) {
        Tensor out = r.on_device(values<float>(me, kCount, round)),
               in = r.ctx.empty({kCount}, DType::f32);
        Pending sent = r.comm.start_send(out, next, 1), got = r.comm.start_recv(in, before, 1);
        got.wait();
        sent.wait();
        CHECK(same_bits(r.on_host<float>(in), values<float>(before, kCount, round)));
      }
      if (me > 1) return;
      if (me == 0) {
        Tensor five = r.on_device(values<float>(0, 8, 5)),
               three = r.on_device(values<float>(0, 8, 3));
        std::vector<float> word = {7};
        Pending head = r.comm.start_send(word, 1, 3);  // host memory, on the way of the same tag
        Pending a = r.comm.start_send(five, 1, 5), b = r.comm.start_send(three, 1, 3);
        head.wait();
        a.wait();
        b.wait();
        r.ctx.stream().synchronize();
      } else {
        Tensor first = r.ctx.empty({8}, DType::f32), second = r.ctx.empty({8}, DType::f32);
        std::vector<float> word(1);
        r.comm.recv(word, 0, 3);
        CHECK(word[0] == 7);
        r.comm.recv(first, 0, 3);
        r.comm.recv(second, 0, 5);
        CHECK(same_bits(r.on_host<float>(first), values<float>(0, 8, 3)));
        CHECK(same_bits(r.on_host<float>(second), values<float>(0, 8, 5)));
      }
    });
}

TEST_CASE(
    "groups of their own; calls of several groups begun in another order on each rank; all is "
    "given back") {
  int before = living_fake_comms();
  on_ranks(4, [](Rank& r) {
    int me = r.comm.rank();
    auto row = r.comm.split(me / 2, 0, "row"), column = r.comm.split(me % 2, 0, "column");
    REQUIRE(row->device_memory());
    Tensor a = r.on_device(std::vector<float>{static_cast<float>(1 << me)}),
           b = r.on_device(std::vector<float>{static_cast<float>(1 << me)});
    Pending one, two;
    if (me % 3 == 0)
      one = row->start_all_reduce(a), two = column->start_all_reduce(b);
    else
      two = column->start_all_reduce(b), one = row->start_all_reduce(a);
    two.wait();
    one.wait();
    CHECK(r.on_host<float>(a)[0] == (me < 2 ? 3 : 12));
    CHECK(r.on_host<float>(b)[0] == (me % 2 == 0 ? 5 : 10));
    bool none = r.comm.split(me == 0 ? -1 : 0, 0, "some") == nullptr;
    CHECK(none == (me == 0));
  });
  CHECK(living_fake_comms() == before);
}

TEST_CASE(
    "a rank that does not come: the stream is freed after the time limit, and the next call says "
    "what was waited for") {
  std::atomic<bool> over{false};
  run_ranks(2, [&](Communicator& host) {
    Rank r(host, std::chrono::milliseconds(host.rank() == 0 ? 5s : 600s));
    Tensor x = r.on_device(std::vector<float>{1});
    r.comm.all_reduce(x);
    r.ctx.stream().synchronize();
    if (host.rank() == 1) {
      while (!over) std::this_thread::sleep_for(1ms);
      std::string text = message_of(ErrorClass::peer, [&] { r.comm.all_reduce(x); });
      CHECK_MESSAGE(has(text, "rank 0 failed"), text);
      return;
    }
    r.comm.start_all_reduce(x).wait();
    r.ctx.stream().synchronize();  // would hang
    std::string text = message_of(ErrorClass::peer, [&] { r.comm.all_reduce(x); });
    CHECK_MESSAGE(has(text, "rank 0 waited"), text);
    CHECK_MESSAGE(has(text, "all_reduce sum of 1 fp32 (#2 of group 'world'"), text);
    over = true;
  });
}

TEST_CASE(
    "a rank that says it failed frees the others' streams at their next call, and one that is not "
    "made never connects") {
  run_ranks(2, [&](Communicator& host) {
    Rank r(host);
    Tensor x = r.on_device(std::vector<float>{1});
    if (host.rank() == 1) return r.comm.abort("the disk is full", ErrorClass::io);
    std::string text = message_of(ErrorClass::peer, [&] {
      for (;;) r.comm.all_reduce(x);
    });
    CHECK_MESSAGE(has(text, "rank 1 failed"), text);
    CHECK_MESSAGE(has(text, "the disk is full"), text);
  });
}

TEST_CASE("NCCL's asynchronous errors end waiting calls and are reported") {
  std::atomic<bool> over{false};
  run_ranks(2, [&](Communicator& host) {
    Rank r(host);
    Tensor x = r.on_device(std::vector<float>{1});
    r.comm.all_reduce(x);
    r.ctx.stream().synchronize();
    if (host.rank() == 1) {
      while (!over) std::this_thread::sleep_for(1ms);
      return;
    }
    r.comm.start_all_reduce(x).wait();
    set_fake_error(ncclRemoteError);
    r.ctx.stream().synchronize();
    std::string text = message_of(ErrorClass::peer, [&] { r.comm.all_reduce(x); });
    set_fake_error(ncclSuccess);
    CHECK_MESSAGE(has(text, "NCCL failed in all_reduce"), text);
    CHECK_MESSAGE(has(text, "remote process exited"), text);
    over = true;
  });
}

TEST_CASE("a warning says when ranks share a GPU") {
  std::atomic<int> warnings{0};
  run_ranks(2, [&](Communicator& host) {
    Rank r(host, 600s, "0000:65:00.0");
    Tensor x = r.on_device(std::vector<float>{1});
    std::string text = message_of(ErrorClass::config, [&] { r.comm.all_reduce(x); });
    CHECK_MESSAGE(has(text, "ranks 0 and 1 both use the GPU 0000:65:00.0"), text);
    warnings += text.empty() ? 0 : 1;
    host.barrier();
  });
  CHECK(warnings == 2);
}
