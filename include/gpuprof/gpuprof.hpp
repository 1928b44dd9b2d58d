/// @file
/// All of gpuprof.
#pragma once

#include "gpuprof/clock.hpp"
#include "gpuprof/error.hpp"
#include "gpuprof/probes.hpp"
#include "gpuprof/sample.hpp"
#include "gpuprof/stats.hpp"
#include "gpuprof/stream.hpp"
#include "gpuprof/switches.hpp"
#include "gpuprof/timer.hpp"
#include "gpuprof/version.hpp"
