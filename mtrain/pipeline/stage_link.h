// StageLink: how a pipeline rank's stages hand tensors to their neighbours — to stages of other
// ranks by messages, to stages of its own by keeping them. Transfers are only started; a tensor is
// waited for by the action that needs it, and what is sent stays alive until it has gone. Refers to
// the run and the communicator; for the rank's own thread.
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
    /// Shapes are told with every tensor. Otherwise each stage tells its own once, with its first
    /// tensor, and a tensor of another shape is Error(config).
    bool variable_shapes = false;
    /// A receive stands in the program until its data is there (TransferMode::rendezvous is what
    /// simulate() calls that).
    bool blocking = false;
    /// With `blocking`: transfers that follow each other in the program are all begun before one is
    /// waited for.
    bool batched = false;
  };
  /// `ranks`: the communicator of this pipeline, numbered like the map's ranks; null: transfers are
  /// rehearsed, that is, memory is taken and nothing moves. A run whose backend computes nothing
  /// rehearses as well.
  StageLink(Run& run, StageMap map, Communicator* ranks, Options options);

  const StageMap& map() const { return map_; }
  Communicator* ranks() const { return ranks_; }
  /// For rehearsals: what tensors between stages look like, where no stage of this rank comes
  /// first.
  void expect(const Shape& shape, DType dtype) { expected_ = {shape, dtype}; }

  /// A stage has made what its neighbour needs: `what` is SendX or SendG. To a stage of this rank
  /// it is handed over at once, otherwise it waits for its transfer.
  void made(const Action& what, const Tensor& tensor);
  /// Runs a transfer of the program.
  void transfer(const Action& action);
  /// The tensor that a stage needs: `what` is RecvX or RecvG. Waits for it.
  Tensor take(const Action& what);
  /// An action that computes comes next: waits for the batch of receives before it.
  void settle();
  /// The next transfers may have other shapes than those before. Every stage calls it between the
  /// same two programs.
  void forget_shapes() { told_.clear(), heard_.clear(); }
  /// Returns when all that was sent has gone. Error(bug) when something was made or received that
  /// nobody took.
  void finish();
  /// Forgets all transfers under way, after a failure. Told shapes are forgotten too.
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
      sent_x_;  // by stage and micro-batch: what its gradient will look like
  std::map<int16_t, Form> told_,
      heard_;  // by stage: the form of what it sends; of what it receives
  std::vector<Outgoing> leaving_;
  std::vector<Place> batch_;                                   // receives that were begun together
  std::map<std::pair<int16_t, int32_t>, Tensor> rehearsed_x_;  // sent, as if not received yet
  std::vector<Tensor> rehearsed_g_;
};

}  // namespace mtrain
