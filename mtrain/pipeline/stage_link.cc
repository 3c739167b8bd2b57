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

}  // namespace

StageLink::StageLink(Run& run, StageMap map, Communicator* ranks, Options options)
    : run_(run), map_(std::move(map)), ranks_(ranks), options_(options) {
  MT_CHECK(!ranks_ || ranks_->size() == map_.ranks(), ranks_ ? ranks_->size() : 0,
           " ranks for a pipeline of ", map_.ranks());
}

void StageLink::made(const Action& what, const Tensor& tensor) {
  MT_CHECK(tensor.contiguous(), to_text(what), " of ", tensor.shape());
  Action other = receive_of(what);
  if (what.what == ActionKind::send_forward && !moves())
    expected_ = {tensor.shape(), tensor.dtype()};
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
           to_text(action), ", and stage ", other, " is not on another rank");
  PhaseTimer timer(run_.profile(), "transfer");
  std::erase_if(leaving_, [](Outgoing& out) { return out.done(); });
  if (action.what == ActionKind::send_forward || action.what == ActionKind::send_backward)
    send(action);
  else
    receive(action);
}

void StageLink::send(const Action& action) {
  auto found = outbox_.find({action.what, action.stage, action.micro});
  MT_CHECK(found != outbox_.end(), "nothing was made for ", to_text(action));
  Tensor tensor = std::move(found->second);
  outbox_.erase(found);
  if (!moves()) return rehearse_send(action, std::move(tensor));
  Action other = receive_of(action);
  int to = static_cast<int>(rank_of(other.stage)), tag = tag_of(other);
  Outgoing& out = leaving_.emplace_back();
  out.tensor = std::move(tensor);
  if (tells_shape(action, {out.tensor.shape(), out.tensor.dtype()})) {
    out.header = header_of(out.tensor.shape(), out.tensor.dtype());
    out.told = ranks_->start_send(out.header, to, tag);
  }
  out.gone = ranks_->start_send(out.tensor, to, tag);
}

/// A sent tensor stays alive until a transfer finds that it was received: at the latest, the first
/// transfer after the arrival of its gradient. Gradients have no such reply: two of them are
/// assumed to be in flight.
void StageLink::rehearse_send(const Action& action, Tensor tensor) {
  if (action.what == ActionKind::send_forward) {
    rehearsed_x_[{action.stage, action.micro}] = std::move(tensor);
    return;
  }
  rehearsed_g_.push_back(std::move(tensor));
  if (rehearsed_g_.size() > 2) rehearsed_g_.erase(rehearsed_g_.begin());
}

/// A gradient has the form of its activation, which the receiver knows.
bool StageLink::tells_shape(const Action& action, const Form& form) {
  if (action.what == ActionKind::send_backward) return false;
  if (options_.variable_shapes) return true;
  auto [known, first] = told_.try_emplace(action.stage, form);
  MT_USER_CHECK(known->second.shape == form.shape && known->second.dtype == form.dtype,
                ErrorClass::config,
                cat("stage ", action.stage, " hands on ", form.shape, " for micro-batch ",
                    action.micro, ", and said ", known->second.shape, " before"),
                "set dist.variable_seq_lengths=true for micro-batches of different lengths");
  return first;
}

StageLink::Form StageLink::form_of(const Action& action, int from, int tag) {
  if (action.what == ActionKind::recv_backward) {
    auto sent = sent_x_.find({action.stage, action.micro});
    MT_CHECK(sent != sent_x_.end(), to_text(action), " comes before the stage's forward");
    Form form = sent->second;
    sent_x_.erase(sent);
    return form;
  }
  if (!moves()) {
    MT_CHECK(expected_.shape.rank() > 0, "nobody said what a rehearsed transfer looks like");
    return expected_;
  }
  if (auto heard = heard_.find(action.stage); heard != heard_.end()) return heard->second;
  std::vector<int64_t> header(static_cast<size_t>(kHeader));
  ranks_->recv(header, from, tag);
  Form form{Shape(std::span<const int64_t>(header).subspan(2, static_cast<size_t>(header[1]))),
            static_cast<DType>(header[0])};
  if (!options_.variable_shapes) heard_[action.stage] = form;
  return form;
}

void StageLink::receive(const Action& action) {
  int64_t stage = action.stage + (action.what == ActionKind::recv_forward ? -1 : 1);
  int from = static_cast<int>(rank_of(stage)), tag = tag_of(action);
  Form form = form_of(action, from, tag);
  Incoming& in = inbox_[{action.what, action.stage, action.micro}];
  MemoryScope use(run_.memory(), action.what == ActionKind::recv_forward ? MemoryUse::activations
                                                                         : MemoryUse::backward);
  in.tensor = run_.empty(form.shape, form.dtype);
  if (!moves()) return;
  in.arrival = ranks_->start_recv(in.tensor, from, tag);
  if (options_.blocking && options_.batched)
    batch_.push_back({action.what, action.stage, action.micro});
  else if (options_.blocking)
    in.arrival.wait();
}

void StageLink::settle() {
  for (const Place& place : std::exchange(batch_, {}))
    if (auto found = inbox_.find(place); found != inbox_.end()) found->second.arrival.wait();
}

Tensor StageLink::take(const Action& what) {
  auto found = inbox_.find({what.what, what.stage, what.micro});
  MT_CHECK(found != inbox_.end(), "nothing came for ", to_text(what));
  Incoming in = std::move(found->second);
  inbox_.erase(found);
  if (auto x = rehearsed_x_.find({what.stage, what.micro});
      what.what == ActionKind::recv_backward && x != rehearsed_x_.end()) {
    leaving_.emplace_back().tensor =
        std::move(x->second);  // received by now: the next transfer will notice
    rehearsed_x_.erase(x);
  }
  in.arrival.wait();
  return std::move(in.tensor);
}

void StageLink::finish() {
  for (Outgoing& out : leaving_) out.told.wait(), out.gone.wait();
  leaving_.clear();
  MT_CHECK(inbox_.empty(), inbox_.size(), " tensors were received that no action took");
  MT_CHECK(outbox_.empty(), outbox_.size(), " tensors were made that no action sent");
  sent_x_.clear();
  rehearsed_x_.clear();
  rehearsed_g_.clear();
}

void StageLink::abandon() noexcept {
  batch_.clear();
  inbox_.clear();
  outbox_.clear();
  sent_x_.clear();
  rehearsed_x_.clear();
  rehearsed_g_.clear();
  told_.clear();
  heard_.clear();
  leaving_.clear();
}

}  // namespace mtrain
