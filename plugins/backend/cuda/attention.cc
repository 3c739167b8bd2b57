#include "attention.h"

#include <algorithm>
#include <cstring>

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

PlainSpans spans_on_device(CudaStream& stream, const AttentionArgs& a) {
  std::vector<AttentionSpan> spans = spans_of(a);
  PlainSpans out{nullptr, static_cast<int64_t>(spans.size()), 0, 0, nullptr};
  for (const AttentionSpan& s : spans) {
    out.max_queries = std::max<int64_t>(out.max_queries, s.queries);
    out.max_keys = std::max<int64_t>(out.max_keys, s.keys);
  }
  if (spans.empty()) return out;
  // One table, since an upload replaces the one before it: the tokens of dropout, then the spans.
  size_t tokens = a.dropout.p > 0 ? spans.size() * sizeof(int64_t) : 0,
         bytes = spans.size() * sizeof(AttentionSpan);
  std::vector<char> table(tokens + bytes);
  if (tokens > 0) std::memcpy(table.data(), a.dropout.first_tokens, tokens);
  std::memcpy(table.data() + tokens, spans.data(), bytes);
  const char* uploaded = static_cast<const char*>(stream.uploaded(table.data(), table.size()));
  out.spans = reinterpret_cast<const AttentionSpan*>(uploaded + tokens);
  if (tokens > 0) out.first_tokens = reinterpret_cast<const int64_t*>(uploaded);
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
  require_taken(plain_attention(stream.launch(), args, spans_on_device(stream, args)), args,
                "attention");
}

void attention_backward(CudaStream& stream, const AttentionBackwardArgs& args) {
  if (SdpaPlans* plans = stream.attention().sdpa();
      plans && run_sdpa_backward(*plans, stream, args))
    return;
  require_taken(
      plain_attention_backward(stream.launch(), args, spans_on_device(stream, args.forward)),
      args.forward, "attention_backward");
}

}  // namespace mtrain::cuda
