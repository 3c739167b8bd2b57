// What data-parallel ranks send in a step of a whole training run to add gradients up and to share
// parameters out, and what goes to the experts, against theory: equal to the byte, once the padding
// of buckets is counted.
#include <doctest/doctest.h>

#include "sent.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

int64_t sum(const std::map<std::string, int64_t>& units) {
  int64_t all = 0;
  for (const auto& [unit, count] : units) all += count;
  return all;
}

constexpr int64_t kExperts = 4;

/// What a step reports about its routers, summed over n ranks: a block's choices by expert, its
/// balancing loss, z loss and tokens.
int64_t router_records(const Sent& sent, int64_t n) {
  return 2 * (n - 1) * sent.layers * (kExperts + 3) * 8 / n;
}

}  // namespace

TEST_CASE(
    "data parallelism sends every gradient once each way, however many micro-batches there are") {
  for (const char* micro : {"train.micro_batch_size=2", "train.micro_batch_size=1"})
    for (int64_t n : {2, 4}) {
      CAPTURE(n);
      CAPTURE(micro);
      Sent sent = sent_in({cat("dist.nproc=", n), micro});
      CHECK(sent.bytes("replicas", CommKind::all_reduce) ==
            2 * (n - 1) * sum(sent.padded(n, true)) * 4 / n);
      CHECK(sent.bytes("replicas", CommKind::all_gather) ==
            (n - 1) * sent.micro_batches * 8);  // the losses
      CHECK(sent.bytes("replicas", CommKind::reduce_scatter) == 0);
    }
}

TEST_CASE(
    "zero parallelism: sharing optimizer state costs what adding gradients up everywhere does") {
  for (int64_t n : {2, 4}) {
    CAPTURE(n);
    Sent plain = sent_in({cat("dist.nproc=", n)}),
         shared = sent_in({cat("dist.nproc=", n), "dist.zero=1"});
    int64_t once = (n - 1) * sum(shared.padded(n, true)) * 4 / n,
            losses = (n - 1) * shared.micro_batches * 8;
    CHECK(shared.bytes("replicas", CommKind::reduce_scatter) == once);
    CHECK(shared.bytes("replicas", CommKind::all_gather) == once + losses);
    CHECK(shared.along.at("replicas").total().bytes_sent ==
          plain.along.at("replicas").total().bytes_sent);
  }
}

TEST_CASE("data parallelism sends half as much if gradients are sent in bf16") {
  for (const char* sums : {"ddp.accumulate_dtype=fp32", "ddp.accumulate_dtype=bf16"})
    for (int64_t n : {2, 4}) {
      CAPTURE(n);
      CAPTURE(sums);
      Sent whole = sent_in({cat("dist.nproc=", n), "ddp.grads_dtype=bf16", sums}),
           shared = sent_in({cat("dist.nproc=", n), "dist.zero=1", "ddp.grads_dtype=bf16", sums});
      int64_t once = (n - 1) * sum(whole.padded(n, true)) * 2 / n,
              losses = (n - 1) * whole.micro_batches * 8;
      CHECK(whole.along.at("replicas").total().bytes_sent == 2 * once + losses);
      CHECK(shared.along.at("replicas").total().bytes_sent == once + 2 * once + losses);
      CHECK(shared.bytes("replicas", CommKind::all_gather) == 2 * once + losses);
    }
}

TEST_CASE("zero parallelism: shared gradients are scattered once for every micro-batch") {
  for (int64_t n : {2, 4})
    for (const char* micro : {"train.micro_batch_size=2", "train.micro_batch_size=1"}) {
      CAPTURE(n);
      CAPTURE(micro);
      Sent sent = sent_in({cat("dist.nproc=", n), "dist.zero=2", micro});
      int64_t once = (n - 1) * sum(sent.padded(n, false)) * 4 / n,
              losses = (n - 1) * sent.micro_batches * 8;
      CHECK(sent.bytes("replicas", CommKind::reduce_scatter) == sent.micro_batches * once);
      CHECK(sent.bytes("replicas", CommKind::all_gather) == once + losses);
      CHECK(sent.bytes("replicas", CommKind::all_reduce) == 0);
    }
}

TEST_CASE(
    "zero parallelism: shared values are gathered twice for every micro-batch, but for what is "
    "still there") {
  for (int64_t n : {2, 4})
    for (const char* micro : {"train.micro_batch_size=2", "train.micro_batch_size=1"}) {
      CAPTURE(n);
      CAPTURE(micro);
      Sent sent = sent_in({cat("dist.nproc=", n), "dist.zero=3", micro});
      auto units = sent.padded(n, false);
      int64_t all = sum(units), m = sent.micro_batches;
      CHECK(sent.bytes("replicas", CommKind::reduce_scatter) == m * (n - 1) * all * 4 / n);
      // Backward begins where forward has ended, and the next micro-batch where backward has.
      int64_t gathered = 2 * m * all - m * units.at("behind") - (m - 1) * units.at("before");
      CHECK(sent.bytes("replicas", CommKind::all_gather) ==
            (n - 1) * gathered * 4 / n + (n - 1) * m * 8);
      CHECK(sent.bytes("replicas", CommKind::all_reduce) == 0);
    }
}

