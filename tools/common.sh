# Shared by the scripts of this folder; sourced, not run.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# The number of parallel compilers: one per core, and two gigabytes of memory for each.
jobs_that_fit() {
  local cores fit
  cores=$(nproc 2> /dev/null || echo 2)
  fit=$(awk '/^MemAvailable/ {print int($2 / 2000000)}' /proc/meminfo 2> /dev/null || echo 4)
  ((fit >= 1)) || fit=1
  echo $((cores < fit ? cores : fit))
}

# configure PRESET BUILD_FOLDER: runs cmake, silent unless it fails. A cache of another source folder is replaced. A new folder of a
# release joins the files of each folder for the compiler, which takes about half of the time; MT_UNITY=0 does not.
configure() {
  local preset=$1 build=$2 log fresh=()
  if [[ -f $build/CMakeCache.txt ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$build/CMakeCache.txt"; then
    fresh=(--fresh)
  fi
  if command -v ccache > /dev/null 2>&1; then
    # ccache treats paths below the checkout as relative, so that all clones share compiled files.
    export CMAKE_CXX_COMPILER_LAUNCHER="${CMAKE_CXX_COMPILER_LAUNCHER-env;CCACHE_BASEDIR=$root;CCACHE_NOHASHDIR=1;ccache}"
  fi
  local settings=()
  if [[ -n ${MT_CUDA_ARCHITECTURES-} ]]; then settings+=("-DMT_CUDA_ARCHITECTURES=$MT_CUDA_ARCHITECTURES"); fi
  if [[ $preset == release && ${MT_UNITY-1} != 0 && (${#fresh[@]} -gt 0 || ! -f $build/CMakeCache.txt) ]]; then
    settings+=(-DCMAKE_UNITY_BUILD=ON)
  fi
  log=$(mktemp)
  if ! (cd "$root" && cmake --preset "$preset" "${fresh[@]}" "${settings[@]}") > "$log" 2>&1; then
    tail -n 30 "$log" >&2
    rm -f "$log"
    echo "cmake could not configure $build (the end of its output is above)" >&2
    return 1
  fi
  rm -f "$log"
}

# compile BUILD_FOLDER TARGET…: builds; a terminal shows ninja's status line, a log every twenty-fifth line.
compile() {
  local build=$1
  shift
  if [[ -t 1 ]]; then
    cmake --build "$build" -j "$(jobs_that_fit)" --target "$@"
  else
    cmake --build "$build" -j "$(jobs_that_fit)" --target "$@" 2>&1 |
      awk '/^ninja: no work/ {next} !/^\[[0-9]+\/[0-9]+\] / || ++n % 25 == 0 || /FAILED/ {print; fflush()}'
    return "${PIPESTATUS[0]}"
  fi
}
