// Messages for program ends that no exception handler catches: std::terminate (out of memory in a
// destructor or another noexcept function) and crash signals: SIGSEGV (a library that does not
// check malloc's result, or a defect), SIGBUS, SIGFPE, SIGILL, SIGABRT. The message names the
// cause, and reports if the system has no more memory. The handlers only write; they allocate
// nothing. In a plugin's call (mtrain/base/plugin_call.h) the message names plugin and call, and
// the process ends with status 13. Otherwise a defect ends the process by its signal, and running
// out of memory in std::terminate ends it with status 10. Both leave a core file if the system is
// configured to keep one.
#pragma once

namespace mtrain {

/// Call once, before any other thread exists.
void prepare_last_words();

}  // namespace mtrain
