"""Authorization in the shell: loads the rules of ``acl.file``, and logs and counts refusals."""

from collections.abc import Mapping
from functools import partial

import trio

from kproxy.config.client_options import AccessOptions
from kproxy.net.audit_log import AuditLog
from kproxy.net.watched_file import WatchedFile
from kproxy.proxy.authorization.access import Access, Policy, Refusal
from kproxy.proxy.authorization.acl_rules import Rules, Subject
from kproxy.proxy.refusal_stats import RefusalStats


class Authorization:
    """What all connections share."""

    def __init__(self, file: WatchedFile[Rules], stats: RefusalStats) -> None:
        """The rules of a file."""
        #: ``acl.file``; to be watched.
        self.file = file
        self._policy = Policy(file.content)
        self._audit = AuditLog(stats)
        file.use = self._policy.use

    def access(self, host: str, topic_names: Mapping[bytes, str]) -> Access:
        """What a connection from a host may do."""
        return Access(self._policy, host, topic_names, self._refused)

    def _refused(self, subject: Subject, refusal: Refusal) -> None:
        self._audit.refused(subject, refusal, trio.current_time())


def open_authorization(config: AccessOptions, stats: RefusalStats) -> Authorization | None:
    """By ``acl.file``; None if there is none. StartupError if it can't be used."""
    if config.acl_file is None:
        return None
    from kproxy.config.acl_file import load_rules  # YAML takes long to import

    read = partial(load_rules, super_users=config.super_users)
    return Authorization(WatchedFile(config.acl_file, read, "acl.file"), stats)
