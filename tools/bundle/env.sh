# Sourced by the programs of a bundle: makes the loader find the bundle's libraries, and those of CUDA wherever they are on
# this machine. Sets LD_LIBRARY_PATH and MTRAIN_TEST_ROOT. Needs `bundle`, the folder of this file.
# Libraries that the loader finds by itself are not changed.

# Folders that may hold libraries of CUDA: toolkits, then the wheels of every installed Python.
cuda_folders() {
  local python site
  printf '%s\n' "${CUDA_HOME:-/usr/local/cuda}"/lib64 "${CUDA_HOME:-/usr/local/cuda}"/lib /usr/local/cuda*/lib64 \
    /usr/local/cuda*/targets/{x86_64,sbsa}-linux/lib /opt/cuda*/lib64 /usr/lib/{x86_64,aarch64}-linux-gnu
  for python in python3 "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python3}"; do
    site=$(command -v "${python:-/none}" > /dev/null 2>&1 && "$python" -c 'import site, sysconfig
print("\n".join({sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"], site.getusersitepackages()} | set(site.getsitepackages())))' 2> /dev/null)
    for site in $site; do printf '%s\n' "$site"/nvidia/*/lib; done
  done
  printf '%s\n' /opt/*/lib/python3*/site-packages/nvidia/*/lib /opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib \
    /usr/local/lib/python3*/*-packages/nvidia/*/lib /usr/lib/python3*/*-packages/nvidia/*/lib \
    "$HOME"/.local/lib/python3*/site-packages/nvidia/*/lib
}

known() { # known NAME: whether the loader finds it by itself or through LD_LIBRARY_PATH
  local folder
  if { ldconfig -p || /sbin/ldconfig -p; } 2> /dev/null | grep -qF "$1 "; then return 0; fi
  while IFS= read -r -d : folder; do
    if [[ -n $folder && -e $folder/$1 ]]; then return 0; fi
  done <<< "${LD_LIBRARY_PATH-}:"
  return 1
}

add_library() { # add_library NAME…: adds the folders of libraries that the loader would not find
  local name folder folders=
  for name in "$@"; do
    if known "$name"; then continue; fi
    if [[ -z $folders ]]; then folders=$(cuda_folders); fi
    while read -r folder; do
      if [[ -e $folder/$name ]]; then
        LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
        break
      fi
    done <<< "$folders"
  done
}

if [[ ${MTRAIN_BUNDLE-} != "$bundle" ]]; then # else the program of the bundle that started this one has done it
  LD_LIBRARY_PATH=$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  if ! LD_LIBRARY_PATH=$LD_LIBRARY_PATH "$bundle/bin/mtrain" --version > /dev/null 2>&1; then
    LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$bundle/lib/spare # a machine without a C++ library
    if ! LD_LIBRARY_PATH=$LD_LIBRARY_PATH "$bundle/bin/mtrain" --version > /dev/null 2>&1; then
      LD_LIBRARY_PATH=$bundle/lib/spare:$LD_LIBRARY_PATH # … or with an old one
    fi
  fi
  if [[ -e $bundle/lib/mtrain/plugins/backend_cuda.so ]]; then
    add_library libcuda.so.1 libcublasLt.so.13 libcudnn.so.9 libnvrtc.so.13 libnccl.so.2
    if ! known libcuda.so.1; then
      for folder in /usr/local/nvidia/lib64 /usr/local/nvidia/lib /usr/lib/wsl/lib; do
        if [[ -e $folder/libcuda.so.1 ]]; then LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$folder; fi
      done
    fi
  fi
  export LD_LIBRARY_PATH MTRAIN_TEST_ROOT=$bundle MTRAIN_BUNDLE=$bundle
fi
