# Finds what Gantry builds on and gives each one target. oneDNN is looked for in GANTRY_DNNL_ROOT (set by tools/setup.sh), then in the system.
find_package(PkgConfig REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
find_package(ZLIB REQUIRED)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)
add_library(jansson::jansson ALIAS PkgConfig::jansson)
pkg_check_modules(protobuf_c REQUIRED IMPORTED_TARGET libprotobuf-c)
add_library(gt_protobuf INTERFACE)
target_link_libraries(gt_protobuf INTERFACE PkgConfig::protobuf_c)

find_path(GANTRY_SLEEF_INCLUDE sleef.h REQUIRED)
find_library(GANTRY_SLEEF_LIBRARY sleef REQUIRED)
add_library(gt_sleef INTERFACE)
target_include_directories(gt_sleef SYSTEM INTERFACE ${GANTRY_SLEEF_INCLUDE})
target_link_libraries(gt_sleef INTERFACE ${GANTRY_SLEEF_LIBRARY})

# The serial flavour: two thread pools fight (docs/design.md).
find_path(GANTRY_CBLAS_INCLUDE cblas.h PATHS /usr/include/x86_64-linux-gnu/openblas-serial /usr/include/aarch64-linux-gnu/openblas-serial
    REQUIRED NO_DEFAULT_PATH)
find_library(GANTRY_OPENBLAS_LIBRARY NAMES openblas libopenblas.so.0
    PATHS /usr/lib/x86_64-linux-gnu/openblas-serial /usr/lib/aarch64-linux-gnu/openblas-serial REQUIRED NO_DEFAULT_PATH)
add_library(gt_openblas INTERFACE)
target_include_directories(gt_openblas SYSTEM INTERFACE ${GANTRY_CBLAS_INCLUDE})
target_link_libraries(gt_openblas INTERFACE ${GANTRY_OPENBLAS_LIBRARY})

set(GANTRY_DNNL_ROOT "$ENV{GANTRY_DNNL_ROOT}" CACHE PATH "folder of a oneDNN installation (include/, lib/)")
find_path(GANTRY_DNNL_INCLUDE oneapi/dnnl/dnnl.h HINTS ${GANTRY_DNNL_ROOT}/include ${CMAKE_SOURCE_DIR}/build/deps/onednn/include REQUIRED)
find_library(GANTRY_DNNL_LIBRARY dnnl HINTS ${GANTRY_DNNL_ROOT}/lib ${CMAKE_SOURCE_DIR}/build/deps/onednn/lib REQUIRED)
add_library(gt_dnnl INTERFACE)
target_include_directories(gt_dnnl SYSTEM INTERFACE ${GANTRY_DNNL_INCLUDE})
target_link_libraries(gt_dnnl INTERFACE ${GANTRY_DNNL_LIBRARY})
