// ParamBuckets: the sharding of parameters, gradients and optimizer state over data-parallel ranks
// (ZeRO: Rajbhandari et al. 2020, arXiv:1910.02054; with `outer`, hybrid sharding: Zhao et al.
// 2023, arXiv:2304.11277). A parameter's value is its compute copy, in the model's dtype; its
// master weight is the float copy that the optimizer updates, or the value itself if that is float.
// Owns the memory of gradients and, from zero 1 on, of values and master weights. Parameters are in
// flat buckets, each split into one equal shard per rank.
//   zero 0  every rank holds everything
//   zero 1  master weights exist only for the rank's own shard; values are gathered after updates
//   zero 2  also gradients, except those of a bucket during its backward
//   zero 3  also values, except between gather_part() or gather_stage() and release_part() or
//           release_stage(), which the step's program calls
// Values of weights whose matrix products are in FP8 may be stored as FP8 codes
// (quantized_weights.h), which is transparent to models. Refers to the context, parameters and
// communicators, which must outlive it; the parameters cannot be used after its destruction. For
// the rank's own thread; all ranks of a group run the same program.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/optim/bucket_plan.h"
#include "mtrain/optim/network_memory.h"
#include "mtrain/optim/quantized_weights.h"

namespace mtrain {

/// Ranks that hold the same parameters and process different samples.
struct ReplicaGroup {
  Communicator* all = nullptr;
  Communicator* shards = nullptr;  // the ranks that together hold one copy, one shard each; null:
                                   // all
  Communicator* outer = nullptr;   // the ranks with the same shard of other copies; null: one copy
  Communicator& shard_group() const { return shards ? *shards : *all; }
  int copies() const { return outer ? outer->size() : 1; }
};

struct ShardingOptions {
  ReplicaGroup dense, expert;
  int zero_stage = 0;
  bool outer_zero = false;      // zero 3: optimizer state is also sharded over the copies
  int64_t bucket_size = 0;      // elements; 0: default_bucket_size()
  bool pad_buckets = false;     // to multiples of kBucketPadding elements
  bool overlap_gather = false;  // wait for values only when they are used
  bool registered =
      false;  // persistent tensors that are communicated are in the blocks of network_memory.h
  bool codes = false;  // from zero 1 on: store values as codes where allowed (Parameter::quantized)
  bool initialise = true;  // write initial values of parameters without memory of their own
                           // (BuildSettings::defer_memory)
};

/// The part of a parameter that one rank updates: local elements [begin, begin + count). Tensors
/// have the parameter's shape if this is the whole local tensor; otherwise they are flat.
struct ParamSlice {
  Parameter* parameter;
  int64_t begin, count;
  Tensor master, grad;  // float
  Tensor
      value;  // compute copy, updated from master; undefined if master is the value, or for codes
  bool is_primary = true;  // false: another rank updates the same elements and counts them
};

struct ParamBucket {
  BucketPlan plan;
  ReplicaGroup group;
  int64_t shard_begin = 0, shard_end = 0;  // this rank's shard
  int64_t own_begin = 0,
          own_end = 0;  // the range that it updates: the shard, or a part of it (outer_zero)
  Tensor grads;         // [size] float; zero 2: allocated only while needed
  Tensor shard_grads;   // zero 2: [shard] float
  bool codes = false;   // values are codes
  Tensor values;        // zero 1: [size]; zero 3: allocated only while needed
  Tensor shard_values;  // zero 3: [shard]
  Tensor masters;       // zero 1: [own] float; a part of the values if these are float
  enum class Presence : uint8_t { absent, coming, here } presence = Presence::here;
  bool shard_stale = false;  // outer_zero: other copies have updated their parts
  Pending gather;

  /// Whether gradients, and values, are sharded over group.shard_group().
  bool gradients_sharded() const { return plan.zero_stage >= 2; }
  bool values_sharded() const { return plan.zero_stage >= 3; }
  /// zero 3 with outer_zero: the update of a shard is divided among the ranks of group.outer, which
  /// hold this shard of the other copies.
  bool update_sharded_over_copies() const { return own_end - own_begin < shard_end - shard_begin; }
  /// The number of elements of an item in the shard of each rank of group.shard_group().
  std::vector<int64_t> shard_counts(const BucketItem& item) const;
  /// The number of elements of an item, within this rank's shard, that each rank of group.outer
  /// updates.
  std::vector<int64_t> copy_counts(const BucketItem& item) const;
  /// This rank's shard of `grads`.
  Tensor shard_of_grads() const { return grads.slice(0, shard_begin, shard_end); }
};

class MT_API ParamBuckets final : public LeafWatch {
 public:
  /// Takes over the memory of parameters that have memory, and allocates and initialises the
  /// others.
  ParamBuckets(ExecutionContext& ctx, ParamList& parameters, const ShardingOptions& options);
  ~ParamBuckets() override;
  ParamBuckets(const ParamBuckets&) = delete;
  ParamBuckets& operator=(const ParamBuckets&) = delete;

  std::vector<ParamSlice> slices() const;
  std::vector<ParamBucket>& buckets() { return buckets_; }
  const ShardingOptions& options() const { return options_; }
  ExecutionContext& context() const { return ctx_; }

  /// Call it after an update of this rank's slices. Zero 1 and 2: gathers the new values on all
  /// ranks. Zero 3: frees gathered values; the next gather has the new ones. Collective.
  void sync_values();
  /// Call it after only master weights were written (by a checkpoint): updates the values.
  /// Communication happens at the next use of values.
  void masters_changed();
  /// zero 3: frees all gathered values. Call it before an update and after an evaluation.
  void release_values();
  /// zero 3: the Gather and Release of a step's program, for a part of the model or for a whole
  /// stage. Parameters may be read only between the two. With `overlap_gather`, the wait happens at
  /// the first use. Gathering is collective.
  void gather_part(PartId part);
  void release_part(PartId part);
  void gather_stage(int64_t stage);
  void release_stage(int64_t stage);
  /// Called before a value of this part is read (zero 3: it may gather and release), and before the
  /// gradient of a parameter of it is written. `refuse`: called, and must throw, if zero 3 has not
  /// gathered the value when it is read. Empty functions are not called.
  struct UseHooks {
    std::function<void(PartId)> read;
    std::function<void(PartId, const std::string&parameter)> write, refuse;
  };
  void set_use_hooks(UseHooks hooks) { use_hooks_ = std::move(hooks); }

  /// Sets the observer of gradients; place_of() maps the numbers of leaves to bucket and item.
  /// Null: none.
  void set_gradient_watch(LeafWatch* watch) { gradients_ = watch; }
  struct Place {
    size_t bucket, item;
  };
  Place place_of(int64_t leaf) const { return places_[static_cast<size_t>(leaf)]; }

  void before_value(int64_t leaf) override;
  void before_gradient(int64_t leaf) override;

 private:
  void set_shard_range(ParamBucket& bucket);
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
  NetworkMemory network_;  // declared before the buckets, which use it
  std::vector<ParamBucket> buckets_;
  std::vector<Place> places_;              // by leaf
  std::optional<QuantizedWeights> coded_;  // absent if there are none
  bool codes_stale_ = true;                // master weights have changed since the codes were made
  UseHooks use_hooks_;
  LeafWatch* gradients_ = nullptr;
};

/// One slice per trained parameter, in its own memory: for a rank without sharding.
MT_API std::vector<ParamSlice> whole_slices(ParamList& parameters);

}  // namespace mtrain
