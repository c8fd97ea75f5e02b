"""Benchmarks: direct, a bare trio relay and kproxy, side by side in one run.

Every claim is a ratio measured on the machine it is read on: absolute figures of two machines, or of two runs
under different load, do not compare. `python -m bench --help` lists the cases.
"""
