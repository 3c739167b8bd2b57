// mtrain doctor: checks the machine for training, and gives a fix for each problem.
#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli.h"
#include "launch.h"
#include "mtrain/base/text.h"
#include "mtrain/comm/communicator.h"
#include "mtrain/config/tree.h"
#include "mtrain/cpu/cgroup.h"
#include "mtrain/cpu/cpu_backend.h"
#include "mtrain/plugin/sidecar.h"
#include "mtrain/tensor/device_backend.h"

namespace mtrain {
namespace {

enum class State { ok, warn, fail };

struct Finding {
  std::string name;
  State state = State::ok;
  std::string text, fix;
  ErrorClass error_class = ErrorClass::bug;  // of a failure
};

/// The value of a "key : value" file such as /proc/cpuinfo; "" when absent.
std::string file_value(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    size_t colon = line.find(':');
    if (colon != std::string::npos && trim(std::string_view(line).substr(0, colon)) == key)
      return std::string(trim(std::string_view(line).substr(colon + 1)));
  }
  return {};
}

std::optional<uint64_t> number_of(const std::optional<std::string>& text) {
  if (!text || text->empty() || text->find_first_not_of("0123456789") != std::string::npos ||
      text->size() > 19)
    return std::nullopt;
  return std::stoull(*text);
}

uint64_t kilobytes_of(std::string_view key) {
  std::string value = file_value("/proc/meminfo", key);
  return number_of(value.substr(0, value.find(' '))).value_or(0) * 1024;
}

/// "mixed_precision.dtype=auto uses fp32: this CPU has no bf16 arithmetic".
std::string auto_uses(const Backend& backend) {
  Bf16Products products = backend.bf16_products();
  return cat("mixed_precision.dtype=auto uses ", products.fast ? "bf16" : "fp32", ": ",
             products.reason);
}

#if defined(__aarch64__)
constexpr const char* kFeaturesKey = "Features";
constexpr const char* kFeatures[] = {"asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2"};
std::string processor() {
  std::string maker = file_value("/proc/cpuinfo", "CPU implementer"),
              part = file_value("/proc/cpuinfo", "CPU part");
  return maker.empty() ? "arm64" : cat("arm64 (implementer ", maker, ", part ", part, ")");
}
bool slow(const std::vector<std::string>&) { return false; }
#else
constexpr const char* kFeaturesKey = "flags";
constexpr const char* kFeatures[] = {"avx2",        "fma",         "f16c",     "avx512f",
                                     "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_tile"};
std::string processor() {
  std::string model = file_value("/proc/cpuinfo", "model name");
  return model.empty() ? "unknown processor" : model;
}
bool slow(const std::vector<std::string>& have) {
  return std::find(have.begin(), have.end(), "avx2") == have.end();
}
#endif

Finding cpu_features() {
  std::string listed = " " + file_value("/proc/cpuinfo", kFeaturesKey) + " ";
  std::vector<std::string> have, lack;
  for (const char* feature : kFeatures)
    (listed.find(cat(" ", feature, " ")) != std::string::npos ? have : lack).emplace_back(feature);
  Finding out{"cpu", State::ok, cat(processor(), ": has ", join(have, " ")), ""};
  if (!lack.empty()) out.text += cat("; lacks ", join(lack, " "));
  out.text += cat("; ", cpu_level(), "; ", auto_uses(*make_cpu_backend(1)));
  if (slow(have)) {
    out.state = State::warn;
    out.fix = "expect slow training: use a processor of 2013 or later";
  }
  return out;
}

Finding cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int allowed = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  Finding out{"cores", State::ok, cat(allowed, " usable of ", online, " online"), ""};
  if (auto quota = cpu::cgroup_cpus("/"); quota && *quota < allowed) {
    out.state = State::warn;
    out.text += cat(", but the control group grants CPU time for ", *quota, " only");
    out.fix = cat("set OMP_NUM_THREADS=", std::max(1, static_cast<int>(*quota)),
                  ", or raise the limit of the container");
  } else if (allowed < online) {
    out.fix =
        "this is fine if intended (taskset, mpirun binding); otherwise start without the binding";
  }
  if (const char* threads = std::getenv("OMP_NUM_THREADS")) {
    out.text += cat(", OMP_NUM_THREADS=", printable(threads, 20));
    auto count = number_of(std::string(threads));
    if (count && *count > static_cast<uint64_t>(allowed)) {
      out.state = State::warn;
      out.fix =
          cat("more threads than cores slow each other down: unset OMP_NUM_THREADS or set it to ",
              allowed);
    }
  }
  return out;
}

