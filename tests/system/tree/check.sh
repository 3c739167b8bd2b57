#!/usr/bin/env bash
# Rules of the tree that no compiler sees. Prints every breach; fails on any.
set -u
cd "$1" || exit 2
breaches=0
breach() { echo "breach: $*"; breaches=$((breaches + 1)); }

while read -r file; do
  lines=$(wc -l < "$file")
  ((lines <= 500)) || breach "$file has $lines lines, more than 500: split it by concept"
done < <(find mtrain plugins tools tests -name '*.cc' -o -name '*.h' -o -name '*.cu')

while read -r line; do breach "GPU or MPI header under mtrain/: $line"
done < <(grep -rnE '#[[:space:]]*include[[:space:]]*[<"](cuda|cublas|cudnn|nccl|mpi)' mtrain)

while read -r line; do breach "a heavy header in a header: $line"
done < <(grep -rnE '#[[:space:]]*include[[:space:]]*<(yaml-cpp|nlohmann/json.hpp|spdlog|boost|CLI)' mtrain --include='*.h')

while read -r line; do breach "a plugin includes another: $line"
done < <(grep -rnE '#[[:space:]]*include[[:space:]]*".*plugins/' plugins)

while read -r line; do breach "runs a shell: $line"
done < <(grep -rnE '(^|[^a-z_.:>])(::)?(system|popen)[[:space:]]*\(' mtrain plugins tools/mtrain --include='*.cc' --include='*.h')

for folder in mtrain/*/; do
  [[ -f $folder/README.md ]] || breach "$folder has no README.md"
  [[ ! -f $folder/README.md ]] || (($(wc -l < "$folder/README.md") <= 30)) || breach "$folder/README.md is longer than 30 lines"
done

# A test never fails for time: see tests/README.md. These use a clock to wait, or to find that nothing comes too early.
timed='^tests/(contract/comm/(movement|failure)_test\.cc|system/process\.h|system/mpi/mpi_job\.h):'
while read -r line; do breach "a clock in a test, which fails on a slow machine (tests/README.md has what to use instead): $line"
done < <(grep -rnE '(steady|system|high_resolution)_clock::now|Clock::now|clock_gettime|gettimeofday|time\.(time|monotonic|perf_counter)\(' \
  tests --include='*.cc' --include='*.h' --include='*.py' | grep -vE "$timed")
while read -r line; do breach "a limit of time of its own (MT_TEST_TIMEOUT is for all tests): $line"
done < <(grep -rnE 'TIMEOUT[[:space:]]+[0-9]' tests --include=CMakeLists.txt | grep -v 'set(MT_TEST_TIMEOUT')

echo "$breaches breaches"
((breaches == 0))
