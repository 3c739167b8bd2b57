// What ranks send in a step of a whole training run, against theory. Bytes are those that the first rank sends.
#include <doctest/doctest.h>
#include <unistd.h>

#include "mtrain/train/verify_run.h"
#include "mtrain/train/verify_twin.h"
#include "subjects.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr int64_t kRanks = 4;

struct Sizes {
  int64_t layers, hidden, tokens, micro_batches, vocab = 257;
  int64_t parameters = 0, norms = 0;  // elements; of norms alone
};

struct Sent {
  Sizes sizes;
  std::map<std::string, CommCounters> along;
  int64_t bytes(const std::string& axis, CommKind kind) const { return along.at(axis)[kind].bytes_sent; }
};

/// Sends of the second step; the tokens are those of one micro-batch.
Sent sent_in(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  std::string folder = (fs::temp_directory_path() / cat("mtrain-bytes-", ::getpid())).string();
  all.push_back("run.dir=" + folder);
  Recipe recipe = recipe_from_text(twin_recipe(recipe_of(subjects()[0]), kRanks, 2), "the twin", fs::current_path(),
                                   all, plugins());
  LayoutFigures figures = run_layout(recipe, plugins(), {.steps = 2});
  fs::remove_all(folder);
  const Node& root = recipe.config.root();
  const Settings& s = recipe.settings;
  Sizes sizes{root.find("model.layers")->as_int(), root.find("model.hidden_size")->as_int(),
              s.train.micro_batch_size * s.model.seq_length, s.micro_batches()};
  for (const auto& [name, tensor] : figures.gradients) {
    sizes.parameters += static_cast<int64_t>(tensor.values.size());
    if (name.find("norm") != std::string::npos) sizes.norms += static_cast<int64_t>(tensor.values.size());
  }
  return {sizes, figures.sent};
}

}  // namespace

TEST_CASE("sequence parallelism gathers twice and scatters twice in every block and direction") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    Sent sent = sent_in({cat("dist.nproc=", n), cat("dist.tp=", n), "dist.sp=true", "model.kv_heads=4"});
    const Sizes& z = sent.sizes;
    int64_t stream = (n - 1) * z.tokens * z.hidden * 4 / n;  // one gathering or scattering of the residual stream
    int64_t times = z.micro_batches * (4 * z.layers + 2);    // embedding and head have one pair more between them
    int64_t head =
        z.micro_batches * (n - 1) * z.tokens * 4;  // each token's logarithm of the sum over the rank's vocabulary
    CHECK(sent.bytes("tp", CommKind::reduce_scatter) == times * stream);
    CHECK(sent.bytes("tp", CommKind::all_gather) == times * stream + head);
    int64_t targets = z.micro_batches * 2 * (n - 1) * z.tokens * 4 / n;  // the target's logit
    CHECK(sent.bytes("tp", CommKind::all_reduce) == targets + 2 * (n - 1) * z.norms * 4 / n);
  }
}

TEST_CASE("tensor parallelism adds up twice in every block and direction") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    Sent sent = sent_in({cat("dist.nproc=", n), cat("dist.tp=", n), "model.kv_heads=4"});
    const Sizes& z = sent.sizes;
    int64_t times = z.micro_batches * (4 * z.layers + 2);
    int64_t targets = z.micro_batches * 2 * (n - 1) * z.tokens * 4 / n;
    CHECK(sent.bytes("tp", CommKind::all_reduce) == times * (2 * (n - 1) * z.tokens * z.hidden * 4 / n) + targets);
    CHECK(sent.bytes("tp", CommKind::reduce_scatter) == 0);
  }
}

TEST_CASE("data parallelism sends every gradient once each way, however many micro-batches there are") {
  for (const char* micro : {"train.micro_batch_size=2", "train.micro_batch_size=1"})
    for (int64_t n : {2, 4}) {
      CAPTURE(n);
      Sent sent = sent_in({cat("dist.nproc=", n), micro});
      int64_t gradients = 2 * (n - 1) * sent.sizes.parameters * 4 / n;
      int64_t all = sent.along.at("replicas").total().bytes_sent;
      CHECK(all >= gradients);
      CHECK(all <= gradients + 1024);  // the number of targets and the losses
    }
}

TEST_CASE("zero parallelism: sharing optimizer state costs no more than adding gradients up everywhere") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    Sent plain = sent_in({cat("dist.nproc=", n)}), shared = sent_in({cat("dist.nproc=", n), "dist.zero=1"});
    int64_t all = plain.along.at("replicas").total().bytes_sent, both = shared.along.at("replicas").total().bytes_sent;
    CHECK(both >= all - 1024);
    CHECK(both <= all + all / 50);  // shards are of equal size, so that buckets end in some padding
    int64_t half = (n - 1) * shared.sizes.parameters * 4 / n;
    CHECK(shared.bytes("replicas", CommKind::reduce_scatter) >= half);
    CHECK(shared.bytes("replicas", CommKind::all_gather) >= half);
  }
}

TEST_CASE("pipeline parallelism sends each boundary's stream once each way for every micro-batch") {
  struct Case {
    std::vector<std::string> settings;
    int64_t sends;  // of the first rank, per micro-batch
  };
  const std::vector<Case> cases = {
      {{"dist.schedule=1f1b"}, 1},                     // the output of its stage
      {{"dist.schedule=zb_h1"}, 1},
      {{"dist.schedule=interleaved", "dist.vp=2"}, 3},  // those of both, and the gradient of the third stage's input
      {{"dist.schedule=zb_v", "dist.vp=2"}, 2},         // that of the first, and the gradient of the last one's input
  };
  for (const Case& c : cases) {
    CAPTURE(c.settings[0]);
    std::vector<std::string> settings = c.settings;
    settings.insert(settings.end(), {"dist.nproc=2", "dist.pp=2"});
    Sent sent = sent_in(settings);
    const Sizes& z = sent.sizes;
    CHECK(sent.bytes("pp", CommKind::send) == c.sends * z.micro_batches * z.tokens * z.hidden * 4);
  }
}

TEST_CASE("context parallelism: the ring passes on keys, values and their gradients, n - 1 times each") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    Sent sent = sent_in({cat("dist.nproc=", n), cat("dist.cp=", n), "model.kv_heads=4"});
    const Sizes& z = sent.sizes;
    int64_t held = z.tokens / n * 2 * z.hidden * 4;  // as many key/value heads as heads: keys and values of a rank's tokens
    int64_t forward = (n - 1) * held, backward = 2 * (n - 1) * held;
    CHECK(sent.bytes("cp", CommKind::send) == z.micro_batches * z.layers * (forward + backward));
  }
}
