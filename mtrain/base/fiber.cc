#include "mtrain/base/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <utility>

#include "mtrain/base/error.h"
#include "mtrain/base/plugin_call.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace mtrain {

struct Fiber::Context {
  ucontext_t owner, own;
  std::byte* memory = nullptr;
  size_t bytes = 0, guard = 0;
#if defined(__SANITIZE_ADDRESS__)
  void *owner_shadow = nullptr, *own_shadow = nullptr;
  const void* owner_bottom = nullptr;
  size_t owner_bytes = 0;
#endif
#if defined(__SANITIZE_THREAD__)
  void *owner_thread = nullptr, *own_thread = nullptr;
#endif
};

Fiber::Fiber(size_t stack_bytes) : context_(std::make_unique<Context>()) {
  auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  context_->guard = page;
  context_->bytes = (stack_bytes + page - 1) / page * page + page;
  void* memory = ::mmap(nullptr, context_->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  context_->memory = static_cast<std::byte*>(memory);
  if (::mprotect(memory, page, PROT_NONE) != 0) {
    ::munmap(memory, context_->bytes);
    throw std::bad_alloc();
  }
}

Fiber::~Fiber() { ::munmap(context_->memory, context_->bytes); }

void Fiber::start(std::function<void()> body) {
  MT_CHECK(!under_way_, "a fiber was started again before it ended");
  body_ = std::move(body);
  MT_CHECK_EQ(::getcontext(&context_->own), 0);
  context_->own.uc_stack.ss_sp = context_->memory + context_->guard;
  context_->own.uc_stack.ss_size = context_->bytes - context_->guard;
  context_->own.uc_link = nullptr;
  auto self = reinterpret_cast<std::uintptr_t>(this);  // makecontext passes only ints
  ::makecontext(&context_->own, reinterpret_cast<void (*)()>(&Fiber::enter), 2,
                static_cast<unsigned>(uint64_t{self} >> 32), static_cast<unsigned>(self));
#if defined(__SANITIZE_THREAD__)
  context_->own_thread = __tsan_create_fiber(0);
#endif
  under_way_ = true;
  go();
}

void Fiber::enter(unsigned high, unsigned low) {
  reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>((uint64_t{high} << 32) | low))
      ->body_and_leave();
}

void Fiber::body_and_leave() noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &context_->owner_bottom, &context_->owner_bytes);
#endif
  try {
    body_();
  } catch (...) {
    thrown_ = std::current_exception();
  }
  under_way_ = false;
  leave();
}

void Fiber::resume() {
  MT_CHECK(under_way_, "a fiber was resumed after it ended");
  go();
}

void Fiber::yield() { leave(); }

void Fiber::go() {
  const PluginCall* owner_call = PluginCall::exchange_current(plugin_call_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&context_->owner_shadow, context_->own.uc_stack.ss_sp,
                                 context_->own.uc_stack.ss_size);
#endif
#if defined(__SANITIZE_THREAD__)
  context_->owner_thread = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(context_->own_thread, 0);
#endif
  ::swapcontext(&context_->owner, &context_->own);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(context_->owner_shadow, nullptr, nullptr);
#endif
  plugin_call_ = PluginCall::exchange_current(owner_call);
  if (under_way_) return;
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(context_->own_thread);
#endif
  body_ = nullptr;
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void Fiber::leave() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(under_way_ ? &context_->own_shadow : nullptr,
                                 context_->owner_bottom, context_->owner_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(context_->owner_thread, 0);
#endif
  ::swapcontext(&context_->own, &context_->owner);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(context_->own_shadow, &context_->owner_bottom,
                                  &context_->owner_bytes);
#endif
}

}  // namespace mtrain
