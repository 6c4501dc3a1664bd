"""Every private name of PyIceberg 0.12 that tables touch. What catalogs touch is in tablecrypt_catalog/_pyiceberg/.

Each module lists the private names that it takes and why, and gives them public ones: as functions and classes of their own, or as adapter
classes that turn PyIceberg's private hooks into public ones for our subclasses to fill in.
"""