// Each token goes to every expert here, so that theory knows where all rows go.
TEST_CASE("expert parallelism: rows go out and come back, and their gradients as well") {
  struct Case {
    int64_t ep, etp;
  };
  for (Case c : {Case{2, 1}, Case{4, 1}, Case{1, 2}, Case{2, 2}, Case{1, 4}}) {
    int64_t n = c.ep * c.etp;
    CAPTURE(c.ep);
    CAPTURE(c.etp);
    Sent sent = sent_in({cat("dist.nproc=", n), cat("dist.ep=", c.ep), cat("dist.etp=", c.etp),
                         cat("model.moe.top_k=", kExperts)},
                        "mixtral");
    int64_t rows = sent.tokens * kExperts * c.etp * (n - 1) /
                   n;  // each row to all ranks that share its expert
    int64_t counts = (n - 1) * (kExperts / c.ep) * 8;  // how many rows will come
    CHECK(sent.bytes("experts", CommKind::all_to_all) ==
          sent.micro_batches * sent.layers * (4 * rows * sent.hidden * 4 + counts));
    CHECK(sent.bytes("experts", CommKind::all_reduce) == router_records(sent, n));
    CHECK(sent.along.at("experts").total().bytes_sent ==
          sent.bytes("experts", CommKind::all_to_all) + router_records(sent, n));
  }
}

TEST_CASE(
    "expert parallelism: gradients of experts are added up over the ranks that hold the same "
    "ones") {
  Sent sent = sent_in({"dist.nproc=4", "dist.ep=2"}, "mixtral");
  int64_t held = sent.elements_of(".experts.") /
                 2;  // matrices of equal size, all multiples of what buckets are padded to
  CHECK(sent.bytes("edp", CommKind::all_reduce) == 2 * held * 4 / 2 + router_records(sent, 2));
  CHECK(sent.reduced(true) == 2 * held * 4 / 2);
  CHECK(sent.bytes("replicas", CommKind::all_reduce) == 2 * 3 * sum(sent.padded(4, true)) * 4 / 4);
}

TEST_CASE("the gathers that ranks run are those in the lists of steps") {
  const char *scatter = "ddp.overlap_grad_reduce=true", *ahead = "ddp.overlap_param_gather=true",
             *small = "train.micro_batch_size=1";
  struct Case {
    std::vector<std::string> settings;
    int64_t replicas;
    const char* subject = "llama";
  };
  const std::vector<Case> cases = {
      {{"dist.nproc=2"}, 2},
      {{"dist.nproc=2", small, scatter, ahead}, 2},
      {{"dist.nproc=4", "dist.pp=2", small}, 2},
      {{"dist.nproc=4", "dist.pp=2", "dist.vp=2", "dist.schedule=interleaved", small, scatter,
        ahead},
       2},
      {{"dist.nproc=4", "dist.pp=2", "dist.vp=2", "dist.schedule=zb_v", small, scatter, ahead}, 2},
      {{"dist.nproc=2", "model.recompute=full", small}, 2},
      {{"dist.nproc=2", "model.recompute=full", "model.recompute_layers=2", scatter, ahead}, 2},
      {{"dist.nproc=2", "model.recompute=full", "model.recompute_method=block", small}, 2},
      {{"dist.nproc=2"}, 2, "gpt2"},  // tied
      {{"dist.nproc=4", "dist.pp=2", "dist.vp=2", "dist.schedule=zb_v", small}, 2, "gpt2"},
      {{"dist.nproc=2", small, scatter, ahead}, 2, "bert"},
      {{"dist.nproc=2", "dist.ep=2", small}, 2, "mixtral"},
      {{"dist.nproc=4", "dist.pp=2", "dist.ep=2", small, scatter, ahead}, 2, "mixtral"}};
  for (const Case& c : cases) {
    std::string name = cat(c.subject, " ", join(c.settings, " "));
    CAPTURE(name);
    std::vector<std::string> settings = c.settings;
    settings.emplace_back("dist.zero=3");
    Sent sent = sent_in(settings, c.subject);
    int64_t n = c.replicas, gathered = sent.gathered(n);
    CHECK(gathered > 0);
    CHECK(sent.bytes("replicas", CommKind::all_gather) ==
          (n - 1) * gathered * 4 / n + (n - 1) * sent.micro_batches * 8);
  }
}

