/// @file
/// What gpuprof has to say without an exception.
#pragma once

#include <functional>
#include <string>

#include "gpuprof/version.hpp"

GPUPROF_BEGIN_NAMESPACE

/// Takes one message. Called by the thread that leaves a scope, flushes or closes a trace, so that
/// several threads may call it at once. What it throws is dropped.
using WarningHandler = std::function<void(const std::string& message)>;

/// Sets who gets warnings; an empty one drops them. At first they are lines on standard error. Most
/// come once in a process. Any thread.
void set_warning_handler(WarningHandler handler);

GPUPROF_END_NAMESPACE
