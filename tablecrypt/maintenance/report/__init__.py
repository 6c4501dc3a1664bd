"""An audit as one HTML page that needs nothing but itself."""

from __future__ import annotations

from tablecrypt.maintenance.report.page import html_page

__all__ = ["html_page"]
