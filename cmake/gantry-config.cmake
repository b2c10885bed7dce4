include(${CMAKE_CURRENT_LIST_DIR}/gantry-targets.cmake)