TEST_CASE("the reductions that ranks run are those in the lists of steps") {
  const char *overlap = "ddp.overlap_grad_reduce=true", *buckets = "ddp.bucket_size=2000",
             *small = "train.micro_batch_size=1";
  struct Case {
    std::vector<std::string> settings;
    const char* subject = "llama";
    int highest_zero = 3;
  };
  const std::vector<Case> cases = {
      {{"dist.nproc=2", small}},
      {{"dist.nproc=2", small, overlap, buckets}},
      {{"dist.nproc=2", small, overlap, "ddp.grads_dtype=bf16"}},
      {{"dist.nproc=4", "dist.pp=2", small}},
      {{"dist.nproc=4", "dist.pp=2", small, overlap, buckets}},
      {{"dist.nproc=4", "dist.pp=2", "dist.schedule=zb_h1", small, overlap}},
      {{"dist.nproc=4", "dist.pp=2", "dist.vp=2", "dist.schedule=interleaved", small, overlap}},
      {{"dist.nproc=4", "dist.pp=2", "dist.vp=2", "dist.schedule=zb_v", small}, "gpt2"},
      {{"dist.nproc=4", "dist.pp=2", small, overlap}, "gpt2"},  // tied: a table on both ranks
      {{"dist.nproc=2", "dist.ep=2", small, overlap}, "mixtral"},
      {{"dist.nproc=4", "dist.pp=2", "comm_overlap.embedding_wgrad=true", small, overlap},
       "llama",
       1}};
  for (const Case& c : cases)
    for (int zero = 0; zero <= c.highest_zero; ++zero) {
      std::vector<std::string> settings = c.settings;
      settings.push_back(cat("dist.zero=", zero));
      std::string name = cat(c.subject, " ", join(settings, " "));
      CAPTURE(name);
      Sent sent = sent_in(settings, c.subject);
      const CommCounters& replicas = sent.along.at("replicas");
      CHECK(sent.reduced() > 0);
      if (zero == 0)  // gathers: the losses, and parts of sums in bf16
        CHECK(sent.reduced() == replicas.total().bytes_sent - sent.micro_batches * 8);
      else  // gathers: values as well
        CHECK(sent.reduced() == replicas[CommKind::reduce_scatter].bytes_sent +
                                    replicas[CommKind::all_to_all].bytes_sent);
      if (zero > 0) CHECK(replicas[CommKind::all_reduce].bytes_sent == 0);
      // A recipe determines the buckets where each part has its own.
      const bool known = zero >= 2 && c.subject == std::string_view("llama") &&
                         name.find(buckets) == std::string::npos;
      if (known) CHECK(sent.planned == sent.steps);
    }
}

TEST_CASE("stages that are gathered whole: the table of another stage is a step of the list") {
  Sent sent = sent_in({"dist.nproc=4", "dist.pp=2", "dist.vp=2", "dist.schedule=zb_v",
                       "train.micro_batch_size=1", "dist.zero=3", "dist.resident_stages=1"},
                      "gpt2");
  CHECK(sent.count(InnerStepKind::gather, false) > 0);
  CHECK(sent.bytes("replicas", CommKind::all_gather) ==
        sent.gathered(2) * 4 / 2 + sent.micro_batches * 8);
}

TEST_CASE("the exchanges that experts run are those in the lists of steps") {
  const char* small = "train.micro_batch_size=1";
  const std::vector<std::vector<std::string>> cases = {
      {"dist.nproc=2", "dist.ep=2"},
      {"dist.nproc=2", "dist.ep=2", "model.recompute=full", small},
      {"dist.nproc=2", "dist.ep=2", "model.recompute=selective", "model.recompute_modules=[moe]"},
      {"dist.nproc=2", "dist.ep=2", "comm_overlap.moe=true", small},
      {"dist.nproc=2", "dist.ep=2", "dist.zero=3", "ddp.overlap_grad_reduce=true",
       "ddp.overlap_param_gather=true", small},
      {"dist.nproc=4", "dist.pp=2", "dist.ep=2", "dist.zero=3", small}};
  for (const auto& c : cases) {
    std::string name = join(c, " ");
    CAPTURE(name);
    std::vector<std::string> settings = c;
    settings.push_back(cat("model.moe.top_k=", kExperts));
    Sent sent = sent_in(settings, "mixtral");
    constexpr int64_t kRanks = 2;
    int64_t rows = sent.tokens * kExperts * (kRanks - 1) / kRanks,
            counts = (kRanks - 1) * (kExperts / kRanks) * 8;
    int64_t forward = sent.count(InnerStepKind::dispatch, false),
            all = forward + sent.count(InnerStepKind::dispatch, true) +
                  sent.count(InnerStepKind::combine, false) +
                  sent.count(InnerStepKind::combine, true);
    CHECK(forward >= sent.micro_batches);
    CHECK(sent.bytes("experts", CommKind::all_to_all) ==
          all * rows * sent.hidden * 4 + forward * counts);
  }
}
