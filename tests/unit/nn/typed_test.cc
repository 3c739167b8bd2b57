// Tensors that say what tensor-parallel ranks hold of them: models built right pass, and a
// redistribution that is forgotten is refused at its own op, before it computes anything.
#include <doctest/doctest.h>

#include <functional>

#include "contract/harness.h"
#include "mtrain/comm/thread_world.h"
#include "mtrain/dist/redistribute.h"
#include "mtrain/nn/attention.h"
#include "mtrain/nn/layers.h"
#include "mtrain/nn/mlp.h"

namespace mtrain {
namespace {

using namespace contract;

constexpr int kRanks = 2;
constexpr int64_t kTypedTokens = 8, kTypedWidth = 12, kTypedVocab = 10;
const Placement kR = Placement::R(), kI = Placement::I(), kP = Placement::P();
const Placement kS0 = Placement::S(0), kS1 = Placement::S(1);

/// A rank with parameters, and tensors of any shape and placement.
struct TypedPlace {
  TypedPlace(Communicator& world, bool sequence, bool typed)
      : mesh(world, MeshLayout({{"tp", kRanks}})) {
    parallel = {.tp = &mesh["tp"], .sequence_parallel = sequence, .tracks_placements = typed};
    if (typed)
      lab.context().tracked_axis = {.axis = parallel.tp, .residual = parallel.residual_placement()};
    settings.parallel = &parallel;
  }
  Tensor tensor(const Shape& shape, std::optional<Placement> placement) {
    Tensor t = make(lab.context(), random_values(shape.numel(), "x"), shape, DType::f32);
    t.set_placement(placement);
    return t;
  }
  Tensor ids(int64_t count) {
    return lab.context().from_host<int32_t>(std::vector<int32_t>(static_cast<size_t>(count), 1),
                                            {count});
  }
  Scope scope() { return Scope(settings); }
  const Axis& axis() const { return mesh["tp"]; }

  Fixture lab{1};
  Mesh mesh;
  ParallelContext parallel;
  ParamList list;
  BuildSettings settings{.ctx = lab.context(), .parameters = list};
};

void on_ranks(bool sequence, const std::function<void(TypedPlace&)>& body, bool typed = true) {
  run_ranks(kRanks, [&](Communicator& world) {
    TypedPlace place(world, sequence, typed);
    body(place);
  });
}

/// What is said when the op is refused; empty when it is not.
std::string refusal(const std::function<void()>& op) {
  try {
    op();
  } catch (const Error& error) {
    return cat(name(error.error_class()), ": ", error.message(), " | ", error.hint());
  }
  return {};
}

bool says(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    if (text.find(part) == std::string::npos) return false;
  return true;
}

/// Every kind of layer once.
struct Whole {
  explicit Whole(TypedPlace& p, AttentionSinks sinks = AttentionSinks::none)
      : place(p),
        table(p.scope() / "embed", vocab, embed),
        norm(p.scope() / "norm", Norm::Kind::layer, embed, 1e-5f),
        last(p.scope() / "last", Norm::Kind::rms, embed, 1e-5f),
        attention(p.scope() / "attn", embed, {.layout = {4, 2, 4}, .bias = true, .sinks = sinks}),
        gated(p.scope() / "gated", embed, {"mlp", 16}, 0.1f, 0.1f),
        mlp(p.scope() / "mlp", embed, {"mlp", 16}, GeluKind::erf, {.bias = true}, 0.1f),
        dense(p.scope() / "dense", embed, embed, {.bias = true}),
        head(p.scope() / "head", vocab, embed, kTypedVocab, nullptr, 0.1f, true) {
    p.list.allocate_gradients(p.lab.context());
    p.list.clear_gradients();
  }
  Tensor operator()() {
    ModelInput input{.tokens_T = place.ids(kTypedTokens),
                     .positions_T = place.ids(kTypedTokens),
                     .targets_T = place.ids(kTypedTokens)};
    input.bounds = std::make_shared<const std::vector<int32_t>>(
        std::vector<int32_t>{0, static_cast<int32_t>(kTypedTokens)});
    input.loss_weight = 0.5f;
    Tensor x = dropout(table(input.tokens_T), 0.1f, 7);
    x = attention(norm(x), input, x);
    x = recompute([this](const Tensor& h) { return mlp(norm(gated(norm(h), h)), h); }, x);
    if (place.lab.context().tracked_axis)
      MT_CHECK(x.placement() == place.parallel.residual_placement(),
               "the stream has lost its letter");
    return head(last(gelu(dense(x), GeluKind::erf)), input);
  }

