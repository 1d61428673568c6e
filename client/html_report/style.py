"""The style sheet of a report, for screens and for paper, and the policy that lets a browser load nothing else."""

from base64 import b64encode
from hashlib import sha256
from typing import Final

from dpspca.common.results import NOT_FOR_RELEASE

WHITE: Final = "#ffffff"
INK: Final = "#222222"
FAINT: Final = "#595959"
BAR: Final = "#0072b2"
ALARM: Final = "#9b1c00"
STRIPE: Final = "#f2f5f7"
LINE: Final = "#c8ccd0"

PAIRS: Final = ((INK, WHITE), (FAINT, WHITE), (INK, STRIPE), (FAINT, STRIPE), (WHITE, ALARM), (ALARM, WHITE))
"""Colours of text, each with the background that it is read on."""

_ALWAYS: Final = f"""
:root {{ color-scheme: light; }}
body {{ margin: 0 auto; max-width: 46rem; padding: 1.5rem; color: {INK}; background: {WHITE};
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }}
h1 {{ font-size: 1.7rem; line-height: 1.2; margin: 0 0 .5rem; }}
h2 {{ font-size: 1.25rem; margin: 2.2rem 0 .5rem; border-bottom: 1px solid {LINE}; padding-bottom: .2rem; }}
h3 {{ font-size: 1.05rem; margin: 1.4rem 0 .3rem; }}
table {{ border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; font-variant-numeric: tabular-nums; }}
caption {{ text-align: left; color: {FAINT}; font-size: .9rem; padding-bottom: .3rem; }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid {LINE}; }}
thead th {{ border-bottom: 2px solid {INK}; }}
tbody th {{ font-weight: normal; }}
tbody th, td {{ overflow-wrap: anywhere; }}
data {{ white-space: nowrap; }}
code {{ overflow-wrap: anywhere; }}
tbody tr:nth-child(even) {{ background: {STRIPE}; }}
figure {{ margin: 1rem 0; }}
figcaption {{ color: {FAINT}; font-size: .9rem; }}
svg {{ display: block; max-width: 100%; height: auto; }}
dt {{ font-weight: bold; margin-top: .5rem; }}
dd {{ margin: 0; }}
blockquote {{ margin: .5rem 0; padding: .1rem 1rem; border-left: 4px solid {BAR}; }}
footer {{ margin-top: 2.5rem; color: {FAINT}; font-size: .9rem; }}
.alarm {{ background: {ALARM}; color: {WHITE}; padding: .7rem 1rem; margin: 0 0 1.2rem; font-weight: bold; }}
.warnings li {{ margin: .4rem 0; }}
@media print {{
  body {{ max-width: none; padding: 0; font-size: 10pt; }}
  h1, h2, h3, caption, dt {{ break-after: avoid; }}
  tr, figure, .alarm, blockquote {{ break-inside: avoid; }}
  thead {{ display: table-header-group; }}
  .alarm {{ border: 3px solid {ALARM}; print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
}}
@page {{ margin: 2cm; @bottom-right {{ content: counter(page); }} }}
"""

_ON_EVERY_PAGE: Final = (
    f'@page {{ @top-center {{ content: "{NOT_FOR_RELEASE}"; font-weight: bold; color: {ALARM}; }} }}\n'
)


def sheet(*, releasable: bool) -> str:
    """Return the style sheet. A result that must not be released is marked so at the top of every page."""
    return _ALWAYS if releasable else _ALWAYS + _ON_EVERY_PAGE


def policy(style: str) -> str:
    """Return a Content-Security-Policy that allows this style sheet, and nothing else."""
    digest = b64encode(sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
