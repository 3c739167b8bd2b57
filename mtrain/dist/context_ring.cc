// Ring attention (Liu et al. 2023, arXiv:2310.01889) on balanced chunks. In step t a rank computes
// with the keys and values of the member t places before it, while those of the next step are in
// transfer. Backward repeats the same steps. The gradients of a member's keys start at the next
// member, accumulate each member's contribution, and return to their owner after n-1 steps.
#include "mtrain/dist/context_ring.h"

#include "mtrain/dist/context_spans.h"

namespace mtrain {
namespace {

enum Tag : int { kKeys, kGradients };

/// The common state of a rank's steps for one part.
class Round {
 public:
  Round(ExecutionContext& ctx, const ContextBlock& block, const RingPart& part, Communicator& comm)
      : ctx_(ctx), block_(block), part_(part), comm_(comm), moves_(ctx.backend().computes()) {}

  int steps() const { return part_.ring.ranks(); }
  /// The owner of the keys that are here in step t.
  int owner(int t) const { return (part_.me + steps() - t % steps()) % steps(); }
  int64_t rows(int t) const { return part_.ring.rows(owner(t)); }
  /// A tensor for the keys and values (or their gradients) of the owner of step t.
  Tensor packed(int t, DType dtype) const {
    return ctx_.empty({rows(t), block_.packed_width()}, dtype);
  }

  /// Sends a tensor to the next member and receives one from the previous member.
  struct Passing {
    Pending sent, received;
    void wait() {
      received.wait();
      sent.wait();
    }
  };
  Passing pass(const Tensor& out, const Tensor& in, Tag tag) const {
    if (!moves_) return {};
    auto member = [&](int m) { return part_.first + (m + steps()) % steps() * part_.step; };
    Pending sent = comm_.start_send(out, member(part_.me + 1), tag);
    return {std::move(sent), comm_.start_recv(in, member(part_.me - 1), tag)};
  }

  /// Calls compute(t, keys of step t) for all steps. In step 0 the keys are the rank's own, inside
  /// qkv, and `keys` is undefined.
  template <class Compute>
  void go(const Tensor& qkv, Compute&& compute) const {
    Tensor at_hand = steps() > 1 ? block_.pack(ctx_, qkv) : Tensor();
    for (int t = 0; t < steps(); ++t) {
      Tensor next;
      Passing passing;
      if (t + 1 < steps()) {
        next = packed(t + 1, qkv.dtype());
        passing = pass(at_hand, next, kKeys);
      }
      compute(t, t == 0 ? Tensor() : at_hand);
      passing.wait();
      at_hand = next;
    }
  }

  /// Which queries attend to which keys in step t.
  std::vector<SpanCall> calls(int t) const {
    return ring_calls(block_, part_.ring, part_.starts, part_.me, owner(t));
  }

 private:
  ExecutionContext& ctx_;
  const ContextBlock& block_;
  const RingPart& part_;
  Communicator& comm_;
  bool moves_;
};

struct RingAttention {
  ContextBlock block;
  std::vector<RingPart> parts;
  Communicator* comm = nullptr;
  Tensor qkv = {}, sinks = {}, o = {};
  std::vector<Tensor> lse = {};  // by part

  static Tensor rows_of(const Tensor& t, const RingPart& part) {
    return t.slice(0, part.row, part.row + part.ring.rows(part.me));
  }

  MaybePlacement placed(const Tensor& in, const Tensor& sinks_in) const {
    return ResultPlacement("context attention", in)
        .with(PlacementRule::pointwise)
        .with(PlacementRule::bias, sinks_in)
        .unsharded(0, "its rows are the tokens of one rank's slice");
  }
  Tensor forward(ExecutionContext& ctx, const Tensor& qkv_in, const Tensor& sinks_in) {
    qkv = qkv_in.detach();
    if (sinks_in.defined()) sinks = sinks_in.detach();
    block.draw(ctx);
    Tensor sum = ctx.zeros({qkv.size(0), block.layout.heads * block.layout.head_dim}, DType::f32);
    for (const RingPart& part : parts) {
      Round round(ctx, block, part, *comm);
      Tensor mine = rows_of(qkv, part), to = rows_of(sum, part);
      lse.push_back(empty_lse(ctx, block.layout.heads, mine.size(0)));
      round.go(mine, [&](int t, const Tensor& keys) {
        Tensor once = t == 0 ? sinks : Tensor();  // a sink counts once for each query
        for (const SpanCall& call : round.calls(t)) {
          block.forward(ctx, mine, keys, call.mask(), to, lse.back(), true, once);
          once = {};
        }
      });
    }
    return o = rounded(ctx, sum, qkv.dtype());
  }

  void backward(ExecutionContext& ctx, const Tensor& dy, Grads<2>& g) {
    for (size_t p = 0; p < parts.size(); ++p)
      add_sink_gradient(ctx, g[1], sinks, block.scores, block.layout, rows_of(o, parts[p]),
                        rows_of(dy, parts[p]), lse[p]);
    if (!g[0].wanted()) return;
    Tensor d_qkv = ctx.zeros(qkv.shape(), DType::f32);
    for (size_t p = 0; p < parts.size(); ++p) add_gradients(ctx, parts[p], lse[p], dy, d_qkv);
    g[0].give(ctx, rounded(ctx, d_qkv, qkv.dtype()));
  }

  void add_gradients(ExecutionContext& ctx, const RingPart& part, const Tensor& part_lse,
                     const Tensor& dy, const Tensor& all) const {
    Round round(ctx, block, part, *comm);
    Tensor mine = rows_of(qkv, part), out = rows_of(o, part), d_out = rows_of(dy, part),
           d_mine = rows_of(all, part);
    Tensor gathered;  // gradients of the keys of this step, accumulated by the previous members
    round.go(mine, [&](int t, const Tensor& keys) {
      if (t == 1) {
        gathered = round.packed(t, DType::f32);
        ctx.fill_zero(gathered);
      }
      for (const SpanCall& call : round.calls(t))
        block.backward(ctx, mine, keys, call.mask(), out, part_lse, d_out, d_mine,
                       t > 0 ? gathered : Tensor());
      if (t == 0) return;
      Tensor next = round.packed(t + 1, DType::f32);
      round.pass(gathered, next, kGradients).wait();
      gathered = next;
    });
    if (round.steps() > 1) block.add_packed(ctx, gathered, d_mine);
  }
};

}  // namespace

Tensor ring_attention(const Tensor& qkv, const ContextBlock& block, std::vector<RingPart> parts,
                      Communicator& comm, const Tensor& sinks) {
  return apply(RingAttention{.block = block, .parts = std::move(parts), .comm = &comm}, qkv, sinks);
}

}  // namespace mtrain
