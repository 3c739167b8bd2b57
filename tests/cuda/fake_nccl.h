// NCCL's functions among threads, over fake_streams.h, with what makes the real one hard to use:
// connecting takes all ranks and goes on in the background, a call does nothing before its stream
// gets to it and then blocks that stream until its peers' do, messages have no tags, and one that
// is not in a group holds up what is behind it.
#pragma once
#include "library.h"

namespace mtrain::testing {

const nccl::Library& fake_nccl();
/// The same as of before 2.19: without registered memory.
const nccl::Library& old_fake_nccl();
/// What became of registered memory. Cleared when it is asked for.
struct FakeRegistrations {
  int made = 0, ended = 0;  // ranges with communicators
  int calls = 0;            // collectives, counted by rank, all of whose memory was registered
  std::string fault;        // what the real library would not survive, or would lose by
};
FakeRegistrations take_fake_registrations();
/// From now on every communicator of this process has this asynchronous error; ncclSuccess: none.
void set_fake_error(ncclResult_t error);
/// Communicators that were made and neither destroyed nor aborted.
int living_fake_comms();

}  // namespace mtrain::testing
