"""Authorization in the shell: applies the rules of ``acl.file``, and logs and counts refusals."""

from collections.abc import Mapping

import trio

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
        return Access(self._policy, host, topic_names, self._refused)

    def _refused(self, subject: Subject, refusal: Refusal) -> None:
        self._audit.refused(subject, refusal, trio.current_time())
