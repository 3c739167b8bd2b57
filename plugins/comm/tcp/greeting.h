// Greeting: the mutual authentication of the two ends of a new connection, as bytes in and out,
// without sockets. The called end sends a random challenge. The caller identifies itself, proves
// with the challenge that it knows the job's secret, and sends its own challenge. The called end
// answers and proves the same. The secret itself is never sent, and recorded messages are useless
// for another connection. Every message has a fixed size. For one thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mtrain/base/authentication.h"
#include "rank_environment.h"

namespace mtrain::tcp {

class Greeting {
 public:
  using Nonce = std::array<std::byte, 32>;
  enum class State {
    going,
    proven,    // the other end knows the secret; on the called end, call answer() next
    refused,   // by the other end; reason() says why
    stranger,  // the other end does not know the secret or the protocol; reason() says which
  };
  enum class Verdict : uint32_t { unproven, welcome, other_job, misfit };

  /// The identity that a caller claims. Trustworthy only in the state `proven`.
  struct Hello {
    uint32_t magic = 0;
    int32_t rank = 0, size = 0, port = 0;  // where it listens itself; 0: nowhere
    char job[64] = "";
    Nonce nonce{};
    Mac mac{};
  };

  /// For the called end.
  static Greeting called(const RankEnvironment& environment);
  /// For the end that calls rank `to` and itself listens at `port`.
  static Greeting calls(const RankEnvironment& environment, int to, int port);

  State state() const { return state_; }
  const std::string& reason() const { return reason_; }
  const Hello& hello() const { return hello_; }
  /// On the caller: it has received the challenge, and its proof is sent or in unsent().
  bool awaits_answer() const { return caller_ && state_ == State::going && hello_.mac != Mac{}; }
  /// The reason for `refused` or `stranger`.
  Verdict verdict() const { return verdict_; }
  /// The bytes to send; report the number of sent bytes to sent().
  std::string_view unsent() const { return out_; }
  void sent(size_t bytes) { out_.erase(0, bytes); }
  /// The number of bytes to receive next, at most the size of a message.
  size_t wanted() const { return state_ == State::going ? expected_ - in_.size() : 0; }
  /// Passes received bytes: at most wanted().
  void take(std::string_view bytes);
  /// Accepts an authenticated caller, or refuses it with a reason.
  void answer(Verdict verdict);

 private:
  struct Challenge {
    uint32_t magic = 0;
    int32_t rank = 0;  // the rank that was called
    Nonce nonce{};
  };
  struct Answer {
    uint32_t magic = 0;
    Verdict verdict{};
    Mac mac{};
  };
  explicit Greeting(const RankEnvironment& environment);
  void take_challenge();
  void take_hello();
  void take_answer();
  void end(State state, std::string reason);
  Mac mac_of_hello() const;
  Mac mac_of(const Answer& answer) const;
  template <class T>
  void put(const T& message) {
    out_.append(reinterpret_cast<const char*>(&message), sizeof message);
  }

  std::string secret_, source_, in_, out_, reason_;
  State state_ = State::going;
  Verdict verdict_ = Verdict::unproven;
  bool caller_ = false;
  int to_ = 0;
  size_t expected_ = 0;  // bytes of the message that is arriving
  Challenge challenge_;
  Hello hello_;
};

}  // namespace mtrain::tcp
