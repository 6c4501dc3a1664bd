"""The key hierarchy of one table: master key → KEK → manifest-list key → DEK."""
