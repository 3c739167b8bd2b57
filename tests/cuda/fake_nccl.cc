#include "fake_nccl.h"

#include <algorithm>
#include <array>
#include <map>

#include "fake_streams.h"
#include "mtrain/comm/reduce.h"

namespace mtrain::testing {

namespace {

struct Message {
  const void* data;
  size_t bytes;
  std::shared_ptr<std::atomic<bool>> taken;
};

/// The ranks of one id.
struct Group {
  int size = 0, joined = 0;
  struct Collective {
    int came = 0, left = 0;
    int registered = 0;  // ranks whose memory was
    bool done = false;
    std::vector<const void*> in;
    std::vector<void*> out;
  };
  std::map<uint64_t, Collective> collectives;
  std::map<std::pair<int, int>, std::deque<Message>> mail;
};

struct Range {
  const char *begin, *end;
  bool holds(const void* data, size_t bytes) const {
    return data >= begin && static_cast<const char*>(data) + bytes <= end;
  }
};

struct Comm {
  std::shared_ptr<Group> group;
  int rank = 0;
  uint64_t calls = 0;
  bool aborted = false;
  std::vector<std::unique_ptr<Range>> registered;
  bool knows(const void* data, size_t bytes) const {
    return std::any_of(registered.begin(), registered.end(),
                       [&](const auto& r) { return r->holds(data, bytes); });
  }
};

/// A part of a call that messages make.
struct Part {
  Comm* comm;
  FakeStream* stream;
  bool sends;
  void* data;
  size_t bytes;
  int peer;
};

// One lock for all: what is looked for is order, not speed.
std::mutex mutex;
std::condition_variable changed;
std::map<uint64_t, std::shared_ptr<Group>> groups;
std::vector<std::unique_ptr<Comm>> comms;
std::atomic<int> error{ncclSuccess}, living{0};
uint64_t ids = 0;
thread_local bool grouped = false;
thread_local std::vector<Part> parts;

Comm& of(ncclComm_t comm) { return *reinterpret_cast<Comm*>(comm); }
FakeStream& of(cudaStream_t stream) { return *reinterpret_cast<FakeStream*>(stream); }

DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return DType::f32;
    case ncclBfloat16:
      return DType::bf16;
    case ncclFloat16:
      return DType::f16;
    case ncclFloat64:
      return DType::f64;
    case ncclInt32:
      return DType::i32;
    case ncclInt64:
      return DType::i64;
    default:
      return DType::u8;
  }
}
size_t group_size(ncclComm_t comm) { return static_cast<size_t>(of(comm).group->size); }
size_t bytes_of(size_t count, ncclDataType_t type) { return count * size_of(dtype_of(type)); }

FakeRegistrations registrations;
std::map<void*, size_t> network_memory;

void fault(const std::string& text) {
  if (registrations.fault.empty()) registrations.fault = text;
}

using Combine = std::function<void(Group::Collective&)>;

/// Queues a call that is carried out when all ranks' streams have come to it.
ncclResult_t run_collective(ncclComm_t c, cudaStream_t stream, const void* in, size_t in_bytes,
                            void* out, size_t out_bytes, Combine combine) {
  Comm* comm = &of(c);
  uint64_t number = ++comm->calls;
  bool registered = false;
  {
    std::lock_guard lock(mutex);
    registered = comm->knows(in, in_bytes) && comm->knows(out, out_bytes);
    if (registered) ++registrations.calls;
  }
  of(stream).give([=] {
    std::unique_lock lock(mutex);
    Group& group = *comm->group;
    Group::Collective& m = group.collectives[number];
    m.in.resize(static_cast<size_t>(group.size)), m.out.resize(static_cast<size_t>(group.size));
    m.in[static_cast<size_t>(comm->rank)] = in, m.out[static_cast<size_t>(comm->rank)] = out;
    m.registered += registered ? 1 : 0;
    if (++m.came == group.size) {
      if (m.registered != 0 && m.registered != group.size)
        fault("some ranks' memory is registered and others' is not");
      combine(m);
      m.done = true;
      changed.notify_all();
    }
    changed.wait(lock, [&] { return m.done || comm->aborted; });
    if (++m.left == group.size) group.collectives.erase(number);
  });
  return ncclSuccess;
}

