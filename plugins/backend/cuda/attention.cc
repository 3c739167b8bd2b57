#include "attention.h"

#include <algorithm>

#include "check.h"
#include "cuda_stream.h"
#include "mtrain/base/error.h"
#include "sdpa.h"

namespace mtrain::cuda {

AttentionPlans::AttentionPlans() : sdpa_(make_sdpa_plans()) {}
AttentionPlans::~AttentionPlans() = default;

std::vector<AttentionSpan> spans_of(const AttentionArgs& a) {
  std::vector<AttentionSpan> spans;
  for (int64_t s = 0; s < a.sequences; ++s) {
    if (a.spans) {
      spans.push_back(a.spans[s]);
      continue;
    }
    int32_t begin = a.cu_seqlens[s], n = a.cu_seqlens[s + 1] - begin;
    spans.push_back(
        {.first_query = begin, .queries = n, .first_key = begin, .keys = n, .offset = 0});
  }
  return spans;
}

namespace {

PlainSpans on_device(CudaStream& stream, const std::vector<AttentionSpan>& spans) {
  PlainSpans out{nullptr, static_cast<int64_t>(spans.size()), 0, 0};
  for (const AttentionSpan& s : spans) {
    out.max_queries = std::max<int64_t>(out.max_queries, s.queries);
    out.max_keys = std::max<int64_t>(out.max_keys, s.keys);
  }
  if (!spans.empty())
    out.spans = static_cast<const AttentionSpan*>(
        stream.uploaded(spans.data(), spans.size() * sizeof(AttentionSpan)));
  return out;
}

void require_taken(cudaError_t status, const AttentionArgs& a, const char* what) {
  MT_USER_CHECK(
      status != cudaErrorInvalidValue, ErrorClass::config,
      cat("no CUDA attention for ", a.sequences, " sequences, ", a.heads, " heads of ", a.head_dim,
          " in ", name(a.dtype)),
      "at most 65535 sequences and heads of 2048; choose dist.backend=cpu or another model");
  check(status, what);
}

}  // namespace

void attention(CudaStream& stream, const AttentionArgs& args) {
  if (SdpaPlans* plans = stream.attention().sdpa(); plans && run_sdpa(*plans, stream, args)) return;
  require_taken(plain_attention(stream.launch(), args, on_device(stream, spans_of(args))), args,
                "attention");
}

void attention_backward(CudaStream& stream, const AttentionBackwardArgs& args) {
  if (SdpaPlans* plans = stream.attention().sdpa();
      plans && run_sdpa_backward(*plans, stream, args))
    return;
  require_taken(
      plain_attention_backward(stream.launch(), args, on_device(stream, spans_of(args.forward))),
      args.forward, "attention_backward");
}

}  // namespace mtrain::cuda
