// Tests of ops. A Case is a table row: the inputs, the op, and its definition in double
// (reference.h). check() runs it in fp32, bf16 and fp16 and compares the value and every gradient
// with the definition evaluated on the inputs as rounded to the dtype; with empty and with filled
// gradients; with only one input requiring a gradient; without a tape; on one and on several
// threads, which must be bit-identical; and all of it between guard bytes, and on every backend of
// the program (test_backends.h): the instruction levels of this CPU, or a GPU. The composition of a
// fused op is tested on the first backend.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "contract/guard_backend.h"
#include "contract/reference.h"
#include "mtrain/autograd/ops.h"

namespace mtrain::contract {

using reference::Values;

inline constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};
inline constexpr int64_t kOddSizes[] = {1, 3, 17, 33, 65, 129};

/// Half the distance between neighbouring numbers of a dtype near 1.
double roundoff(DType dtype);
Values round_to(Values values, DType dtype);
/// Normal numbers times `scale`; the same for the same key.
Values random_values(int64_t count, std::string_view key, double scale = 1);
Tensor make(ExecutionContext& ctx, const Values& values, const Shape& shape, DType dtype);
Tensor make_ids(ExecutionContext& ctx, const std::vector<int32_t>& ids);
/// The values of a floating tensor.
Values values_of(const Tensor& t);

/// One rank on the first test backend, with guards. The destructor checks the guards and that all
/// memory was freed.
class Fixture {
 public:
  explicit Fixture(int threads = 2, uint64_t seed = 11);
  /// On a given backend.
  explicit Fixture(std::unique_ptr<Backend> backend, uint64_t seed = 11);
  ~Fixture();
  ExecutionContext& context() { return *ctx_; }
  /// The kernels of this rank's backend; set one to null to remove it.
  KernelTable& kernels() { return backend_->own_kernels(); }

 private:
  std::unique_ptr<GuardBackend> backend_;
  std::optional<ExecutionContext> ctx_;
};

/// Receives the gradient of a tensor that is not a parameter.
class Catcher final : public GradTarget {};

struct Input {
  std::string name;
  Shape shape;
  Values values;
  bool parameter = false;  // its gradient accumulates in float
  double roundings = 0;    // of values that it sums, to the op's dtype; as Bound::inner
};

/// Allowed distance from the definition, besides the rounding of the result itself. `scale` is the
/// larger of 1 and the largest value of the result.
struct Bound {
  double inner = 0;  // roundings of intermediate values to the dtype, in units of roundoff * scale
  double sums = 16;  // float arithmetic inside, in units of 2^-24 * scale
};

struct Case {
  std::string name;
  std::vector<Input> inputs;
  Shape out;
  bool float_out = false;  // the result is float whatever the dtype
  std::function<Tensor(ExecutionContext&, std::vector<Tensor>&)> op;
  std::function<Values(const std::vector<Values>&)> forward;
  std::function<std::vector<Values>(const std::vector<Values>&, const Values& dy)> backward;
  Bound bound;
  /// For a fused op: removes its kernels, so that its composition runs. check() tests the
  /// composition too, and compares the fused kernels with it.
  std::function<void(KernelTable&)> remove = {};
};

/// The result of a table of cases: their number, and the largest deviation relative to the
/// tolerance. Prints it when the environment has MT_TEST_FIGURES.
class Figures {
 public:
  explicit Figures(std::string what) : what_(std::move(what)) {}
  ~Figures();
  void add(double worst) {
    ++cases_;
    worst_ = worst > worst_ ? worst : worst_;
  }

 private:
  std::string what_;
  int cases_ = 0;
  double worst_ = 0;
};

/// Compares element by element; returns the largest deviation relative to the tolerance.
double check_close(const Values& got, const Values& want, DType dtype, const Bound& bound,
                   const std::string& what);
/// Runs the case as described at the head of this file, and its definition against finite
/// differences.
void check(const Case& c, Figures& figures);

}  // namespace mtrain::contract
