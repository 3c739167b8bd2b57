# mt_layer(NAME base DEPS ... LIBS ...): one static library per folder of core/.
# Headers are reached as "mtrain/<folder>/x.h" through one link per folder in the build tree, so a target sees the
# folders it depends on and no other: an include that looks up a layer does not compile.
set(MT_INCLUDE_ROOT ${CMAKE_BINARY_DIR}/include)
define_property(GLOBAL PROPERTY MT_LAYERS BRIEF_DOCS "the core folders" FULL_DOCS "the core folders, lowest first")

function(mt_layer name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS" ${ARGN})
  file(MAKE_DIRECTORY ${MT_INCLUDE_ROOT}/${name}/mtrain)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/core/${name} ${MT_INCLUDE_ROOT}/${name}/mtrain/${name} SYMBOLIC)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/${name}/*.cc)
  if(sources)
    add_library(mtrain_${name} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(mtrain_${name} PRIVATE mtrain_options ${ARG_LIBS})
    set_property(GLOBAL APPEND PROPERTY MT_LAYERS mtrain_${name})
  else()
    add_library(mtrain_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(mtrain_${name} ${scope} ${MT_INCLUDE_ROOT}/${name})
  list(TRANSFORM ARG_DEPS PREPEND mtrain_)
  target_link_libraries(mtrain_${name} ${scope} ${ARG_DEPS})
endfunction()
