#include "rendezvous.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "deadline_io.h"
#include "greeting.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "socket.h"

namespace mtrain::tcp {

namespace {

using std::chrono::milliseconds;
// The maximum number of unauthenticated connections, in addition to one per rank; beyond it the
// oldest is dropped. A rank authenticates within one round trip.
constexpr size_t kMostStrangers = 256;
constexpr int kMostReported = 10;  // dropped connections that are logged separately
constexpr size_t kMostNamed = 16;  // missing ranks in a message
constexpr milliseconds kFirstPause{5}, kLongestPause{500};

struct Endpoint {  // the address at which a rank listens
  char address[64] = "";
  int32_t port = 0;
};

/// Sends and receives without waiting. False: the other end closed the connection.
bool converse(const Socket& socket, Greeting& greeting) {
  for (;;) {
    for (bool blocked = false; !greeting.unsent().empty() && !blocked;) {
      ssize_t sent =
          ::send(socket.get(), greeting.unsent().data(), greeting.unsent().size(), MSG_NOSIGNAL);
      if (sent > 0)
        greeting.sent(static_cast<size_t>(sent));
      else if (not_now())
        blocked = true;
      else if (errno != EINTR)
        return false;
    }
    char buffer[sizeof(Greeting::Hello)];  // the longest of its messages
    size_t wanted = std::min(greeting.wanted(), sizeof buffer);
    if (wanted == 0) return true;
    ssize_t got = ::recv(socket.get(), buffer, wanted, 0);
    if (got > 0)
      greeting.take({buffer, static_cast<size_t>(got)});
    else if (got < 0 && not_now())
      return true;
    else if (got == 0 || errno != EINTR)
      return false;
  }
}

bool hung_up(const Socket& socket) {
  pollfd look{socket.get(), POLLRDHUP, 0};
  return ::poll(&look, 1, 0) > 0;
}

class Rendezvous {
 public:
  Rendezvous(const RankEnvironment& environment, const RendezvousLimits& limits)
      : environment_(environment),
        limits_(limits),
        end_(Clock::now() + limits.whole),
        seats_(static_cast<size_t>(environment.size)),
        endpoints_(static_cast<size_t>(environment.size)) {}

  std::vector<Socket> run() {
    if (environment_.rank == 0) {
      listen_as_first();
      await_ranks(1, environment_.size);
      name_for_others();
      for (int r = 1; r < environment_.size; ++r) put(seat(r), table(), end_, cat("rank ", r));
    } else {
      calls_.push_back({.rank = 0, .host = environment_.address, .port = environment_.port});
      await_ranks(0, 1);
      MT_USER_CHECK(get(seat(0), reinterpret_cast<char*>(endpoints_.data()), table().size(), end_,
                        "rank 0 and the others"),
                    ErrorClass::peer, "rank 0 disconnected before all ranks had connected",
                    "see what it reported");
      for (int r = 1; r < environment_.rank; ++r) call_by_door(r);
      await_ranks(1, environment_.size);
    }
    return std::move(seats_);
  }

 private:
  struct Guest {  // a caller that is not authenticated yet
    Socket socket;
    Greeting greeting;
    Clock::time_point until;
    std::string address;
  };
  struct Call {  // a connection from this rank to another
    int rank = 0;
    std::string host;
    int port = 0;
    std::vector<Address> where;
    size_t next = 0;  // index into `where`
    Socket socket;
    std::optional<Greeting> greeting;  // once connected
    Clock::time_point until, again;
    milliseconds pause = kFirstPause;
    std::string last = "not reached yet";  // why it has failed so far
  };

  Socket& seat(int rank) { return seats_[static_cast<size_t>(rank)]; }
  std::string_view table() const {
    return {reinterpret_cast<const char*>(endpoints_.data()), endpoints_.size() * sizeof(Endpoint)};
  }
  std::vector<Address> await_address() const;
  void listen_as_first();
  void listen_as_other(const Socket& to_first);
  void call_by_door(int rank);
  void await_ranks(int first, int end);
  std::string missing(int first, int end);
  void turn();
  milliseconds patience(Clock::time_point now) const;
  void dial(Call& call, Clock::time_point now);
  void hang_up(Call& call, std::string why);
  void serve(Call& call);
  void serve(Guest& guest);
  void admit(Guest& guest);
  void let_in(const Socket& listener);
  void drop(Guest& guest, const std::string& why);
  void name_for_others();

