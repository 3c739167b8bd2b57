// Greeting: what the two ends of a new connection say before either believes the other, as bytes in
// and out; knows no sockets. Who was called sends a random number; who calls says who he is, proves
// with it that he knows the job's secret, and sends a random number of his own; who was called
// answers, and proves the same. The secret itself never travels, and nothing that was overheard
// opens another connection. Every message has a fixed size. For one thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mtrain/base/authentication.h"
#include "place.h"

namespace mtrain::tcp {

class Greeting {
 public:
  using Nonce = std::array<std::byte, 32>;
  enum class State {
    going,
    proven,    // the other end knows the secret; of one that was called: answer() is wanted
    refused,   // by the other end; reason() says why
    stranger,  // the other end does not know the secret, or does not speak this language; reason()
               // says which
  };
  enum class Verdict : uint32_t { unproven, welcome, other_job, misfit };

  /// What a caller says of itself. Only to be believed when the state is `proven`.
  struct Hello {
    uint32_t magic = 0;
    int32_t rank = 0, size = 0, port = 0;  // where it listens itself; 0: nowhere
    char job[64] = "";
    Nonce nonce{};
    Mac mac{};
  };

  /// Of the end that was called.
  static Greeting called(const Place& place);
  /// Of the end that calls rank `to` and listens at `port` itself.
  static Greeting calls(const Place& place, int to, int port);

  State state() const { return state_; }
  const std::string& reason() const { return reason_; }
  const Hello& hello() const { return hello_; }
  /// Of a caller: it has been challenged, and its proof is sent or in unsent().
  bool awaits_answer() const { return caller_ && state_ == State::going && hello_.mac != Mac{}; }
  /// Of one that was refused.
  Verdict verdict() const { return verdict_; }
  /// What is to be sent; sent() says how much of it was.
  std::string_view unsent() const { return out_; }
  void sent(size_t bytes) { out_.erase(0, bytes); }
  /// How many bytes are to come next; never more than a message has.
  size_t wanted() const { return state_ == State::going ? expected_ - in_.size() : 0; }
  /// What has come: at most wanted().
  void take(std::string_view bytes);
  /// Lets a caller that is proven in, or says why not.
  void answer(Verdict verdict);

 private:
  struct Challenge {
    uint32_t magic = 0;
    int32_t rank = 0;  // who was called
    Nonce nonce{};
  };
  struct Answer {
    uint32_t magic = 0;
    Verdict verdict{};
    Mac mac{};
  };
  explicit Greeting(const Place& place);
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
