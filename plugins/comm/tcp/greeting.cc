#include "greeting.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "mtrain/base/error.h"

namespace mtrain::tcp {

namespace {

constexpr uint32_t kChallenge = 0x3243544D, kHello = 0x3248544D,
                   kAnswer = 0x3241544D;  // "MTC2", "MTH2", "MTA2"

/// The MAC of several messages in sequence; `label` makes the proof of one direction useless for
/// the other.
template <class... Messages>
Mac mac_of_all(const std::string& secret, std::string_view label, const Messages&... messages) {
  std::string text(label);
  (text.append(reinterpret_cast<const char*>(&messages), sizeof messages), ...);
  return hmac_sha256(std::as_bytes(std::span(secret)), std::as_bytes(std::span(text)));
}

const char* text_of(Greeting::Verdict verdict) {
  switch (verdict) {
    case Greeting::Verdict::unproven:
      return "it has a different secret";
    case Greeting::Verdict::other_job:
      return "it belongs to another job";
    case Greeting::Verdict::misfit:
      return "it belongs to a job of another size, or already has a process of this rank";
    case Greeting::Verdict::welcome:
      break;
  }
  return "it gives no reason";
}

}  // namespace

Greeting::Greeting(const RankEnvironment& environment)
    : secret_(environment.secret.bytes), source_(environment.secret.source) {
  static_assert(sizeof(Challenge) == 40 && sizeof(Hello) == 144 && sizeof(Answer) == 40,
                "bytes without an owner");
  MT_CHECK(secret_.size() >= Secret::kLeastBytes, "a job's secret of ", secret_.size(), " bytes");
}

Greeting Greeting::called(const RankEnvironment& environment) {
  Greeting greeting(environment);
  greeting.challenge_ = {.magic = kChallenge, .rank = environment.rank, .nonce = {}};
  fill_with_random(greeting.challenge_.nonce);
  greeting.put(greeting.challenge_);
  greeting.expected_ = sizeof(Hello);
  return greeting;
}

Greeting Greeting::calls(const RankEnvironment& environment, int to, int port) {
  Greeting greeting(environment);
  greeting.caller_ = true;
  greeting.to_ = to;
  Hello& hello = greeting.hello_;
  hello.magic = kHello;
  hello.rank = environment.rank;
  hello.size = environment.size;
  hello.port = port;
  std::memcpy(hello.job, environment.job.data(),
              std::min(environment.job.size(), sizeof hello.job - 1));
  fill_with_random(hello.nonce);
  greeting.expected_ = sizeof(Challenge);
  return greeting;
}

void Greeting::end(State state, std::string reason) {
  state_ = state;
  reason_ = std::move(reason);
}

Mac Greeting::mac_of_hello() const {
  Hello unsigned_hello = hello_;
  unsigned_hello.mac = {};
  return mac_of_all(secret_, "mtrain tcp: who calls", challenge_, unsigned_hello);
}

Mac Greeting::mac_of(const Answer& answer) const {
  return mac_of_all(secret_, "mtrain tcp: who was called", challenge_, hello_, answer.verdict);
}

void Greeting::take(std::string_view bytes) {
  MT_CHECK(bytes.size() <= wanted(), bytes.size(), " bytes, but ", wanted(), " are expected");
  in_.append(bytes);
  if (in_.size() < expected_ || state_ != State::going) return;
  if (!caller_) return take_hello();
  return hello_.mac == Mac{} ? take_challenge() : take_answer();
}

void Greeting::take_challenge() {
  std::memcpy(&challenge_, in_.data(), sizeof challenge_);
  in_.clear();
  if (challenge_.magic != kChallenge)
    return end(State::stranger, "the process that listens there is not a rank of this mtrain");
  if (challenge_.rank != to_)
    return end(State::stranger, cat("rank ", challenge_.rank, " listens there"));
  hello_.mac = mac_of_hello();
  put(hello_);
  expected_ = sizeof(Answer);
}

void Greeting::take_hello() {
  std::memcpy(&hello_, in_.data(), sizeof hello_);
  in_.clear();
  if (hello_.magic != kHello)
    return end(State::stranger, "it does not use the protocol of this mtrain");
  if (same_bytes(hello_.mac, mac_of_hello())) return end(State::proven, "");
  put(Answer{kAnswer, Verdict::unproven, {}});
  end(State::stranger, cat("it does not know the secret that this rank has from ", source_));
}

void Greeting::answer(Verdict verdict) {
  MT_CHECK(!caller_ && state_ == State::proven, "an answer to a caller without a valid proof");
  Answer answer{kAnswer, verdict, {}};
  answer.mac = mac_of(answer);
  put(answer);
}

void Greeting::take_answer() {
  Answer answer;
  std::memcpy(static_cast<void*>(&answer), in_.data(), sizeof answer);
  in_.clear();
  if (answer.magic != kAnswer)
    return end(State::stranger, "the process that listens there is not a rank of this mtrain");
  verdict_ = answer.verdict;
  if (answer.verdict == Verdict::unproven) return end(State::refused, text_of(Verdict::unproven));
  if (!same_bytes(answer.mac, mac_of(answer)))
    return end(
        State::stranger,
        cat("the process that listens there does not know the secret that this rank has from ",
            source_));
  if (answer.verdict != Verdict::welcome) return end(State::refused, text_of(answer.verdict));
  end(State::proven, "");
}

}  // namespace mtrain::tcp
