"""Days since 1970-01-01 as year, month and day of the proleptic Gregorian calendar, for years that Python's datetime does not have.

Years are counted here from March on, so that the leap day is the last of its year and months have a regular rhythm:
153 days for each five months from March.
"""

from __future__ import annotations

from typing import Final

_DAYS_PER_ERA: Final = 146097  # 400 years
_EPOCH: Final = 719468  # days from 0000-03-01 to 1970-01-01


def to_civil(days: int) -> tuple[int, int, int]:
    """Return year, month (1 to 12) and day (1 to 31)."""
    era, day_of_era = divmod(days + _EPOCH, _DAYS_PER_ERA)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return era * 400 + year_of_era + (month <= 2), month, day


def from_civil(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01. A day beyond its month's end runs on into the next month."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    month_from_march = month - 3 if month > 2 else month + 9
    day_of_year = (153 * month_from_march + 2) // 5 + day - 1
    return era * _DAYS_PER_ERA + 365 * year_of_era + year_of_era // 4 - year_of_era // 100 + day_of_year - _EPOCH
