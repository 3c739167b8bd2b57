# mt_layer(NAME [OPTIMIZE n] DEPS … LIBS …): one static library per folder of mtrain/. Headers are included as "mtrain/<layer>/x.h" from the
# root of the repository. The test `layers` checks that a layer includes only what it depends on; the test of a layer links
# nothing else, so a call into a higher layer does not link. OPTIMIZE: the level of a release, default 3. Layers without loops over
# elements gain nothing from more than 1, which compiles in two thirds of the time of 2; those over samples or actions have 2.
define_property(GLOBAL PROPERTY MT_LAYERS BRIEF_DOCS "the layers" FULL_DOCS "the layers, lowest first")
define_property(GLOBAL PROPERTY MT_OBJECTS BRIEF_DOCS "further objects" FULL_DOCS "objects of a layer that its library does not contain")
define_property(GLOBAL PROPERTY MT_LIBRARIES BRIEF_DOCS "what they link" FULL_DOCS "third-party libraries of the layers")

function(mt_layer name)
  cmake_parse_arguments(ARG "" "OPTIMIZE" "DEPS;LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/mtrain/${name}/*.cc)
  if(sources)
    add_library(mtrain_${name} STATIC ${sources})
    set(scope PUBLIC)
    if(ARG_OPTIMIZE AND CMAKE_BUILD_TYPE STREQUAL Release)
      target_compile_options(mtrain_${name} PRIVATE -O${ARG_OPTIMIZE})
    endif()
    target_link_libraries(mtrain_${name} PRIVATE mtrain_options ${ARG_LIBS})
    set_property(GLOBAL APPEND PROPERTY MT_LAYERS mtrain_${name})
    set_property(GLOBAL APPEND PROPERTY MT_LIBRARIES ${ARG_LIBS})
  else()
    add_library(mtrain_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(mtrain_${name} ${scope} ${CMAKE_SOURCE_DIR})
  list(TRANSFORM ARG_DEPS PREPEND mtrain_)
  target_link_libraries(mtrain_${name} ${scope} ${ARG_DEPS})
endfunction()
