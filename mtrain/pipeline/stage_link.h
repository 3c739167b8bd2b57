// StageLink: transfers tensors between a pipeline rank's stages and their neighbours: to stages of
// other ranks by messages, to stages of the same rank by reference. Transfers are only started; the
// action that needs a tensor waits for it, and a sent tensor stays alive until it is sent. Does not
// own the run and the communicator; for the rank's own thread.
#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "mtrain/comm/communicator.h"
#include "mtrain/pipeline/schedule.h"
#include "mtrain/tensor/run.h"

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
    /// With `blocking`: consecutive transfers in the program are all started before one is awaited.
    bool batched = false;
  };
  /// `ranks`: the communicator of this pipeline, numbered like the map's ranks. Null, or a run
  /// whose backend computes nothing: a dry run, in which memory is allocated and nothing moves.
  StageLink(Run& run, StageMap map, Communicator* ranks, Options options);

  const StageMap& map() const { return map_; }
  Communicator* ranks() const { return ranks_; }
  /// For dry runs: the shape and dtype of tensors between stages, for a rank that does not hold the
  /// first stage.
  void expect(const Shape& shape, DType dtype) { expected_ = {shape, dtype}; }

  /// Passes on what a stage has computed for its neighbour: `what` is SendX or SendG. A stage of
  /// this rank gets it at once; otherwise it waits for its transfer action.
  void made(const Action& what, const Tensor& tensor);
  /// Runs a transfer action of the program.
  void transfer(const Action& action);
  /// Returns the tensor that a stage needs: `what` is RecvX or RecvG. Waits for it.
  Tensor take(const Action& what);
  /// Called before a compute action: waits for the preceding batch of receives.
  void settle();
  /// The next transfers may have other shapes than before. Every stage must call it between the
  /// same two programs.
  void forget_shapes() { told_.clear(), heard_.clear(); }
  /// Returns when all sends are complete. Error(bug) if a tensor was computed or received that
  /// nobody took.
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
    Pending told, gone;
    bool done() { return told.done() && gone.done(); }
  };
  using Place = std::tuple<ActionKind, int16_t, int32_t>;
  struct Form {
    Shape shape;
    DType dtype = DType::f32;
  };

  bool moves() const { return ranks_ != nullptr && run_.backend().computes(); }
  int64_t rank_of(int64_t stage) const { return map_.rank(stage); }
  void send(const Action& action);
  void receive(const Action& action);
  void rehearse_send(const Action& action, Tensor tensor);
  Form form_of(const Action& action, int from, int tag);
  bool tells_shape(const Action& action, const Form& form);

  Run& run_;
  StageMap map_;
  Communicator* ranks_;
  Options options_;
  Form expected_;
  std::map<Place, Incoming> inbox_;
  std::map<Place, Tensor> outbox_;
  std::map<std::pair<int16_t, int32_t>, Form>
      sent_x_;  // by stage and micro-batch: the form of its gradient
  std::map<int16_t, Form> told_,
      heard_;  // by stage: the form that it sends; the form that it receives
  std::vector<Outgoing> leaving_;
  std::vector<Place> batch_;  // receives that were started together
  std::map<std::pair<int16_t, int32_t>, Tensor> rehearsed_x_;  // sent, but not received yet
  std::vector<Tensor> rehearsed_g_;
};

}  // namespace mtrain
