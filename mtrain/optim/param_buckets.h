// ParamBuckets: who among data-parallel ranks holds what of the parameters (ZeRO: Rajbhandari et
// al. 2020, arXiv:1910.02054; with `outer`, hybrid sharding: Zhao et al. 2023, arXiv:2304.11277).
// Owns the gradients' memory, and from zero 1 on that of values and masters: parameters lie in flat
// buckets, each cut into one equal shard per rank.
//   zero 0  every rank holds all
//   zero 1  masters are there for the own shard only; values are gathered after each update
//   zero 2  and gradients, but for a bucket whose backward runs
//   zero 3  and values, which are here from gather_part() or gather_stage() to release_part() or
//           release_stage(): a step's program says when
// Values of weights whose products are in FP8 may be FP8 codes (quantized_weights.h).
// Nothing in a model knows. Refers to run, parameters and communicators, which outlive it; the
// parameters are of no use after it. For the rank's own thread; all ranks of a group run the same
// program.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/optim/bucket_plan.h"
#include "mtrain/optim/network_memory.h"
#include "mtrain/optim/quantized_weights.h"

namespace mtrain {

/// Ranks that hold the same parameters and see other samples.
struct ReplicaGroup {
  Communicator* all = nullptr;
  Communicator* shards = nullptr;  // those that share one copy; null: all of them
  Communicator* outer = nullptr;  // those with the same shard of another copy; null: this one alone
  Communicator& sharers() const { return shards ? *shards : *all; }
  int copies() const { return outer ? outer->size() : 1; }
};

struct ShardingOptions {
  ReplicaGroup dense, expert;
  int zero_stage = 0;
  bool outer_zero = false;      // zero 3: copies share the optimizer state as well
  int64_t bucket_size = 0;      // elements; 0: default_bucket_size()
  bool pad_buckets = false;     // to multiples of kBucketPadding elements
  bool overlap_gather = false;  // values are waited for where they are used
  bool registered =
      false;  // what stays where it is and goes from rank to rank lies in network_memory.h's blocks
  bool codes = false;  // from zero 1 on: values are codes where they may be (Parameter::quantized)
  bool initialise = true;  // start values for parameters without memory of their own
                           // (BuildSettings::defer_memory)
};

/// What one rank updates of a parameter: local elements [begin, begin + count). Tensors have the
/// parameter's shape when that is all of it, and are flat otherwise.
struct ParamSlice {
  Parameter* parameter;
  int64_t begin, count;
  Tensor master, grad;  // float
  Tensor value;  // to be refreshed from master; undefined where that is the value, and of codes
  bool is_primary = true;  // false: another rank updates the same elements and counts them
};

struct ParamBucket {
  BucketPlan plan;
  ReplicaGroup group;
  int64_t shard_begin = 0, shard_end = 0;  // this rank's shard
  int64_t own_begin = 0, own_end = 0;  // what it updates: the shard, or its part of it (outer_zero)
  Tensor grads;                        // [size] float; zero 2: memory comes and goes
  Tensor shard_grads;                  // zero 2: [shard] float
  bool codes = false;                  // values are codes
  Tensor values;                       // zero 1: [size]; zero 3: memory comes and goes
  Tensor shard_values;                 // zero 3: [shard]
  Tensor masters;  // zero 1: [own] float, part of the values where these are float
  enum class Presence : uint8_t { absent, coming, here } presence = Presence::here;
  bool shard_stale = false;  // outer_zero: other copies have updated their parts
  Pending gather;

  bool shares_gradients() const { return plan.zero_stage >= 2; }
  bool shares_values() const { return plan.zero_stage >= 3; }
  /// zero 3 with outer_zero: this rank updates a part of its shard, copies the others.
  bool copies_share() const { return own_end - own_begin < shard_end - shard_begin; }
  /// How many elements of an item are in the shard of each rank of group.sharers().
  std::vector<int64_t> shard_counts(const BucketItem& item) const;
  /// How many elements of an item in this rank's shard each rank of group.outer updates.
  std::vector<int64_t> copy_counts(const BucketItem& item) const;
  /// This rank's shard of `grads`.
  Tensor shard_of_grads() const { return grads.slice(0, shard_begin, shard_end); }
};

class MT_API ParamBuckets final : public LeafWatch {
 public:
  /// Takes over the memory of parameters that have theirs, and gives memory and start values to
  /// those that do not.
  ParamBuckets(ExecutionContext& ctx, ParamList& parameters, const ShardingOptions& options);
  ~ParamBuckets() override;
  ParamBuckets(const ParamBuckets&) = delete;
  ParamBuckets& operator=(const ParamBuckets&) = delete;

  std::vector<ParamSlice> slices() const;
  std::vector<ParamBucket>& buckets() { return buckets_; }
  const ShardingOptions& options() const { return options_; }
  ExecutionContext& context() const { return ctx_; }

  /// After an update of masters and values of the own slices: all ranks get them. Collective.
  void publish();
  /// After masters alone were written (a checkpoint): values follow. Ranks talk only when values
  /// are next used.
  void masters_changed();
  /// zero 3: frees the values that are there. Before an update, and after an evaluation.
  void release_values();
  /// zero 3: the Gather and Release of a step's program, for a part of the model or for a whole
  /// stage. Parameters are read between the two only. With `overlap_gather` values are waited for
  /// where they are used. Gathering is collective.
  void gather_part(PartId part);
  void release_part(PartId part);
  void gather_stage(int64_t stage);
  void release_stage(int64_t stage);
  /// zero 3: called before a value of this part is read; it may gather and release. Empty: not
  /// called.
  void set_before_read(std::function<void(PartId)> call) { before_read_ = std::move(call); }

  /// Is told of gradients; numbers of leaves are the bucket and the item in it: see place_of().
  /// Null: nobody.
  void set_gradient_watch(LeafWatch* watch) { gradients_ = watch; }
  struct Place {
    size_t bucket, item;
  };
  Place place_of(int64_t leaf) const { return places_[static_cast<size_t>(leaf)]; }

  void before_value(int64_t leaf) override;
  void before_gradient(int64_t leaf) override;
  void gradient_complete(int64_t leaf) override;

 private:
  void cut(ParamBucket& bucket);
  void open_network_memory();
  Tensor lasting(const ParamBucket& bucket, NetworkMemory::Use use, DType dtype);
  void allocate_gradients(ParamBucket& bucket);
  void allocate_values(ParamBucket& bucket);
  void fill(const ParamBucket& bucket, const Tensor& to, int64_t begin);
  void adopt(ParamBucket& bucket);
  void collect_codes(DType computed);
  void make_codes();
  void start_gather(ParamBucket& bucket);
  void finish_gather(ParamBucket& bucket);
  void finish_all() noexcept;
  void drop(ParamBucket& bucket);
  template <class Matches>
  void gather_if(const Matches& matches);
  template <class Matches>
  void release_if(const Matches& matches);

  ExecutionContext& ctx_;
  ParamList& parameters_;
  ShardingOptions options_;
  NetworkMemory network_;  // before the buckets, which lie in it
  std::vector<ParamBucket> buckets_;
  std::vector<Place> places_;              // by leaf
  std::optional<QuantizedWeights> coded_;  // nothing where there are none
  bool codes_stale_ = true;                // masters have changed since codes were made
  std::function<void(PartId)> before_read_;
  LeafWatch* gradients_ = nullptr;
};

/// Every parameter whole, with the memory that it has: for a rank that shares nothing.
MT_API std::vector<ParamSlice> whole_slices(ParamList& parameters);

}  // namespace mtrain
