"""The I/O of client logins: credential files, token keys, password hashes computed in threads."""