Finding memory() {
  uint64_t total = kilobytes_of("MemTotal"), free = kilobytes_of("MemAvailable");
  Finding out{"memory", State::ok, cat(human_bytes(free), " free of ", human_bytes(total)), ""};
  if (cpu::CgroupMemory group = cpu::cgroup_memory("/"); group.limit < total) {
    out.text += cat(", the control group allows ", human_bytes(group.limit), " and has ",
                    human_bytes(group.free), " of it free");
    free = std::min(free, group.free);
  }
  if (free < uint64_t{2} << 30) {
    out.state = State::warn;
    out.fix =
        "the quickstart needs 1.5 GiB: close other programs, or train with a smaller model or "
        "micro-batch";
  }
  return out;
}

Finding limits() {
  rlimit files{}, stack{}, space{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_STACK, &stack);
  ::getrlimit(RLIMIT_AS, &space);
  auto text = [](rlim_t value, bool bytes) {
    return value == RLIM_INFINITY ? std::string("unlimited")
           : bytes                ? human_bytes(value)
                                  : std::to_string(value);
  };
  Finding out{"limits", State::ok,
              cat("open files ", text(files.rlim_cur, false), ", stack ",
                  text(stack.rlim_cur, true), ", address space ", text(space.rlim_cur, true)),
              ""};
  if (files.rlim_cur < 1024) {
    out.state = State::warn;
    out.fix = "large sharded datasets and checkpoints open many files: ulimit -n 4096";
  }
  if (stack.rlim_cur < (1 << 20)) {
    out.state = State::warn;
    out.fix = "ulimit -s 8192";
  }
  if (space.rlim_cur != RLIM_INFINITY) {
    out.state = State::warn;
    out.fix = "datasets are mapped into the address space: ulimit -v unlimited";
  }
  return out;
}

Finding working_folder() {
  std::error_code error;
  fs::path here = fs::current_path(error);
  Finding out{"folder", State::ok, here.string(), "", ErrorClass::io};
  if (error || ::access(here.c_str(), W_OK | X_OK) != 0) {
    out.state = State::fail;
    out.text += ": not writable, a run could not be saved here";
    out.fix = "start in a folder of your own, or give run.dir=PATH";
    return out;
  }
  fs::space_info space = fs::space(here, error);
  if (error) return out;
  out.text += cat(": writable, ", human_bytes(space.available), " free");
  if (space.available < uint64_t{1} << 30) {
    out.state = State::warn;
    out.fix = "checkpoints may fill the disk: free some space, or give run.dir=PATH on another one";
  }
  return out;
}

std::vector<Finding> plugins(const Cli& cli) {
  std::vector<Finding> out;
  PluginHost host = plugin_host(cli);
  std::vector<PluginFileInfo> files = host.list();
  for (const auto& folder : host.folders()) {
    bool built_in = folder == host.folders().back(), exists = fs::is_directory(folder);
    auto in_folder = [&](const PluginFileInfo& file) {
      return file.path.parent_path() == folder && file.problem.empty();
    };
    auto count = std::count_if(files.begin(), files.end(), in_folder);
    Finding finding{"plugins", State::ok, cat(folder.string(), ": ", count, " usable"), "",
                    ErrorClass::plugin};
    if (!exists) finding.text = cat(folder.string(), ": absent");
    if (built_in && count == 0) {
      finding.state = State::fail;
      finding.fix = "the built-in plugins are missing: build or install mtrain again";
    } else if (!exists) {
      finding.state = State::warn;
      finding.fix = "correct --plugin-path or MTRAIN_PLUGIN_PATH";
    }
    out.push_back(std::move(finding));
  }
  for (const auto& file : files) {
    std::string problem = file.problem, remedy = file.remedy;
    try {
      if (problem.empty()) read_sidecar(file);
    } catch (const Error& error) {
      problem = error.message();
      remedy = error.hint();
    }
    if (!problem.empty())
      out.push_back({"plugin", State::fail, problem, remedy, ErrorClass::plugin});
  }
  return out;
}

/// What each backend plugin finds on this machine. A missing device is not an error: the CPU can
/// train too.
std::vector<Finding> devices(const Cli& cli) {
  std::vector<Finding> out;
  PluginHost host = plugin_host(cli);
  for (const auto& file : host.list()) {
    if (file.kind != DeviceBackend::kKind || !file.problem.empty() || file.shadowed) continue;
    Finding finding{"device", State::ok, cat("backend ", file.name, ": "), "", ErrorClass::plugin};
    try {
      BackendContext context;
      auto backend = host.make<DeviceBackend>(file.name, Node::map(), context);
      Probe probe = backend->probe();
      std::string lines = probe.devices > 0 ? join(backend->describe(), "; ") : probe.reason;
      finding.text += lines;
      if (probe.devices > 0) finding.text += cat("; ", auto_uses(*backend));
      finding.fix = backend->remedy();
    } catch (const Error& error) {
      // A missing vendor library is treated like a missing device: the CPU can train too.
      bool lacks_library = std::string_view(error.what()).find("cannot open shared object file") !=
                           std::string_view::npos;
      finding.state = lacks_library ? State::warn : State::fail;
      finding.text += error.message();
      finding.fix = error.hint();
    }
    out.push_back(std::move(finding));
  }
  return out;
}

