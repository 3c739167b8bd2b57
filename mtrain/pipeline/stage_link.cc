#include "mtrain/pipeline/stage_link.h"

#include <algorithm>

namespace mtrain {
namespace {

constexpr int64_t kHeader = 2 + Shape::kMaxRank;  // dtype, rank, sizes

std::vector<int64_t> header_of(const Shape& shape, DType dtype) {
  std::vector<int64_t> header(static_cast<size_t>(kHeader));
  header[0] = static_cast<int64_t>(dtype);
  header[1] = shape.rank();
  std::copy(shape.begin(), shape.end(), header.begin() + 2);
  return header;
}

/// Messages between two ranks are identified by the destination stage and the kind, so their order
/// does not matter.
int tag_of(const Action& receive) {
  int kind = receive.what == ActionKind::recv_forward ? 0 : 1;
  return (receive.stage * 2 + kind) % (kMaxTag + 1);
}

Action receive_of(const Action& send) {
  bool forward = send.what == ActionKind::send_forward;
  auto stage = static_cast<int16_t>(send.stage + (forward ? 1 : -1));
  return {forward ? ActionKind::recv_forward : ActionKind::recv_backward, stage, send.micro};
}

Shape with_rows(const Shape& shape, int64_t rows) {
  std::vector<int64_t> sizes(shape.begin(), shape.end());
  sizes[0] = rows;
  return Shape(std::span<const int64_t>(sizes));
}

}  // namespace

StageLink::StageLink(ExecutionContext& ctx, StageMap map, Communicator* ranks, Options options)
    : ctx_(ctx), map_(std::move(map)), ranks_(ranks), options_(options) {
  MT_CHECK(!ranks_ || ranks_->size() == map_.ranks(), ranks_ ? ranks_->size() : 0,
           " ranks for a pipeline of ", map_.ranks());
}

int64_t StageLink::streams_into(int64_t stage) const {
  return training_ && !options_.streams.empty() ? options_.streams[static_cast<size_t>(stage)] : 1;
}

Shape StageLink::stream_of(const Action& send, const Shape& sent) const {
  const int64_t streams = streams_into(send.stage + 1);
  return streams == 1 ? sent : with_rows(sent, sent[0] / streams);
}

void StageLink::put(const Action& what, const Tensor& tensor) {
  MT_CHECK(tensor.contiguous(), to_text(what), " of ", tensor.shape());
  Action other = receive_of(what);
  if (what.what == ActionKind::send_forward && !communicates())
    expected_ = {stream_of(what, tensor.shape()), tensor.dtype()};
  if (what.what == ActionKind::send_forward && rank_of(what.stage) != rank_of(other.stage))
    sent_x_[{what.stage, what.micro}] = {tensor.shape(), tensor.dtype()};
  if (rank_of(what.stage) == rank_of(other.stage))
    inbox_[{other.what, other.stage, other.micro}] = {tensor.detach(), {}};
  else
    outbox_[{what.what, what.stage, what.micro}] = tensor.detach();
}

void StageLink::transfer(const Action& action) {
  bool forward =
      action.what == ActionKind::send_forward || action.what == ActionKind::recv_backward;
  int64_t other = action.stage + (forward ? 1 : -1);
  MT_CHECK(other >= 0 && other < map_.stages() && rank_of(other) != rank_of(action.stage),
           to_text(action), ", but stage ", other, " is on the same rank or does not exist");
  PhaseTimer timer(ctx_.profile(), "transfer");
  std::erase_if(sends_, [](Outgoing& out) { return out.done(); });
  if (action.what == ActionKind::send_forward || action.what == ActionKind::send_backward)
    send(action);
  else
    receive(action);
}

void StageLink::send(const Action& action) {
  auto found = outbox_.find({action.what, action.stage, action.micro});
  MT_CHECK(found != outbox_.end(), "no tensor was computed for ", to_text(action));
  Tensor tensor = std::move(found->second);
  outbox_.erase(found);
  if (!communicates()) return dry_run_send(action, std::move(tensor));
  Action other = receive_of(action);
  int to = static_cast<int>(rank_of(other.stage)), tag = tag_of(other);
  Outgoing& out = sends_.emplace_back();
  out.tensor = std::move(tensor);
  if (sends_header(action, {out.tensor.shape(), out.tensor.dtype()})) {
    out.header = header_of(out.tensor.shape(), out.tensor.dtype());
    out.header_sent = ranks_->start_send(out.header, to, tag);
  }
  out.tensor_sent = ranks_->start_send(out.tensor, to, tag);
}

/// In a dry run, models how long sent tensors stay in memory. A real send keeps its tensor until a
/// later transfer() finds that the send is complete: for activations, at the latest the first
/// transfer after their gradient has arrived. For gradients there is no such reply: two of them are
/// assumed to be in flight.
void StageLink::dry_run_send(const Action& action, Tensor tensor) {
  if (action.what == ActionKind::send_forward) {
    dry_run_x_[{action.stage, action.micro}] = std::move(tensor);
    return;
  }
  dry_run_g_.push_back(std::move(tensor));
  if (dry_run_g_.size() > 2) dry_run_g_.erase(dry_run_g_.begin());
}

/// A gradient needs no header: its shape and dtype are those of the activation that its receiver
/// has sent.
bool StageLink::sends_header(const Action& action, const TensorSpec& spec) {
  if (action.what == ActionKind::send_backward) return false;
  if (options_.variable_shapes) return true;
  auto [known, first] = sent_specs_.try_emplace({action.stage, training_}, spec);
  MT_USER_CHECK(known->second.shape == spec.shape && known->second.dtype == spec.dtype,
                ErrorClass::config,
                cat("stage ", action.stage, " sends shape ", spec.shape, " for micro-batch ",
                    action.micro, ", but sent ", known->second.shape, " before"),
                "set dist.variable_seq_lengths=true for micro-batches of different lengths");
  return first;
}

StageLink::TensorSpec StageLink::spec_of(const Action& action, int from, int tag) {
  if (action.what == ActionKind::recv_backward) {
    auto sent = sent_x_.find({action.stage, action.micro});
    MT_CHECK(sent != sent_x_.end(), to_text(action), " comes before the stage's forward");
    TensorSpec spec = sent->second;
    sent_x_.erase(sent);
    return spec;
  }
  if (!communicates()) {
    MT_CHECK(expected_.shape.rank() > 0,
             "a dry run of a stage after the first needs the shape of its input: call expect()");
    const int64_t streams = streams_into(action.stage);
    return {
        streams == 1 ? expected_.shape : with_rows(expected_.shape, expected_.shape[0] * streams),
        expected_.dtype};
  }
  if (auto known = received_specs_.find({action.stage, training_}); known != received_specs_.end())
    return known->second;
  std::vector<int64_t> header(static_cast<size_t>(kHeader));
  ranks_->recv(header, from, tag);
  TensorSpec spec{
      Shape(std::span<const int64_t>(header).subspan(2, static_cast<size_t>(header[1]))),
      static_cast<DType>(header[0])};
  if (!options_.variable_shapes) received_specs_[{action.stage, training_}] = spec;
  return spec;
}

void StageLink::receive(const Action& action) {
  int64_t stage = action.stage + (action.what == ActionKind::recv_forward ? -1 : 1);
  int from = static_cast<int>(rank_of(stage)), tag = tag_of(action);
  TensorSpec spec = spec_of(action, from, tag);
  Incoming& in = inbox_[{action.what, action.stage, action.micro}];
  MemoryScope use(ctx_.memory(), action.what == ActionKind::recv_forward ? MemoryUse::activations
                                                                         : MemoryUse::backward);
  in.tensor = ctx_.empty(spec.shape, spec.dtype);
  if (!communicates()) return;
  in.arrival = ranks_->start_recv(in.tensor, from, tag);
  if (options_.blocking && options_.batched)
    batch_.push_back({action.what, action.stage, action.micro});
  else if (options_.blocking)
    in.arrival.wait();
}

void StageLink::await_receives() {
  for (const TransferKey& key : std::exchange(batch_, {}))
    if (auto found = inbox_.find(key); found != inbox_.end()) found->second.arrival.wait();
}

Tensor StageLink::take(const Action& what) {
  auto found = inbox_.find({what.what, what.stage, what.micro});
  MT_CHECK(found != inbox_.end(), "no tensor was received for ", to_text(what));
  Incoming in = std::move(found->second);
  inbox_.erase(found);
  if (auto x = dry_run_x_.find({what.stage, what.micro});
      what.what == ActionKind::recv_backward && x != dry_run_x_.end()) {
    sends_.emplace_back().tensor =
        std::move(x->second);  // the gradient has arrived, so the activation was received: the next
                               // transfer frees it
    dry_run_x_.erase(x);
  }
  in.arrival.wait();
  return std::move(in.tensor);
}

void StageLink::finish() {
  for (Outgoing& out : sends_) out.header_sent.wait(), out.tensor_sent.wait();
  sends_.clear();
  MT_CHECK(inbox_.empty(), inbox_.size(), " received tensors were not used by any action");
  MT_CHECK(outbox_.empty(), outbox_.size(), " computed tensors were not sent by any action");
  sent_x_.clear();
  dry_run_x_.clear();
  dry_run_g_.clear();
}

void StageLink::abandon() noexcept {
  batch_.clear();
  inbox_.clear();
  outbox_.clear();
  sent_x_.clear();
  dry_run_x_.clear();
  dry_run_g_.clear();
  sent_specs_.clear();
  received_specs_.clear();
  sends_.clear();
}

}  // namespace mtrain
