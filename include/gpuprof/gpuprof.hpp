/// @file
/// All of gpuprof.
#pragma once

#include "gpuprof/capture.hpp"
#include "gpuprof/capture_pool.hpp"
#include "gpuprof/clock.hpp"
#include "gpuprof/device_scalar.hpp"
#include "gpuprof/error.hpp"
#include "gpuprof/graph.hpp"
#include "gpuprof/graph_types.hpp"
#include "gpuprof/nodes.hpp"
#include "gpuprof/sample.hpp"
#include "gpuprof/stream.hpp"
#include "gpuprof/switches.hpp"
#include "gpuprof/timer.hpp"
#include "gpuprof/version.hpp"
