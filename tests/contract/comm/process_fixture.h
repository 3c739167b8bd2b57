// The suite over ranks as processes; see process_fixture.cc.
#pragma once
#include <memory>

#include "contract/comm/fixture.h"
#include "mtrain/message_comm/transport.h"

namespace mtrain::contract {

/// Defined by the executable: the transport of this process.
std::unique_ptr<message_comm::Transport> make_transport();

}  // namespace mtrain::contract
