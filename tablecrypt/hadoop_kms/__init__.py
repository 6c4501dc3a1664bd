"""A Hadoop KMS for ORC's column encryption: a server in front of any key service, and a client of any Hadoop KMS. See docs/orc-spark.md."""

from tablecrypt.hadoop_kms.client import HadoopKmsKeys

__all__ = ["HadoopKmsKeys"]