  const RankEnvironment& environment_;
  RendezvousLimits limits_;
  Clock::time_point end_;
  std::vector<Socket> seats_;        // by rank: authenticated connections
  std::vector<Endpoint> endpoints_;  // likewise
  std::vector<Socket> listeners_;
  int port_ = 0;               // for all of them
  std::vector<Guest> guests_;  // oldest first
  std::vector<Call> calls_;
  int num_dropped_ = 0;
};

void warn_of_unknown(const std::string& why) {
  log_warn(why, "; MASTER_ADDR is looked up again until the time limit for connecting");
}

/// The address of this rank itself, whose name may not be resolvable yet either.
std::vector<Address> Rendezvous::await_address() const {
  std::string why;
  for (milliseconds pause = kFirstPause; Clock::now() + pause < end_;
       pause = std::min(pause * 2, kLongestPause)) {
    bool first = why.empty();
    if (auto where = resolve(environment_.address, environment_.port, false, &why); !where.empty())
      return where;
    if (first) warn_of_unknown(why);
    std::this_thread::sleep_for(pause);
  }
  return resolve(environment_.address, environment_.port);
}

void Rendezvous::listen_as_first() {
  std::vector<Address> where = await_address();
  bool names_loopback =
      std::all_of(where.begin(), where.end(), [](const Address& a) { return a.loopback(); });
  std::string why;
  auto listen = [&](const Address& address) {
    Socket socket = listen_at(address);
    int error = errno;
    if (socket.open()) return listeners_.push_back(std::move(socket));
    why = cat(address.text(), ": ", reason_of(error));
    // If another process listens on this port, ranks would connect to it.
    MT_USER_CHECK(error != EADDRINUSE && error != EACCES, ErrorClass::config,
                  cat("the first rank cannot listen on port ", environment_.port, " of ", why),
                  "set MASTER_PORT to a port that is free on its machine");
  };
  if (!names_loopback || environment_.here_only())
    for (const Address& address : where) listen(address);
  // MASTER_ADDR may be a proxy that forwards connections, such as a Kubernetes service.
  for (int family : {AF_INET6, AF_INET})
    if (listeners_.empty() && !environment_.here_only())
      listen(any_address(family, environment_.port));
  MT_USER_CHECK(!listeners_.empty(), ErrorClass::config,
                cat("the first rank cannot listen on port ", environment_.port, " of ", why),
                "set MASTER_ADDR to the name or address of the first rank's machine");
  port_ = environment_.port;
}

/// Other ranks connect to the local address of the connection to the first rank.
void Rendezvous::listen_as_other(const Socket& to_first) {
  Address here = address_of(to_first, ::getsockname).with_port(0);
  if (here.loopback() && !environment_.here_only()) here = any_address(here.family(), 0);
  listeners_.clear();
  listeners_.push_back(listen_at(here));
  int error = errno;
  MT_USER_CHECK(listeners_[0].open(), ErrorClass::io,
                cat("rank ", environment_.rank, " cannot listen on any port of ", here.text(), ": ",
                    reason_of(error)),
                "check which ports its machine allows");
  port_ = address_of(listeners_[0], ::getsockname).port();
}

void Rendezvous::call_by_door(int rank) {
  Endpoint& endpoint = endpoints_[static_cast<size_t>(rank)];
  endpoint.address[sizeof endpoint.address - 1] = '\0';
  MT_USER_CHECK(endpoint.port > 0 && endpoint.port <= 65535, ErrorClass::peer,
                cat("rank 0 reports port ", endpoint.port, " for rank ", rank),
                "check that all ranks run the same mtrain");
  calls_.push_back({.rank = rank, .host = endpoint.address, .port = endpoint.port});
}

std::string Rendezvous::missing(int first, int end) {
  std::vector<std::string> names;
  int more = 0;
  for (int r = first; r < end; ++r) {
    if (r == environment_.rank || seat(r).open()) continue;
    if (names.size() == kMostNamed && ++more) continue;
    auto call =
        std::find_if(calls_.begin(), calls_.end(), [r](const Call& c) { return c.rank == r; });
    names.push_back(call == calls_.end()
                        ? std::to_string(r)
                        : cat(r, " (", call->host, " port ", call->port, ": ", call->last, ")"));
  }
  return names.empty() ? ""
                       : cat(names.size() == 1 ? "rank " : "ranks ", join(names, ", "),
                             more ? cat(" and ", more, " more") : "");
}

void Rendezvous::await_ranks(int first, int end) {
  auto all_here = [&] {
    for (int r = first; r < end; ++r)
      if (r != environment_.rank && !seat(r).open()) return false;
    return true;
  };
  while (!all_here()) {
    if (Clock::now() >= end_) throw_not_connected(missing(first, end));
    turn();
  }
}

/// The time until the next time limit of a connection.
milliseconds Rendezvous::patience(Clock::time_point now) const {
  auto next = end_;
  for (const Guest& guest : guests_) next = std::min(next, guest.until);
  for (const Call& call : calls_)
    next = std::min(next, call.socket.open() ? call.until : call.again);
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(next - now));
}

void Rendezvous::turn() {
  auto now = Clock::now();
  for (Call& call : calls_) {
    if (call.socket.open() && now >= call.until) hang_up(call, "there is no answer");
    dial(call, now);
  }
  const std::string silent =
      cat("it did not identify itself within ", limits_.greeting.count(), " ms");
  for (Guest& guest : guests_)
    if (now >= guest.until) drop(guest, silent);
  std::erase_if(guests_, [](const Guest& guest) { return !guest.socket.open(); });
  std::vector<pollfd> all;
  auto add = [&all](const Socket& socket, int events) {
    if (socket.open()) all.push_back({socket.get(), static_cast<short>(events), 0});
  };
  for (const Guest& guest : guests_)
    add(guest.socket, guest.greeting.unsent().empty() ? POLLIN : POLLIN | POLLOUT);
  for (const Call& call : calls_)
    add(call.socket, call.greeting && call.greeting->unsent().empty() ? POLLIN : POLLIN | POLLOUT);
  for (const Socket& listener : listeners_) add(listener, POLLIN);
  for (const Socket& socket : seats_) add(socket, POLLRDHUP);
  if (poll_all(all, patience(now)) <= 0) return;
  // In the same order as for poll(). Sockets that were added or replaced since were not polled;
  // they are handled in the next iteration.
  auto at = all.begin();
  auto ready = [&](const Socket& socket) {
    return at != all.end() && at->fd == socket.get() && (at++)->revents != 0;
  };
  for (Guest& guest : guests_)
    if (ready(guest.socket)) serve(guest);
  for (Call& call : calls_)
    if (ready(call.socket)) serve(call);
  std::erase_if(calls_, [this](const Call& call) { return seat(call.rank).open(); });
  for (const Socket& listener : listeners_)
    if (ready(listener)) let_in(listener);
  // Last, because a rank whose connection was lost may have connected again.
  for (size_t r = 0; r < seats_.size(); ++r)
    MT_USER_CHECK(!ready(seats_[r]), ErrorClass::peer,
                  cat("rank ", r, " disconnected before all ranks had connected"),
                  "see what it reported");
}

void Rendezvous::dial(Call& call, Clock::time_point now) {
  while (!call.socket.open() && now >= call.again) {
    if (call.next >= call.where.size()) {
      std::string why;
      call.where = resolve(call.host, call.port, call.rank != 0, call.rank == 0 ? &why : nullptr);
      call.next = 0;
      // A name may become resolvable later, such as that of a Kubernetes service.
      if (call.where.empty()) {
        if (call.last.empty()) warn_of_unknown(why);
        hang_up(call, std::move(why));
        return;
      }
    }
    call.socket = begin_connection(call.where[call.next++]);
    call.until = now + limits_.greeting;
    if (!call.socket.open()) hang_up(call, reason_of(errno));
  }
}

/// Tries the next address, or all of them again after a while.
void Rendezvous::hang_up(Call& call, std::string why) {
  call.socket.close();
  call.greeting.reset();
  call.last = std::move(why);
  if (call.next < call.where.size()) return;
  call.again = Clock::now() + call.pause;
  call.pause = std::min(call.pause * 2, kLongestPause);
}

void Rendezvous::serve(Call& call) {
  if (!call.greeting) {
    if (int error = connection_error(call.socket)) return hang_up(call, reason_of(error));
    if (call.rank == 0 && environment_.rank + 1 < environment_.size) listen_as_other(call.socket);
    call.greeting.emplace(Greeting::calls(environment_, call.rank, port_));
  }
  bool open = converse(call.socket, *call.greeting);
  const Greeting& greeting = *call.greeting;
  // The other end may have accepted this rank already: closing the connection now would look like a
  // dead rank.
  if (greeting.awaits_answer()) call.until = end_;
  if (greeting.state() == Greeting::State::proven) {
    seat(call.rank) = std::move(call.socket);
  } else if (greeting.state() == Greeting::State::going) {
    if (!open) hang_up(call, "it closes the connection");
  } else {
    bool refused = greeting.state() == Greeting::State::refused;
    bool known = refused && greeting.verdict() != Greeting::Verdict::unproven;
    throw Error(
        ErrorClass::config,
        cat("rank ", environment_.rank, refused ? " is refused by rank " : " cannot reach rank ",
            call.rank, " at ", call.host, " port ", call.port, ": ", greeting.reason()),
        known
            ? "use a different MASTER_PORT for each job, and the same WORLD_SIZE for all its ranks"
            : "use the same MTRAIN_JOB_SECRET or MTRAIN_JOB_SECRET_FILE for all ranks, and a "
              "different MASTER_PORT for each job");
  }
}

void Rendezvous::serve(Guest& guest) {
  bool open = converse(guest.socket, guest.greeting);
  if (guest.greeting.state() == Greeting::State::proven)
    admit(guest);
  else if (guest.greeting.state() == Greeting::State::stranger)
    drop(guest, guest.greeting.reason());
  else if (!open)
    drop(guest, "it disconnected before it identified itself");
}

void Rendezvous::admit(Guest& guest) {
  const Greeting::Hello& hello = guest.greeting.hello();
  char job[sizeof hello.job] = "";
  std::memcpy(job, environment_.job.data(), std::min(environment_.job.size(), sizeof job - 1));
  bool alike = std::memcmp(job, hello.job, sizeof job) == 0;
  bool fits = hello.size == environment_.size && hello.rank > environment_.rank &&
              hello.rank < environment_.size;
  // A caller that got no answer in time disconnects and tries again: the closed connection must not
  // occupy its place.
  if (hung_up(guest.socket))
    return drop(guest, cat("it is rank ", hello.rank, " and disconnected before it was answered"));
  bool twice = fits && seat(hello.rank).open() && !hung_up(seat(hello.rank));
  using enum Greeting::Verdict;
  guest.greeting.answer(!alike ? other_job : fits && !twice ? welcome : misfit);
  bool answered = converse(guest.socket, guest.greeting) && guest.greeting.unsent().empty();
  if (!alike) return drop(guest, cat("it is rank ", hello.rank, " of another job"));
  MT_USER_CHECK(fits, ErrorClass::config,
                cat("rank ", hello.rank, " of ", hello.size, " connected to rank ",
                    environment_.rank, " of ", environment_.size, " (port ", port_, ")"),
                "use the same WORLD_SIZE for all ranks, and a different MASTER_PORT for each job");
  MT_USER_CHECK(!twice, ErrorClass::config, cat("two processes claim to be rank ", hello.rank),
                "check how RANK is set");
  if (!answered)
    return drop(guest, cat("it is rank ", hello.rank, " and does not accept an answer"));
  Endpoint& endpoint = endpoints_[static_cast<size_t>(hello.rank)];
  std::memcpy(endpoint.address, guest.address.data(),
              std::min(guest.address.size(), sizeof endpoint.address - 1));
  endpoint.port = hello.port;
  seat(hello.rank) = std::move(guest.socket);
}

void Rendezvous::let_in(const Socket& listener) {
  for (size_t count = 0; count < kMostStrangers / 4;
       ++count) {  // so that other sockets are served too
    Socket socket = accept_next(listener);
    if (!socket.open() && errno != EMFILE && errno != ENFILE) return;
    auto oldest = std::find_if(guests_.begin(), guests_.end(),
                               [](const Guest& guest) { return guest.socket.open(); });
    auto waiting = static_cast<size_t>(guests_.end() - oldest);
    MT_USER_CHECK(socket.open() || waiting > 0, ErrorClass::io,
                  cat("cannot accept a connection: ", reason_of(errno)),
                  "raise the number of files that a process may open (ulimit -n)");
    if (!socket.open())
      drop(*oldest,
           "this process has reached its limit of open files (ulimit -n), and another connection "
           "is waiting");
    else if (waiting >= kMostStrangers + seats_.size())
      drop(*oldest, "there are too many unauthenticated connections");
    if (!socket.open()) continue;
    std::string address = address_of(socket, ::getpeername).text();
    guests_.push_back({std::move(socket), Greeting::called(environment_),
                       Clock::now() + limits_.greeting, std::move(address)});
    serve(guests_.back());
  }
}

void Rendezvous::drop(Guest& guest, const std::string& why) {
  if (num_dropped_ < kMostReported)
    log_warn("dropped a connection from ", guest.address, " to port ", port_, ": ", why);
  if (++num_dropped_ == kMostReported) log_warn("further dropped connections are not reported");
  guest.socket.close();
}

/// A rank that connected over loopback is on this machine, so others reach it at the address of
/// this process.
void Rendezvous::name_for_others() {
  std::string here;
  for (const Socket& peer : seats_)
    if (peer.open() && !address_of(peer, ::getpeername).loopback())
      here = address_of(peer, ::getsockname).text();
  for (int r = 1; r < environment_.size && !here.empty(); ++r) {
    Endpoint& endpoint = endpoints_[static_cast<size_t>(r)];
    if (!address_of(seat(r), ::getpeername).loopback()) continue;
    std::memset(endpoint.address, 0, sizeof endpoint.address);
    std::memcpy(endpoint.address, here.data(), std::min(here.size(), sizeof endpoint.address - 1));
  }
}

}  // namespace

std::vector<int> connect_ranks(const RankEnvironment& environment, const RendezvousLimits& limits) {
  std::vector<Socket> peers(static_cast<size_t>(environment.size));
  if (environment.size > 1) peers = Rendezvous(environment, limits).run();
  std::vector<int> out;
  for (Socket& peer : peers) {
    int on = 1;
    if (peer.open()) ::setsockopt(peer.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    out.push_back(peer.release());
  }
  return out;
}

}  // namespace mtrain::tcp
