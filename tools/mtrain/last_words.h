// What the program says when it ends where no exception can be caught: std::terminate (memory that
// ends in a destructor or another function that may not throw) and the signals of crashes: SIGSEGV
// (a library that does not look at what malloc gave it, or a defect), SIGBUS, SIGFPE, SIGILL,
// SIGABRT. The message says which it is, and whether the system gives no more memory. Writes only,
// and allocates nothing. In a plugin's call (mtrain/base/plugin_call.h) the message names plugin
// and call, and the process ends with status 13. Otherwise a defect ends by its signal; the end of
// memory in std::terminate by status 10. Both leave a core file where the system keeps those.
#pragma once

namespace mtrain {

/// Called once, before other threads are.
void prepare_last_words();

}  // namespace mtrain