  TypedPlace& place;
  Dim embed{"embed", kTypedWidth}, vocab{"vocab", kTypedVocab};
  Embedding table;
  Norm norm, last;
  Attention attention;
  GatedMlp gated;
  Mlp mlp;
  Linear dense;  // not sharded: each rank has its own tokens of the stream, or all
  LmHead head;
};

}  // namespace

TEST_CASE(
    "typed tensors: a model keeps its letters from the embedding to the loss, forward and "
    "backward") {
  for (bool sequence : {false, true})
    on_ranks(sequence, [&](TypedPlace& p) {
      if (sequence) {  // dropout asks which tokens are here
        int64_t own = kTypedTokens / kRanks;
        p.lab.context().own_tokens =
            std::make_shared<const std::vector<RowRange>>(1, RowRange{own * p.axis().index(), own});
      }
      for (AttentionSinks sinks :
           {AttentionSinks::none, AttentionSinks::zero, AttentionSinks::learned}) {
        p.list = ParamList();
        Whole model(p, sinks);
        Tensor loss = model();
        MT_CHECK(loss.placement() == kI, "the loss has no letter, or another");
        backward(loss,
                 make(p.lab.context(), Values(kTypedTokens, 0.5), {kTypedTokens}, DType::f32));
      }
    });
}

TEST_CASE(
    "typed tensors: a forgotten reduction or gathering is refused at its op, with the letters") {
  std::vector<std::string> said(12);
  on_ranks(false, [&](TypedPlace& p) {
    Tensor stream = p.tensor({kTypedTokens, kTypedWidth}, kI),
           shard = p.tensor({kTypedTokens, kTypedWidth}, kS1),
           part = p.tensor({kTypedTokens, kTypedWidth}, kP);
    Tensor columns = p.tensor({16, kTypedWidth}, kS0), bias = p.tensor({kTypedWidth}, kI),
           own = p.tensor({kTypedTokens, kTypedWidth}, kS0);
    std::vector<std::string> mine = {
        refusal([&] { linear(stream, columns); }),       // no enter
        refusal([&] { add(part, stream); }),             // no leave
        refusal([&] { add_bias(part, bias, stream); }),  // no leave, after a bias
        refusal([&] { gelu(part, GeluKind::erf); }),     // a function of a summand
        refusal([&] { silu_mul(shard, stream); }),       // a piece with a whole
        refusal([&] { rms_norm(shard, bias, 1e-5f); }),  // pieces of rows
        refusal([&] { dropout(shard, 0.5f, 1); }),       // masks of pieces of rows
        refusal([&] {
          attention(own, {1, 1, 4},
                    std::make_shared<const std::vector<int32_t>>(std::vector<int32_t>{0, 8}), {});
        }),
        refusal([&] { redistribute(part, p.axis(), kI, kR); }),  // not what it is taken for
        refusal([&] {
          Tensor logits = p.tensor({kTypedTokens, 5}, kR);
          cross_entropy(std::move(logits), p.ids(kTypedTokens), kTypedVocab,
                        {.first = 0, .largest = 5, .join = [](auto&&...) {}});
        }),
        refusal([&] { rms_norm(own, bias, 1e-5f); }),  // a weight whose gradient is nobody's sum
        refusal([&] {
          Tensor some = p.ids(kTypedTokens);
          some.set_placement(kS0);
          embedding(p.tensor({kTypedVocab, kTypedWidth}, kI), some);
        }),
    };
    if (p.axis().index() == 0) said = mine;
  });
  CHECK_MESSAGE(says(said[0], {"internal: linear of [8, 12]", "linear cannot mix (I, S(0))",
                               "redistribute I -> R"}),
                said[0]);
  CHECK_MESSAGE(says(said[1], {"add of [8, 12]", "add cannot mix (P, I)", "redistribute P -> I"}),
                said[1]);
  CHECK_MESSAGE(says(said[2], {"add_bias of", "bias cannot mix (P, I)"}), said[2]);
  CHECK_MESSAGE(says(said[3], {"gelu of", "pointwise cannot mix (P)"}), said[3]);
  CHECK_MESSAGE(says(said[4], {"silu_mul of", "pointwise cannot mix (S(1), I)"}), said[4]);
  CHECK_MESSAGE(says(said[5], {"rms_norm of", "norm cannot mix (S(1), I)"}), said[5]);
  CHECK_MESSAGE(says(said[6], {"dropout of", "placed S(1)", "masks"}), said[6]);
  CHECK_MESSAGE(says(said[7], {"attention of", "placed S(0)", "whole sequence"}), said[7]);
  CHECK_MESSAGE(says(said[8], {"redistribute I -> R over 'tp'", "that is placed P"}), said[8]);
  CHECK_MESSAGE(says(said[9], {"cross_entropy of", "placed R, not S(1)"}), said[9]);
  CHECK_MESSAGE(says(said[10], {"rms_norm of", "norm cannot mix (S(0), I)"}), said[10]);
  CHECK_MESSAGE(says(said[11], {"embedding of", "placed I, not R"}), said[11]);
}

TEST_CASE("typed tensors: nothing is refused where letters are not known, or not asked for") {
  on_ranks(false, [](TypedPlace& p) {
    Tensor stream = p.tensor({kTypedTokens, kTypedWidth}, kI),
           columns = p.tensor({16, kTypedWidth}, kS0);
    MT_CHECK(!linear(stream.slice(0, 0, kTypedTokens), columns).placement(),
             "a slice has a letter");
    MT_CHECK(!linear(p.tensor({kTypedTokens, kTypedWidth}, {}), columns).placement(),
             "a letter from nowhere");
    MT_CHECK(linear(p.tensor({kTypedTokens, kTypedWidth}, kR), columns).placement() == kS1,
             "R, S(0)");
  });
  on_ranks(
      false,
      [](TypedPlace& p) {
        Tensor y =
            linear(p.tensor({kTypedTokens, kTypedWidth}, kI), p.tensor({16, kTypedWidth}, kS0));
        MT_CHECK(!y.placement(), "typed without being asked");
        MT_CHECK(!Whole(p)().placement(), "typed without being asked");
      },
      false);
}

}  // namespace mtrain
