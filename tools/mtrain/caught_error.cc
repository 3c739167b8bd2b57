#include "caught_error.h"

#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>

#include "mtrain/base/errno_hint.h"
#include "mtrain/base/error.h"
#include "mtrain/base/text.h"

namespace mtrain {
namespace {

CaughtError caught_as(ErrorClass error_class, std::string message, std::string help) {
  return {name(error_class), std::move(message), std::move(help), static_cast<int>(error_class)};
}

CaughtError of_system(const std::system_error& error) {
  const bool has_number = error.code().category() == std::generic_category() ||
                          error.code().category() == std::system_category();
  const int number = has_number ? error.code().value() : 0;  // not for a stream's error
  if (number != EAGAIN && number != ENOMEM)
    return caught_as(ErrorClass::io, error.what(), errno_hint(number));
  return caught_as(ErrorClass::io, cat("the system cannot create a thread or lock: ", error.what()),
                   "raise the limits of processes (ulimit -u) and of address space (ulimit -v), or "
                   "lower run.threads");
}

}  // namespace

CaughtError caught_error() {
  try {
    throw;
  } catch (const Error& error) {
    return {name(error.error_class()), error.message(), error.hint(), error.exit_status()};
  } catch (const std::bad_alloc&) {
    return caught_as(
        ErrorClass::config, "out of memory: the system has no more memory for this process",
        "raise the limits of memory (ulimit -v, or the container's), use a smaller model "
        "or micro-batch, or a larger machine");
  } catch (const std::filesystem::filesystem_error& error) {
    return caught_as(ErrorClass::io, error.what(), errno_hint(error.code().value()));
  } catch (const std::system_error& error) {
    return of_system(error);
  } catch (const std::exception& error) {
    return caught_as(ErrorClass::bug, error.what(),
                     "this is a defect of mtrain: please report it with this line");
  } catch (...) {
    return caught_as(ErrorClass::bug, "something was thrown that is not a std::exception",
                     "a plugin may be at fault");
  }
}

}  // namespace mtrain