void carry_out(const std::vector<Part>& all) {
  std::unique_lock lock(mutex);
  std::vector<Message> sent;
  for (const Part& p : all)
    if (p.sends) {
      sent.push_back({p.data, p.bytes, std::make_shared<std::atomic<bool>>(false)});
      p.comm->group->mail[{p.comm->rank, p.peer}].push_back(sent.back());
    }
  changed.notify_all();
  for (const Part& p : all) {
    if (p.sends) continue;
    auto& box = p.comm->group->mail[{p.peer, p.comm->rank}];
    changed.wait(lock, [&] { return !box.empty() || p.comm->aborted; });
    if (box.empty()) return;
    std::memcpy(p.data, box.front().data, std::min(p.bytes, box.front().bytes));
    box.front().taken->store(true);
    box.pop_front();
    changed.notify_all();
  }
  for (const Message& m : sent)
    changed.wait(lock, [&] { return m.taken->load() || all[0].comm->aborted; });
}

ncclResult_t add_part(bool sends, void* data, size_t bytes, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  Part part{&of(comm), &of(stream), sends, data, bytes, peer};
  if (grouped)
    parts.push_back(part);
  else
    of(stream).give([part] { carry_out({part}); });
  return ncclSuccess;
}

bool touch(const Range& a, const char* data, size_t bytes) {
  return data < a.end && a.begin < data + bytes;
}

void add_registration(nccl::Library& l) {
  l.memory_alloc = [](void** out, size_t bytes) {
    *out = ::operator new (bytes, std::align_val_t{4096});
    std::memset(*out, 0x7f, bytes);  // nobody may count on zeros
    fake_other_memory().add(*out, bytes);
    std::lock_guard lock(mutex);
    network_memory[*out] = bytes;
    return ncclSuccess;
  };
  l.memory_free = [](void* data) {
    std::lock_guard lock(mutex);
    auto found = network_memory.find(data);
    if (found == network_memory.end())
      return fault("memory freed that was not taken"), ncclInvalidArgument;
    for (const auto& comm : comms)
      for (const auto& range : comm->registered)
        if (!comm->aborted && touch(*range, static_cast<char*>(data), found->second))
          fault("registered memory freed");
    network_memory.erase(found);
    fake_other_memory().remove(data);
    ::operator delete (data, std::align_val_t{4096});
    return ncclSuccess;
  };
  l.comm_register = [](ncclComm_t c, void* data, size_t bytes, void** handle) {
    std::lock_guard lock(mutex);
    for (const auto& range : of(c).registered)
      if (touch(*range, static_cast<char*>(data), bytes))
        fault("memory registered twice with one communicator");
    auto* begin = static_cast<const char*>(data);
    of(c).registered.push_back(std::make_unique<Range>(Range{begin, begin + bytes}));
    *handle = of(c).registered.back().get();
    ++registrations.made;
    return ncclSuccess;
  };
  l.comm_deregister = [](ncclComm_t c, void* handle) {
    std::lock_guard lock(mutex);
    if (std::erase_if(of(c).registered, [&](const auto& range) { return range.get() == handle; }) ==
        0)
      return fault("a registration ended that is none"), ncclInvalidUsage;
    ++registrations.ended;
    return ncclSuccess;
  };
}

void add_collectives(nccl::Library& l) {
  l.all_reduce = [](const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t op,
                    ncclComm_t c, cudaStream_t s) {
    if (op != ncclSum) return ncclInvalidArgument;
    size_t bytes = bytes_of(count, type);
    return run_collective(c, s, in, bytes, out, bytes, [=](Group::Collective& m) {
      reduce_in_order(m.in, m.out, static_cast<int64_t>(count), dtype_of(type), ReduceOp::sum);
    });
  };
  l.reduce_scatter = [](const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t,
                        ncclComm_t c, cudaStream_t s) {
    size_t one = bytes_of(count, type);
    return run_collective(c, s, in, one * group_size(c), out, one, [=](Group::Collective& m) {
      size_t part = bytes_of(count, type);
      std::vector<std::vector<char>> results;
      for (size_t r = 0; r < m.in.size(); ++r) {
        std::vector<const void*> inputs;
        for (const void* data : m.in) inputs.push_back(static_cast<const char*>(data) + r * part);
        void* to = results.emplace_back(part).data();
        reduce_in_order(inputs, {&to, 1}, static_cast<int64_t>(count), dtype_of(type),
                        ReduceOp::sum);
      }
      for (size_t r = 0; r < m.in.size(); ++r)
        if (part > 0) std::memcpy(m.out[r], results[r].data(), part);
    });
  };
  l.all_gather = [](const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t c,
                    cudaStream_t s) {
    size_t one = bytes_of(count, type);
    return run_collective(c, s, in, one, out, one * group_size(c), [=](Group::Collective& m) {
      size_t part = bytes_of(count, type);
      for (void* to : m.out)
        for (size_t r = 0; r < m.in.size(); ++r)
          if (part > 0) std::memmove(static_cast<char*>(to) + r * part, m.in[r], part);
    });
  };
  l.broadcast = [](const void* in, void* out, size_t count, ncclDataType_t type, int root,
                   ncclComm_t c, cudaStream_t s) {
    size_t one = bytes_of(count, type);
    return run_collective(c, s, in, one, out, one, [=](Group::Collective& m) {
      for (void* to : m.out)
        if (size_t bytes = bytes_of(count, type); bytes > 0)
          std::memmove(to, m.in[static_cast<size_t>(root)], bytes);
    });
  };
}

