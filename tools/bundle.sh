#!/usr/bin/env bash
# Packs an archive that runs mtrain on another Linux (glibc 2.36 or later), without network and without root. The processor is
# that of the build and part of the archive's name: x86-64 or arm64.
#   tools/bundle.sh                       build/ into mtrain-bundle-x86-64.tar.gz (on an Arm machine: -arm64)
#   tools/bundle.sh --build build/arm64   a build for another processor (cmake --preset arm64)
#   tools/bundle.sh --build DIR --output FILE
#   tools/bundle.sh --no-tests            without the test programs that gpu_check.sh runs
# Packs the executable, the plugins that are built, the libraries they need (except glibc, CUDA, cuDNN, NCCL and MPI,
# which the machine must have), recipes, schemas, the quickstart's text if prepared, gpu_check.sh, and the programs that it runs.
# On the other machine: tar xf mtrain-bundle-x86-64.tar.gz && cd mtrain-bundle && ./mtrain doctor && ./mtrain quickstart. The folder may be moved.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build=$root/build output= tests=1
while (($#)); do
  case "$1" in
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --build) build=$(realpath "$2"); shift 2 ;;
    --output) output=$(realpath -m "$2"); shift 2 ;;
    --no-tests) tests=0; shift ;;
    *) echo "bundle: unknown option '$1' (see --help)" >&2; exit 2 ;;
  esac
done
fail() { echo "bundle: $*" >&2; exit 1; }
[[ -x $build/bin/mtrain ]] || fail "no $build/bin/mtrain: build first (cmake --build $build)"

# Libraries that the machine must have: glibc, and those of the driver, a CUDA toolkit or MPI.
of_the_machine='^(ld-linux.*|linux-vdso|libc|libm|libdl|librt|libpthread|libresolv|libutil|libcuda|libcudart|libcublas|libcublasLt|libcudnn.*|libnccl|libnvrtc.*|libmpi.*|libopen-.*|libmtrain_core)\.so'
# Used from the archive only if the machine's own is unsuitable: other libraries of the process may need a newer one.
spare='^(libstdc\+\+|libgcc_s)\.so'

# The processor that an ELF file is for, from its header: byte 18 is the machine's number.
processor() {
  case "$(od -An -tu1 -j18 -N1 "$1" | tr -d ' ')" in
    62) echo x86-64 ;;
    183) echo arm64 ;;
    *) fail "$1 is for a processor that no bundle is made for (known: x86-64, arm64)" ;;
  esac
}
arch=$(processor "$build/bin/mtrain")
here=$(processor "$(realpath "$BASH")")
output=${output:-$PWD/mtrain-bundle-$arch.tar.gz}
if [[ -d $output ]]; then fail "--output $output is a folder: give the name of the file, such as $output/mtrain-bundle-$arch.tar.gz"; fi

# A build for another processor runs in the emulator of that build, with the libraries of its sysroot.
sysroot= tool= emulator=()
if [[ $arch != "$here" ]]; then
  [[ $arch == arm64 ]] || fail "$build is for $arch, and this machine is $here: pack it on a machine of that kind"
  sysroot=$(sed -n 's/^MT_SYSROOT:PATH=//p' "$build/CMakeCache.txt" 2> /dev/null)
  qemu=$(sed -n 's/^MT_QEMU:FILEPATH=//p' "$build/CMakeCache.txt" 2> /dev/null)
  [[ -d $sysroot && -x $qemu ]] ||
    fail "$build is for $arch, and has no sysroot and emulator here: build it with tools/setup.sh --cross $arch and cmake --preset $arch"
  sysroot=$(realpath "$sysroot")
  tool=aarch64-linux-gnu-
  emulator=("$qemu" -L "$sysroot")
fi

