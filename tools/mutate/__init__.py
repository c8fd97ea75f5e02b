"""Mutation testing: changes one rule of a module at a time, and shows which changes no test notices.

`make mutate ARGS="kproxy/dedup/retry_rules.py"` runs it; tools/mutate/README.md says what was found.

Why not a library? cosmic-ray 8 edits the source file on disk and starts pytest for each mutant: 4.5 s each, where a
fork takes 0.05 s. mutmut 3 forks, but it numbers its mutants, so no list of reasons survives an edit. It mutates no
constants of modules and no decorated functions, and it deletes neither a statement nor an operand of ``and``.
"""
