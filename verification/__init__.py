"""Tools that prove kproxy's promises on running processes; not part of the package."""
