#include "mtrain/message_comm/transport.h"

namespace mtrain::message_comm {

Transfer::~Transfer() = default;
Channel::~Channel() = default;
Transport::~Transport() = default;

}  // namespace mtrain::message_comm
