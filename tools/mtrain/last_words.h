// What the program says when it ends where no exception can be caught: std::terminate (memory that ends in a destructor or another
// function that may not throw) and SIGSEGV (a library that does not look at what malloc gave it, or a defect). The message says
// which it is, and whether the system gives no more memory. Writes only, and allocates
// nothing. A defect ends by its signal (SIGABRT, SIGSEGV), with a core file where the system keeps those; the end of memory in
// std::terminate by status 10.
#pragma once

namespace mtrain {

/// Called once, before other threads are.
void prepare_last_words();

}  // namespace mtrain