# The emulator reports libraries by their paths within the sysroot.
in_sysroot() { if [[ -n $sysroot && $1 != "$root"/* ]]; then echo "$sysroot$1"; else echo "$1"; fi; }
# needed FILE…: "name path" of all libraries that the loader would take.
needed() {
  local file
  for file in "$@"; do
    if [[ -z $sysroot ]]; then LD_LIBRARY_PATH=$build/lib ldd "$file"; continue; fi
    "${emulator[@]}" "$sysroot/lib/ld-linux-aarch64.so.1" --library-path "$build/lib" --list "$file"
  done | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u |
    while read -r name path; do echo "$name $(in_sysroot "$path")"; done
}

pack_programs() {
  mkdir -p "$to"/{bin,lib/spare,lib/mtrain/plugins,share/mtrain}
  cp "$build/bin/mtrain" "$to/bin/"
  cp "$build/lib/libmtrain_core.so" "$to/lib/"
  for plugin in "$build"/lib/mtrain/plugins/*.so; do
    [[ -f ${plugin%.so}.json ]] || fail "$plugin has no sidecar next to it: build it again"
    cp "$plugin" "${plugin%.so}.json" "$to/lib/mtrain/plugins/"
  done
  cp -rL "$build"/lib/mtrain/plugins/*.families "$to/lib/mtrain/plugins/"
  if ((tests)); then
    mkdir -p "$to/tests/bin"
    for program in test_cuda test_cuda_gpu_less test_golden bench_kernels; do
      if [[ -x $build/bin/$program ]]; then cp "$build/bin/$program" "$to/tests/bin/"; else echo "bundle: skipped, not built: $program"; fi
    done
  fi
}

pack_libraries() {
  local name path
  while read -r name path; do
    if [[ $name =~ $of_the_machine ]]; then continue; fi
    if [[ $name =~ $spare ]]; then cp -L "$path" "$to/lib/spare/$name"; else cp -L "$path" "$to/lib/$name"; fi
  done < <(needed "$to/bin/mtrain" "$to"/lib/libmtrain_core.so "$to"/lib/mtrain/plugins/*.so $(ls "$to"/tests/bin/* 2> /dev/null))
  find "$to/bin" "$to/lib" "$to/tests" -type f \( -name '*.so*' -o -perm -u+x \) -exec "${tool}strip" --strip-unneeded {} + 2> /dev/null || true
}

# A library that needs a newer glibc than 2.36 would not load on the supported systems.
check_glibc() {
  local newest
  newest=$(find "$to/bin" "$to/lib" -type f \( -name '*.so*' -o -name mtrain \) -exec "${tool}objdump" -T {} + 2> /dev/null |
    grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
  [[ $(printf '%s\n' "$newest" GLIBC_2.36 | sort -V | tail -n 1) == GLIBC_2.36 ]] || fail "needs $newest, but GLIBC_2.36 is the limit: build on an older Linux"
  echo "needs ${newest/_/ } at most"
}

pack_data() {
  # Recipes are placed as in the source tree, relative to the text that they name; mtrain searches for its recipes in share/.
  cp -r "$root/recipes" "$root/schemas" "$to/"
  ln -s ../../recipes ../../schemas "$to/share/mtrain/"
  # The quickstart's text, where the bundle's own folder and, for every other folder, the installed program have it.
  local corpus=$root/data/quickstart/corpus
  if [[ ! -s $corpus.bin || ! -s $corpus.idx ]]; then corpus=$build/share/mtrain/data/quickstart/corpus; fi
  if [[ -s $corpus.bin && -s $corpus.idx ]]; then
    mkdir -p "$to/data/quickstart"
    cp "$corpus".* "$to/data/quickstart/"
    ln -s ../../data "$to/share/mtrain/"
  else
    echo "bundle: without the quickstart's text, which tools/quickstart.sh prepares"
  fi
  if ((tests)); then
    mkdir -p "$to/tests/golden"
    for folder in "$root"/tests/golden/*/; do cp -r "${folder%/}" "$to/tests/golden/"; done
    cp "$root"/tools/gpu_check.sh "$to/"
    mkdir -p "$to/tools"
    cp -r "$root/tools/gpu_check" "$to/tools/"
    mkdir -p "$to/tools/bench"
    cp "$root"/tools/bench/{torch,peft}_*.py "$to/tools/bench/"
  fi
  cp "$root/tools/bundle/env.sh" "$root/tools/bundle/mtrain" "$to/"
  chmod +x "$to/mtrain"
  git -C "$root" log -1 --format='%H %cs' > "$to/VERSION" 2> /dev/null || echo unknown > "$to/VERSION"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
to=$work/mtrain-bundle
pack_programs
pack_libraries
check_glibc
pack_data
if [[ -z $sysroot ]]; then
  "$to/mtrain" --version > /dev/null || fail "the packed program does not start"
else
  "${emulator[@]}" -E "LD_LIBRARY_PATH=$to/lib" "$to/bin/mtrain" --version > /dev/null ||
    fail "the packed program does not start in the emulator"
fi
mkdir -p "$(dirname "$output")"
tar -C "$work" --owner=0 --group=0 -cf - mtrain-bundle | gzip -9 > "$output.part"
mv "$output.part" "$output"
bytes=$(stat -c %s "$output")
echo "$output for $arch: $((bytes / 1000000)) MB, unpacked $(du -sm "$to" | cut -f1) MB, $(ls "$to"/lib/mtrain/plugins/*.so | wc -l) plugins"
((bytes < 60000000)) || fail "more than 60 MB"
