// StageLink: transfers tensors between a pipeline rank's stages and their neighbours: to stages of
// other ranks by messages, to stages of the same rank by reference. Transfers are only started; the
// action that needs a tensor waits for it, and a sent tensor stays alive until it is sent. Does not
// own the context and the communicator; for the rank's own thread.
#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/pipeline/schedule.h"
#include "mtrain/tensor/execution_context.h"

namespace mtrain {

class MT_API StageLink {
 public:
  struct Options {
    /// Every tensor is sent with its shape. Otherwise each stage sends its shape once, with its
    /// first tensor, and a tensor of another shape is Error(config).
    bool variable_shapes = false;
    /// A receive blocks the program until its data has arrived (TransferMode::rendezvous in
    /// simulate()).
    bool blocking = false;
    /// By stage: the number of residual streams in its input while training, concatenated along the
    /// rows. Empty: one for each stage.
    std::vector<int64_t> streams = {};
    /// With `blocking`: consecutive transfers in the program are all started before one is awaited.
    bool batched = false;
  };
  /// `ranks`: the communicator of this pipeline, numbered like the map's ranks. If it is null or
  /// the backend of `ctx` computes nothing, this is a dry run, which allocates memory but sends
  /// nothing.
  StageLink(ExecutionContext& ctx, StageMap map, Communicator* ranks, Options options);

  const StageMap& map() const { return map_; }
  Communicator* ranks() const { return ranks_; }
  /// For dry runs: the shape and dtype of one stream between stages, for a rank that does not hold
  /// the first stage.
  void expect(const Shape& shape, DType dtype) { expected_ = {shape, dtype}; }
  /// Whether the next program trains, which Options::streams refers to.
  void set_training(bool training) { training_ = training; }
  /// The shape of one stream of what this stage sends forward.
  Shape stream_of(const Action& send, const Shape& sent) const;

  /// Stores what a stage has computed for its neighbour: `what` is SendX or SendG. If the neighbour
  /// is on this rank, its take() returns the tensor; otherwise transfer() sends it.
  void put(const Action& what, const Tensor& tensor);
  /// Runs a transfer action of the program.
  void transfer(const Action& action);
  /// Returns the tensor that a stage needs: `what` is RecvX or RecvG. Waits for it.
  Tensor take(const Action& what);
  /// Called before a compute action: waits for the preceding batch of receives.
  void await_receives();
  /// The next transfers may have other shapes than before. All ranks of the pipeline must call it
  /// between the same two programs.
  void forget_shapes() { sent_specs_.clear(), received_specs_.clear(); }
  /// Returns when all sends are complete. Error(bug) if a computed tensor was not sent or a
  /// received one was not taken.
  void finish();
  /// Forgets all transfers in progress, after a failure. Known shapes are forgotten too.
  void abandon() noexcept;

 private:
  struct Incoming {
    Tensor tensor;
    Pending arrival;
  };
  struct Outgoing {
    Tensor tensor;
    std::vector<int64_t> header;
    Pending header_sent, tensor_sent;
    bool done() { return header_sent.done() && tensor_sent.done(); }
  };
  using TransferKey = std::tuple<ActionKind, int16_t, int32_t>;
  struct TensorSpec {
    Shape shape;
    DType dtype = DType::f32;
  };

  bool communicates() const { return ranks_ != nullptr && ctx_.backend().computes(); }
  int64_t rank_of(int64_t stage) const { return map_.rank(stage); }
  void send(const Action& action);
  void receive(const Action& action);
  void dry_run_send(const Action& action, Tensor tensor);
  TensorSpec spec_of(const Action& action, int from, int tag);
  int64_t streams_into(int64_t stage) const;
  bool sends_header(const Action& action, const TensorSpec& spec);

  ExecutionContext& ctx_;
  StageMap map_;
  Communicator* ranks_;
  Options options_;
  TensorSpec expected_;
  bool training_ = true;
  std::map<TransferKey, Incoming> inbox_;
  std::map<TransferKey, Tensor> outbox_;
  std::map<std::pair<int16_t, int32_t>, TensorSpec>
      sent_x_;  // by stage and micro-batch: what was sent, which is also the shape and dtype of the
                // gradient to receive
  std::map<std::pair<int16_t, bool>, TensorSpec>
      sent_specs_,      // by stage, and training or not: the shape and dtype in the header that was
      received_specs_;  // sent or received
  std::vector<Outgoing> sends_;
  std::vector<TransferKey>
      batch_;  // receives that were started and not awaited yet (Options::batched)
  std::map<std::pair<int16_t, int32_t>, Tensor>
      dry_run_x_;  // dry run: tensors that count as sent but not received
  std::vector<Tensor> dry_run_g_;
};

}  // namespace mtrain
