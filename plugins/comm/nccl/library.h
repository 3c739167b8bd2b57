// The NCCL functions that this plugin calls, as a table. It is filled from libnccl.so.2 when a job
// starts, so that the plugin loads on machines without NCCL; tests fill it with their own
// functions. Thread-safe like NCCL: one call per communicator at a time.
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
  /// Registered memory, since NCCL 2.19; null in older versions.
  ncclResult_t (*memory_alloc)(void** data, size_t bytes) = nullptr;
  ncclResult_t (*memory_free)(void* data) = nullptr;
  ncclResult_t (*comm_register)(ncclComm_t comm, void* data, size_t bytes, void** handle) = nullptr;
  ncclResult_t (*comm_deregister)(ncclComm_t comm, void* handle) = nullptr;
  bool registers() const { return memory_alloc && memory_free && comm_register && comm_deregister; }
  std::string version() const;  // "2.28.9"
};

/// Loads libnccl.so.2 from the search path of the system and this plugin. Throws Error(plugin) with
/// instructions if it is missing.
const Library& load_library();

/// NCCL's message for a failed call on `comm`, which may be null: "unhandled cuda error (…)".
std::string explain(const Library& library, ncclResult_t result, ncclComm_t comm);

}  // namespace mtrain::nccl
