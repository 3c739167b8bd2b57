#include "launcher.h"

#include "cpu_levels.h"
#include "mtrain/base/error.h"
#include "mtrain/cpu/cpu_backend.h"

namespace mtrain::optimizer_kernels {
namespace {

const Kernels& of_level(std::string_view level) {
#ifdef MT_X86_LEVELS
  if (level.starts_with("v4")) return v4::kTable;
  if (level == "v3") return v3::kTable;
#endif
  (void)level;
  return base::kTable;
}

const Kernels* table_for(ExecutionContext& ctx) {
  const std::string_view backend = ctx.backend().name();
  if (backend == "cpu") return &of_level(cpu_level_name());
  return backend == "cuda" ? kCudaKernels : nullptr;
}

}  // namespace

Launcher::Launcher(ExecutionContext& ctx, std::string_view optimizer)
    : optimizer_(optimizer), table_(table_for(ctx)), on_device_(ctx.backend().name() != "cpu") {
  MT_USER_CHECK(table_, ErrorClass::config,
                cat("optimizer '", optimizer, "' has no kernels for the backend '",
                    ctx.backend().name(), "'"),
                "set optimizer.type=adamw, which runs on every backend");
}

void Launcher::check(const char* fault) const {
  MT_USER_CHECK(!fault, ErrorClass::plugin,
                cat("a kernel of optimizer '", optimizer_, "' did not start: ", fault),
                "build mtrain for this device (MT_CUDA_ARCHITECTURES)");
}

}  // namespace mtrain::optimizer_kernels
