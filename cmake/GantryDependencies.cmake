# Finds what Gantry builds on and gives each one target. oneDNN is looked for in GANTRY_DNNL_ROOT, in the folder that
# tools/setup.sh fills, then in the system.
find_package(PkgConfig REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)
find_package(Threads REQUIRED)

pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)
add_library(jansson::jansson ALIAS PkgConfig::jansson)
pkg_check_modules(protobuf_c REQUIRED IMPORTED_TARGET libprotobuf-c)
add_library(gt_protobuf INTERFACE)
target_link_libraries(gt_protobuf INTERFACE PkgConfig::protobuf_c)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
add_library(gt_xxhash INTERFACE)
target_link_libraries(gt_xxhash INTERFACE PkgConfig::xxhash)

# Without OpenMP the pragmas are comments: our loops run on the calling thread, which ThreadSanitizer can follow (libgomp is
# not instrumented). Its calls stay: oneDNN brings libgomp along and takes its thread count from it.
add_library(gt_openmp INTERFACE)
if(GANTRY_OPENMP)
    find_package(OpenMP REQUIRED COMPONENTS C)
    target_link_libraries(gt_openmp INTERFACE OpenMP::OpenMP_C)
else()
    target_compile_options(gt_openmp INTERFACE -Wno-unknown-pragmas)
    target_link_libraries(gt_openmp INTERFACE gomp)
endif()

# gantry_find(TARGET HEADER LIBRARY-NAMES [INCLUDE dirs] [LIBRARY dirs] [ONLY]): an interface target of a library without
# a package file. ONLY: nowhere but in these folders.
function(gantry_find target header names)
    cmake_parse_arguments(ARG "ONLY" "" "INCLUDE;LIBRARY" ${ARGN})
    set(where "")
    if(ARG_ONLY)
        set(where NO_DEFAULT_PATH)
    endif()
    find_path(${target}_INCLUDE ${header} HINTS ${ARG_INCLUDE} ${where} REQUIRED)
    find_library(${target}_LIBRARY NAMES ${names} HINTS ${ARG_LIBRARY} ${where} REQUIRED)
    mark_as_advanced(${target}_INCLUDE ${target}_LIBRARY)
    add_library(${target} INTERFACE)
    target_include_directories(${target} SYSTEM INTERFACE ${${target}_INCLUDE})
    target_link_libraries(${target} INTERFACE ${${target}_LIBRARY})
endfunction()

gantry_find(gt_sleef sleef.h sleef)

# The serial flavour only: two thread pools fight (docs/design.md, section 6). Its header is the same in every flavour.
set(flavours ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-pthread)
list(TRANSFORM flavours PREPEND /usr/include/)
gantry_find(gt_openblas cblas.h "openblas;libopenblas.so.0" INCLUDE ${flavours}
    LIBRARY /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial ONLY)

set(GANTRY_DNNL_ROOT "" CACHE PATH "folder of a oneDNN installation (include/, lib/); else the variable of that name")
set(dnnl_root ${GANTRY_DNNL_ROOT} $ENV{GANTRY_DNNL_ROOT} ${CMAKE_SOURCE_DIR}/build/deps/onednn)
list(GET dnnl_root 0 dnnl_root)
gantry_find(gt_dnnl oneapi/dnnl/dnnl.h dnnl INCLUDE ${dnnl_root}/include LIBRARY ${dnnl_root}/lib)
file(STRINGS ${gt_dnnl_INCLUDE}/oneapi/dnnl/dnnl_version.h dnnl_numbers REGEX "define DNNL_VERSION_(MAJOR|MINOR) ")
string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2" dnnl_version "${dnnl_numbers}")
if(dnnl_version VERSION_LESS 3.2)
    message(FATAL_ERROR "oneDNN ${dnnl_version} in ${gt_dnnl_INCLUDE} is too old: 3.2 or later is needed (run tools/setup.sh)")
endif()
