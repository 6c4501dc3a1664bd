"""Operations on the protected columns of a table."""
