#include "mtrain/train/step_hooks.h"

namespace mtrain {

void set_step_hooks(Interpreter& interpreter, ParamBuckets& buckets, GradReducer& reducer) {
  interpreter.set_gradient_hooks(
      {[&reducer] { reducer.micro_batch_done(); }, [&reducer] { reducer.reduce_scatter(); },
       [&reducer] { reducer.finish_step(); }, [&reducer](size_t bucket) { reducer.start(bucket); },
       reducer.buckets()});
  interpreter.set_param_hooks({[&buckets](int64_t stage) { buckets.gather_stage(stage); },
                               [&buckets](int64_t stage) { buckets.release_stage(stage); },
                               {[&buckets](PartId part) { buckets.gather_part(part); },
                                [&buckets](PartId part) { buckets.release_part(part); }}});
  buckets.set_use_hooks({[&interpreter](PartId part) { interpreter.before_read(part); },
                         [&interpreter](PartId part, const std::string& parameter) {
                           interpreter.before_write(part, parameter);
                         },
                         [&interpreter](PartId part, const std::string& parameter) {
                           interpreter.refuse_read(part, parameter);
                         }});
}

}  // namespace mtrain
