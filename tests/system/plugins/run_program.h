// Runs a program and collects what it printed and how it ended.
#pragma once
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"

namespace mtrain {

struct Outcome {
  int status = -1;  // the exit status; 128 + number when a signal ended it
  std::string out, err;
};

/// `output`: a file to send standard output to instead of collecting it.
inline Outcome run_program(const std::string& program, std::vector<std::string> arguments, const std::string& output = {}) {
  fs::path base = fs::temp_directory_path() / ("mtrain_run_" + std::to_string(::getpid()));
  fs::path out_path = base.string() + ".out", err_path = base.string() + ".err";
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv;
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string out_name = output.empty() ? out_path.string() : output, err_name = err_path.string();
  pid_t child = ::fork();
  if (child == 0) {
    int out = ::open(out_name.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int err = ::open(err_name.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (out < 0 || err < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) ::_exit(126);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  if (child < 0) throw Error(ErrorClass::io, "cannot fork");
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  Outcome outcome;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (output.empty()) outcome.out = read_file(out_path);
  outcome.err = read_file(err_path);
  fs::remove(out_path);
  fs::remove(err_path);
  return outcome;
}

}  // namespace mtrain
