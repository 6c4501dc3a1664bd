"""Every private name of PyIceberg 0.12 that tablecrypt_catalog touches. What tables touch is in tablecrypt/table/_pyiceberg/.

A module for each kind of catalog, since each needs a client library from another extra: importing one must not import the others.
"""
