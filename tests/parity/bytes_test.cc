// What ranks send in a step of a whole training run along the axes that shard activations: tp, pp
// and cp, against theory.
#include <doctest/doctest.h>

#include "sent.h"

using namespace mtrain;
using namespace mtrain::testing;

TEST_CASE("sequence parallelism gathers twice and scatters twice in every block and direction") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    Sent sent =
        sent_in({cat("dist.nproc=", n), cat("dist.tp=", n), "dist.sp=true", "model.kv_heads=4"});
    int64_t stream = (n - 1) * sent.tokens * sent.hidden * 4 /
                     n;  // one gathering or scattering of the residual stream
    int64_t times = sent.micro_batches *
                    (4 * sent.layers + 2);  // embedding and head have one pair more between them
    int64_t head = sent.micro_batches * (n - 1) * sent.tokens *
                   4;  // each token's logarithm of the sum over the rank's vocabulary
    CHECK(sent.bytes("tp", CommKind::reduce_scatter) == times * stream);
    CHECK(sent.bytes("tp", CommKind::all_gather) == times * stream + head);
    int64_t targets = sent.micro_batches * 2 * (n - 1) * sent.tokens * 4 / n;  // the target's logit
    CHECK(sent.bytes("tp", CommKind::all_reduce) ==
          targets + 2 * (n - 1) * sent.elements_of("norm") * 4 / n);
  }
}

TEST_CASE("tensor parallelism adds up twice in every block and direction") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    Sent sent = sent_in({cat("dist.nproc=", n), cat("dist.tp=", n), "model.kv_heads=4"});
    int64_t times = sent.micro_batches * (4 * sent.layers + 2);
    int64_t targets = sent.micro_batches * 2 * (n - 1) * sent.tokens * 4 / n;
    CHECK(sent.bytes("tp", CommKind::all_reduce) ==
          times * (2 * (n - 1) * sent.tokens * sent.hidden * 4 / n) + targets);
    CHECK(sent.bytes("tp", CommKind::reduce_scatter) == 0);
  }
}

TEST_CASE("recomputed blocks whose inputs tensor-parallel ranks share: one all-gather for each") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    std::vector<std::string> settings = {cat("dist.nproc=", n), cat("dist.tp=", n),
                                         "model.kv_heads=4", "model.recompute=full"};
    Sent whole = sent_in(settings);
    settings.emplace_back("model.recompute_distribute=true");
    Sent shared = sent_in(settings);
    int64_t stream = (n - 1) * shared.tokens * shared.hidden * 4 / n;
    CHECK(shared.bytes("tp", CommKind::all_gather) ==
          whole.bytes("tp", CommKind::all_gather) + shared.micro_batches * shared.layers * stream);
    CHECK(shared.bytes("tp", CommKind::all_reduce) == whole.bytes("tp", CommKind::all_reduce));
  }
}

TEST_CASE("pipeline parallelism sends each boundary's stream once each way for every micro-batch") {
  struct Case {
    std::vector<std::string> settings;
    int64_t sends;  // of the first rank, per micro-batch
  };
  const std::vector<Case> cases = {
      {{"dist.schedule=1f1b"}, 1},  // the output of its stage
      {{"dist.schedule=zb_h1"}, 1},
      {{"dist.schedule=interleaved", "dist.vp=2"},
       3},  // those of both, and the gradient of the third stage's input
      {{"dist.schedule=zb_v", "dist.vp=2"},
       2},  // that of the first, and the gradient of the last one's input
  };
  for (const Case& c : cases) {
    CAPTURE(c.settings[0]);
    std::vector<std::string> settings = c.settings;
    settings.insert(settings.end(), {"dist.nproc=2", "dist.pp=2"});
    Sent sent = sent_in(settings);
    CHECK(sent.bytes("pp", CommKind::send) ==
          c.sends * sent.micro_batches * sent.tokens * sent.hidden * 4);
  }
}

TEST_CASE(
    "context parallelism: the ring passes on keys, values and their gradients, n - 1 times each") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    Sent sent = sent_in({cat("dist.nproc=", n), cat("dist.cp=", n), "model.kv_heads=4"});
    int64_t held = sent.tokens / n * 2 * sent.hidden *
                   4;  // as many key/value heads as heads: keys and values of a rank's tokens
    int64_t forward = (n - 1) * held, backward = 2 * (n - 1) * held;
    CHECK(sent.bytes("cp", CommKind::send) ==
          sent.micro_batches * sent.layers * (forward + backward));
  }
}

TEST_CASE(
    "context parallelism: a gathering of keys and values, again in backward, and a scattering of "
    "their "
    "gradients") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    Sent sent = sent_in({cat("dist.nproc=", n), cat("dist.cp=", n), "dist.cp_comm=[all_gather]",
                         "model.kv_heads=4"});
    int64_t others =
        (n - 1) * (sent.tokens / n) * 2 * sent.hidden * 4 * sent.micro_batches * sent.layers;
    CHECK(sent.bytes("cp", CommKind::all_gather) == 2 * others);
    CHECK(sent.bytes("cp", CommKind::reduce_scatter) == others);
    CHECK(sent.along.at("cp").total().bytes_sent == 3 * others);
  }
}

TEST_CASE("context parallelism: tokens exchanged for heads and back, in each direction") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    Sent sent = sent_in(
        {cat("dist.nproc=", n), cat("dist.cp=", n), "dist.cp_comm=[a2a]", "model.kv_heads=4"});
    int64_t qkv_and_out = sent.tokens / n * 4 * sent.hidden * 4;
    CHECK(sent.bytes("cp", CommKind::all_to_all) ==
          sent.micro_batches * sent.layers * 2 * qkv_and_out * (n - 1) / n);
    CHECK(sent.along.at("cp").total().bytes_sent == sent.bytes("cp", CommKind::all_to_all));
  }
}

TEST_CASE("context parallelism: heads exchanged with the neighbour, and a ring over the pairs") {
  Sent sent = sent_in({"dist.nproc=4", "dist.cp=4", "dist.cp_comm=[a2a+p2p]",
                       "dist.cp_hierarchy=[2,2]", "model.kv_heads=4"});
  int64_t blocks = sent.micro_batches * sent.layers,
          qkv_and_out = sent.tokens / 4 * 4 * sent.hidden * 4;
  CHECK(sent.bytes("cp_a2a_group", CommKind::all_to_all) == blocks * 2 * qkv_and_out / 2);
  int64_t held = sent.tokens / 2 * 2 * (sent.hidden / 2) *
                 4;  // of half the tokens, half the heads' keys and values
  CHECK(sent.bytes("cp", CommKind::send) == blocks * (held + 2 * held));
  CHECK(sent.along.at("cp").total().bytes_sent == sent.bytes("cp", CommKind::send));
}
