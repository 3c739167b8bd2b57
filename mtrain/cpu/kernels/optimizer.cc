// AdamW, in one pass over its four arrays.
#include "mtrain/cpu/kernels/launch.h"
#include "mtrain/kernel/adamw.h"

namespace mtrain::cpu::MT_ISA {

void adamw(Stream& stream, const AdamWArgs& args) {
  AdamWStep step{args.lr,           args.beta1,       args.beta2,       args.eps,
                 args.weight_decay, args.correction1, args.correction2, args.grad_scale};
  auto block = [&](int64_t begin, int64_t end, auto* value) {
    SerialTeam{}.each(end - begin, [&](int64_t j) {
      int64_t i = begin + j;
      float param = args.param[i], m = args.exp_avg[i], v = args.exp_avg_sq[i];
      adamw_update(step, args.grad[i], param, m, v);
      args.param[i] = param;
      args.exp_avg[i] = m;
      args.exp_avg_sq[i] = v;
      if constexpr (!std::is_same_v<decltype(value), void*>)
        value[i] = std::remove_pointer_t<decltype(value)>(param);
    });
  };
  auto& cpu = cpu_stream(stream);
  if (args.value == nullptr)
    for_blocks(cpu, args.count, kElementBlock,
               [&](int64_t begin, int64_t end) { block(begin, end, static_cast<void*>(nullptr)); });
  else
    with_float_type(args.value_dtype, [&]<class T>(T) {
      for_blocks(cpu, args.count, kElementBlock, [&](int64_t begin, int64_t end) {
        block(begin, end, static_cast<T*>(args.value));
      });
    });
}

}  // namespace mtrain::cpu::MT_ISA