void add_ends_and_errors(nccl::Library& l) {
  l.finalize = [](ncclComm_t c) {
    std::lock_guard lock(mutex);
    if (!of(c).registered.empty()) fault("a communicator ended with registered memory");
    return ncclSuccess;
  };
  l.destroy = [](ncclComm_t) { return --living, ncclSuccess; };
  l.abort = [](ncclComm_t c) {
    std::lock_guard lock(mutex);
    of(c).aborted = true;
    --living;
    changed.notify_all();
    return ncclSuccess;
  };
  l.async_error = [](ncclComm_t c, ncclResult_t* state) {
    std::lock_guard lock(mutex);
    *state = of(c).group->joined < of(c).group->size ? ncclInProgress
                                                     : static_cast<ncclResult_t>(error.load());
    return ncclSuccess;
  };
}

nccl::Library make() {
  nccl::Library l;
  l.get_version = [](int* v) { return *v = 22809, ncclSuccess; };
  l.get_unique_id = [](ncclUniqueId* id) {
    std::lock_guard lock(mutex);
    std::memset(id, 0, sizeof *id);
    uint64_t number = ++ids;
    std::memcpy(id->internal, &number, sizeof number);
    return ncclSuccess;
  };
  l.init = [](ncclComm_t* out, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
    if (config->blocking != 0) return ncclInvalidUsage;
    std::lock_guard lock(mutex);
    uint64_t number = 0;
    std::memcpy(&number, id.internal, sizeof number);
    auto& group = groups[number];
    if (!group) group = std::make_shared<Group>();
    if (number == 0 || (group->joined > 0 && group->size != size)) return ncclInvalidArgument;
    group->size = size, ++group->joined;
    auto comm = std::make_unique<Comm>();
    comm->group = group, comm->rank = rank;
    *out = reinterpret_cast<ncclComm_t>(comm.get());
    comms.push_back(std::move(comm));
    ++living;
    return ncclInProgress;
  };
  add_ends_and_errors(l);
  l.error_text = [](ncclResult_t result) -> const char* {
    return result == ncclRemoteError ? "remote process exited or there was a network error"
                                     : "some error";
  };
  l.last_error = [](ncclComm_t) -> const char* { return ""; };
  add_collectives(l);
  l.send = [](const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
              cudaStream_t s) {
    return add_part(true, const_cast<void*>(data), bytes_of(count, type), peer, c, s);
  };
  l.recv = [](void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
              cudaStream_t s) { return add_part(false, data, bytes_of(count, type), peer, c, s); };
  l.group_start = [] { return grouped = true, ncclSuccess; };
  l.group_end = [] {
    grouped = false;
    if (!parts.empty()) parts[0].stream->give([all = std::exchange(parts, {})] { carry_out(all); });
    return ncclSuccess;
  };
  add_registration(l);
  return l;
}

}  // namespace

const nccl::Library& fake_nccl() {
  static const nccl::Library library = make();
  return library;
}
const nccl::Library& old_fake_nccl() {
  static const nccl::Library library = [] {
    nccl::Library l = make();
    l.memory_alloc = nullptr, l.memory_free = nullptr, l.comm_register = nullptr,
    l.comm_deregister = nullptr;
    return l;
  }();
  return library;
}
FakeRegistrations take_fake_registrations() {
  std::lock_guard lock(mutex);
  return std::exchange(registrations, {});
}
void set_fake_error(ncclResult_t e) { error = e; }
int living_fake_comms() { return living; }

}  // namespace mtrain::testing
