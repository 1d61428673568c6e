"""How parties join a study and stay in it: requests, signing, certificates and their renewal."""

from . import certificates, renewal
from .joining import Joining, read_invitation
from .renewal import keep_fresh, mail_of, mailbox_folder
from .signing import Candidate, RequestKind, StudyOffice, open_authority

__all__ = [
    "Candidate",
    "Joining",
    "RequestKind",
    "StudyOffice",
    "certificates",
    "keep_fresh",
    "mail_of",
    "mailbox_folder",
    "open_authority",
    "read_invitation",
    "renewal",
]