/// What communicators that build on another one find, such as the library that they load.
std::vector<Finding> communicators(const Cli& cli) {
  std::vector<Finding> out;
  PluginHost host = plugin_host(cli);
  for (const auto& file : host.list()) {
    if (file.kind != Communicator::kKind || file.name != "nccl" || !file.problem.empty() ||
        file.shadowed)
      continue;
    Finding finding{"comm", State::ok, cat("comm ", file.name, ": "), "", ErrorClass::plugin};
    try {
      CommContext context;
      context.host = make_self_communicator();
      finding.text += host.make<Communicator>(file.name, Node::map(), context)->describe();
    } catch (const Error& error) {  // not an error on a machine without GPUs
      finding.text += error.message();
      finding.fix = error.hint();
    }
    out.push_back(std::move(finding));
  }
  return out;
}

/// The launchers of multi-process jobs on this machine.
Finding launchers(const Cli& cli) {
  bool tcp = false, mpi = false;
  for (const auto& file : plugin_host(cli).list()) {
    const bool usable = file.kind == Communicator::kKind && file.problem.empty() && !file.shadowed;
    tcp = tcp || (usable && file.name == "tcp");
    mpi = mpi || (usable && file.name == "mpi");
  }
  std::vector<std::string> here, absent;
  (tcp ? here : absent).emplace_back("mtrain --nproc N");
  for (const char* name : {"torchrun", "srun"})
    (find_program({name}).empty() ? absent : here).emplace_back(name);
  std::string mpirun = find_mpirun(), version = mpirun.empty() ? "" : version_of(mpirun);
  if (mpirun.empty())
    absent.emplace_back("mpirun");
  else
    here.push_back(cat(mpirun, " (", printable(trim(version.substr(0, version.find('\n')))),
                       mpi ? ")" : "; the plugin comm/mpi is not in this build)"));
  Finding out{"launch", State::ok,
              cat(here.empty() ? "none" : join(here, ", "),
                  absent.empty() ? "" : cat("; not found: ", join(absent, ", "))),
              ""};
  if (!tcp)
    out.state = State::warn,
    out.fix = "the plugin comm/tcp is missing: build or install mtrain again";
  return out;
}

Finding versions() {
  utsname system{};
  ::uname(&system);
  return {
      "versions", State::ok,
      cat(describe(host_stamp()), ", compiler ", __VERSION__, ", glibc ", ::gnu_get_libc_version(),
          ", ", system.sysname, " ", system.release, " ", system.machine),
      ""};
}

const char* state_word(State state) {
  return state == State::ok ? "ok" : state == State::warn ? "warn" : "FAIL";
}

void print_findings_json(const std::vector<Finding>& findings) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& finding : findings)
    list.push_back({{"check", finding.name},
                    {"state", state_word(finding.state)},
                    {"text", finding.text},
                    {"fix", finding.fix}});
  print_json({{"findings", list}});
}

void print_findings_text(const std::vector<Finding>& findings) {
  for (const auto& finding : findings) {
    std::string state = state_word(finding.state), label = finding.name;
    state.resize(5, ' ');
    label.resize(9, ' ');
    std::cout << state << label << finding.text << '\n';
    if (!finding.fix.empty()) std::cout << std::string(14, ' ') << "-> " << finding.fix << '\n';
  }
}

void doctor(Cli& cli, bool json) {
  std::vector<Finding> findings = {versions(), cpu_features(), cores(),
                                   memory(),   limits(),       working_folder()};
  for (auto& finding : plugins(cli)) findings.push_back(std::move(finding));
  for (auto& finding : devices(cli)) findings.push_back(std::move(finding));
  findings.push_back(launchers(cli));
  for (auto& finding : communicators(cli)) findings.push_back(std::move(finding));
  json ? print_findings_json(findings) : print_findings_text(findings);
  for (const auto& finding : findings)
    if (finding.state == State::fail && cli.status == 0)
      cli.status = static_cast<int>(finding.error_class);
}

}  // namespace

void add_doctor_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("doctor", "check this machine and suggest fixes for problems");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print the findings as JSON");
  command->footer(
      "Exit status: 0 if nothing prevents training, else the exit status of the first failure\n"
      "(13 plugin, 18 input/output).\n"
      "Examples:\n"
      "  mtrain doctor\n"
      "  mtrain doctor --json | jq '.findings[] | select(.state != \"ok\")'");
  command->callback([&cli, json] { doctor(cli, *json); });
}

}  // namespace mtrain
