// The calls of NCCL that this plugin makes, as a table: filled from libnccl.so.2 when a job begins,
// so that the plugin loads on machines that have none; tests fill it with functions of their own.
// Thread-safe as NCCL is: one call on a communicator at a time.
#pragma once
#include <nccl.h>

#include <cstddef>
#include <string>

namespace mtrain::nccl {

#define MT_NCCL_CALLS(X)                \
  X(get_version, ncclGetVersion)        \
  X(get_unique_id, ncclGetUniqueId)     \
  X(init, ncclCommInitRankConfig)       \
  X(finalize, ncclCommFinalize)         \
  X(destroy, ncclCommDestroy)           \
  X(abort, ncclCommAbort)               \
  X(async_error, ncclCommGetAsyncError) \
  X(error_text, ncclGetErrorString)     \
  X(last_error, ncclGetLastError)       \
  X(all_reduce, ncclAllReduce)          \
  X(broadcast, ncclBroadcast)           \
  X(reduce_scatter, ncclReduceScatter)  \
  X(all_gather, ncclAllGather)          \
  X(send, ncclSend)                     \
  X(recv, ncclRecv)                     \
  X(group_start, ncclGroupStart)        \
  X(group_end, ncclGroupEnd)

struct Library {
#define MT_NCCL_CALL(name, symbol) decltype(&::symbol) name = nullptr;
  MT_NCCL_CALLS(MT_NCCL_CALL)
#undef MT_NCCL_CALL
  /// Registered memory, from NCCL 2.19 on; null before.
  ncclResult_t (*memory_alloc)(void** data, size_t bytes) = nullptr;
  ncclResult_t (*memory_free)(void* data) = nullptr;
  ncclResult_t (*comm_register)(ncclComm_t comm, void* data, size_t bytes, void** handle) = nullptr;
  ncclResult_t (*comm_deregister)(ncclComm_t comm, void* handle) = nullptr;
  bool registers() const { return memory_alloc && memory_free && comm_register && comm_deregister; }
  std::string version() const;  // "2.28.9"
};

/// Loads libnccl.so.2 from where the system and this plugin look. Throws Error(plugin) that says
/// how to get it.
const Library& load_library();

/// "unhandled cuda error (…)": what NCCL says of a failed call on `comm`, which may be null.
std::string explain(const Library& library, ncclResult_t result, ncclComm_t comm);

}  // namespace mtrain::nccl
