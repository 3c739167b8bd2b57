// A fake of NCCL for ranks that are threads, on fake_streams.h, with the difficult properties of
// the real library: connecting needs all ranks and continues in the background; a call starts when
// its stream reaches it and then blocks that stream until the streams of its peers reach theirs;
// messages have no tags; and a message outside of a group blocks the following ones.
#pragma once
#include "library.h"

namespace mtrain::testing {

const nccl::Library& fake_nccl();
/// The same for versions before 2.19: without registered memory.
const nccl::Library& old_fake_nccl();
/// Statistics of registered memory; reading clears them.
struct FakeRegistrations {
  int made = 0, ended = 0;  // ranges with communicators
  int calls = 0;            // collectives per rank with only registered memory
  std::string fault;        // an error that the real library would not report
};
FakeRegistrations take_fake_registrations();
/// From now on every communicator of this process has this asynchronous error; ncclSuccess: none.
void set_fake_error(ncclResult_t error);
/// The number of communicators that are neither destroyed nor aborted.
int living_fake_comms();

}  // namespace mtrain::testing
