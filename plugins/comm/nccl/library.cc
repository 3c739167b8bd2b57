#include "library.h"

#include <dlfcn.h>

#include "mtrain/base/error.h"

namespace mtrain::nccl {

namespace {

constexpr int kOldest = 21800;  // supports blocking=0 and names of communicators

template <class F>
void find(void* handle, const char* symbol, F& out) {
  out = reinterpret_cast<F>(::dlsym(handle, symbol));
  MT_USER_CHECK(out != nullptr, ErrorClass::plugin, cat("libnccl.so.2 has no ", symbol),
                "install NCCL 2.18 or later");
}

template <class F>
void find_if_there(void* handle, const char* symbol, F& out) {
  out = reinterpret_cast<F>(::dlsym(handle, symbol));
}

Library loaded() {
  void* handle = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = ::dlerror();
    throw Error(ErrorClass::plugin,
                cat("dist.comm=nccl: NCCL cannot be loaded: ", why ? why : "libnccl.so.2"),
                "install NCCL (it comes with the CUDA toolkit or with `pip install "
                "nvidia-nccl-cu13`) and add its folder to LD_LIBRARY_PATH; or set dist.comm=mpi");
  }
  Library library;
#define MT_NCCL_FIND(name, symbol) find(handle, #symbol, library.name);
  MT_NCCL_CALLS(MT_NCCL_FIND)
#undef MT_NCCL_FIND
  find_if_there(handle, "ncclMemAlloc", library.memory_alloc);
  find_if_there(handle, "ncclMemFree", library.memory_free);
  find_if_there(handle, "ncclCommRegister", library.comm_register);
  find_if_there(handle, "ncclCommDeregister", library.comm_deregister);
  int version = 0;
  library.get_version(&version);
  MT_USER_CHECK(version >= kOldest, ErrorClass::plugin,
                cat("NCCL ", library.version(), " is too old"), "install NCCL 2.18 or later");
  return library;
}

}  // namespace

std::string Library::version() const {
  int number = 0;
  get_version(&number);
  return cat(number / 10000, ".", number / 100 % 100, ".", number % 100);
}

const Library& load_library() {
  static const Library library = loaded();
  return library;
}

std::string explain(const Library& library, ncclResult_t result, ncclComm_t comm) {
  std::string text = library.error_text(result);
  const char* more = library.last_error(comm);
  return more && *more ? cat(text, " (", more, ")") : text;
}

}  // namespace mtrain::nccl
