#include "mtrain/train/session.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/cpu/threads.h"
#include "mtrain/tensor/planning.h"
#include "mtrain/train/hf_import.h"

namespace mtrain {
namespace {

int64_t padded_vocab(const ModelSection& model, const Tokenizer& tokenizer) {
  if (model.vocab_size > 0) return model.vocab_size;
  int64_t multiple = model.vocab_multiple;
  return (tokenizer.vocab_size() + multiple - 1) / multiple * multiple;
}

int threads_per_rank(const Settings& s, int ranks_here) {
  return s.run.threads > 0 ? static_cast<int>(s.run.threads) : std::max(1, cpu::default_threads() / ranks_here);
}

}  // namespace

Session::Session(const Recipe& r, PluginHost& host, Options options) : recipe(r), plugins(host) {
  const Settings& s = recipe.settings;
  backend = make_cpu_backend(threads_per_rank(s, options.ranks_here));
  Probe probe = backend->probe();
  MT_USER_CHECK(probe.devices > 0, ErrorClass::config, cat("backend '", backend->name(), "' is not usable: ", probe.reason), "");
  device = probe.reason.empty() ? std::string(backend->name()) : probe.reason;
  if (options.planning) {
    real_backend = std::move(backend);
    backend = make_planning_backend(*real_backend);
  }
  run = std::make_unique<Run>(*backend, Device{}, static_cast<uint64_t>(s.rng.seed));

  TokenizerContext tokenizer_context{recipe.directory};
  tokenizer = plugins.make<Tokenizer>(s.tokenizer.type, recipe.component("tokenizer"), tokenizer_context);
  vocab_size = padded_vocab(s.model, *tokenizer);
  valid_vocab = s.model.vocab_size > 0 ? vocab_size : tokenizer->vocab_size();
  MT_USER_CHECK(tokenizer->vocab_size() <= vocab_size, ErrorClass::config,
                cat("model.vocab_size (", vocab_size, ") is smaller than the vocabulary of tokenizer '", s.tokenizer.type, "' (",
                    tokenizer->vocab_size(), ")"),
                cat("set model.vocab_size=0 or at least ", tokenizer->vocab_size()));

  build_.emplace(BuildSettings{.run = *run,
                               .parameters = parameters,
                               .dtype = *dtype_from_name(s.mixed_precision.dtype),
                               .initialise = options.initialise && s.model.init_from.empty(),
                               .defer_memory = options.defer_memory && (s.model.init_from.empty() || !options.initialise),
                               .parallel = options.parallel});
  ModelContext context{.scope = Scope(*build_),
                       .stage = {},
                       .vocab_size = vocab_size,
                       .valid_vocab = valid_vocab,
                       .max_positions = s.model.seq_length,
                       .recompute = s.model.recompute == "full"};
  model = plugins.make<Model>(s.model.type, recipe.component("model"), context);
  if (options.initialise && !s.model.init_from.empty())
    import_hf_weights(HfDir(recipe.resolve(s.model.init_from)), *model, parameters);
}

Session::~Session() = default;

ModelInput to_device(Run& run, const Batch& batch, bool with_targets) {
  Shape shape{static_cast<int64_t>(batch.tokens.size())};
  ModelInput input;
  input.tokens_T = run.from_host<int32_t>(batch.tokens, shape);
  input.positions_T = run.from_host<int32_t>(batch.positions, shape);
  if (with_targets) input.targets_T = run.from_host<int32_t>(batch.targets, shape);
  input.bounds = std::make_shared<const std::vector<int32_t>>(batch.cu_seqlens);
  return input;
}

double measured_peak_flops(Backend& backend, DType dtype) {
  Run run(backend);  // its memory goes back at the end
  constexpr int64_t kSize = 1024;
  constexpr int kRounds = 4;
  Tensor a = run.zeros({kSize, kSize}, dtype), b = run.zeros({kSize, kSize}, dtype), c = run.empty({kSize, kSize}, dtype);
  double best = 0;
  for (int i = 0; i <= kRounds; ++i) {
    auto start = std::chrono::steady_clock::now();
    run.kernels().gemm(run.stream(), {.a = a.raw(), .b = b.raw(), .c = c.raw(), .transpose_b = true, .m = kSize, .n = kSize,
                                      .k = kSize, .lda = kSize, .ldb = kSize, .ldc = kSize, .dtype = dtype, .c_dtype = dtype});
    run.stream().synchronize();
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (i > 0) best = std::max(best, 2.0 * kSize * kSize * kSize / seconds);
  }
  return best;
}

}  // namespace mtrain
