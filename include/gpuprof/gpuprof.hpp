/// @file
/// All of gpuprof.
#pragma once

#include "gpuprof/annotate.hpp"
#include "gpuprof/catalog.hpp"
#include "gpuprof/clock.hpp"
#include "gpuprof/device.hpp"
#include "gpuprof/error.hpp"
#include "gpuprof/nvtx.hpp"
#include "gpuprof/probes.hpp"
#include "gpuprof/sample.hpp"
#include "gpuprof/stats.hpp"
#include "gpuprof/stream.hpp"
#include "gpuprof/switches.hpp"
#include "gpuprof/timer.hpp"
#include "gpuprof/trace.hpp"
#include "gpuprof/version.hpp"
#include "gpuprof/warnings.hpp"
