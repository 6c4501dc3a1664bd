"""What a catalog has, and what one table is: for people who look before they do something.

list_tables   the tables of a catalog, and which of them are encrypted       load metadata, no key
describe      one table: columns, keys, snapshots, size                      only the size asks for the table's key
"""

from tablecrypt.maintenance._describe.listing import ListedTable, Listing, list_tables
from tablecrypt.maintenance._describe.table import TableDescription, describe

__all__ = ["ListedTable", "Listing", "TableDescription", "describe", "list_tables"]
