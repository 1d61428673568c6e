"""How parties join a study and stay in it: requests, signing, certificates and their renewal."""

from . import certificates, renewal
from .joining import Joining, read_invitation
from .renewal import MAILBOX_FOLDER, keep_fresh, mail_of
from .signing import Candidate, Kind, StudyOffice, request_fingerprint

__all__ = [
    "MAILBOX_FOLDER",
    "Candidate",
    "Joining",
    "Kind",
    "StudyOffice",
    "certificates",
    "keep_fresh",
    "mail_of",
    "read_invitation",
    "renewal",
    "request_fingerprint",
]
